"""A split of a GLUE task as model input: tokens, targets, and the faults of its file."""

import hashlib
from dataclasses import dataclass
from typing import Any, Optional

import numpy as np

from fairseq_headprune.bert.vocabulary import Encoded, Vocabulary
from fairseq_headprune.files import PathLike
from fairseq_headprune.glue.catalogue import GlueTask
from fairseq_headprune.glue.tsv import Example, read_bytes, read_split, split_path


@dataclass
class Split:
    """Encoded examples of one split.

    Attributes:
        numbers: line numbers in the file, from 0, without the header; ``sentences``: the texts there.
        encoded: tokens and token types.
        targets: class numbers (int64), scores (float32), or None for a test set.
        about: path, hash (of the uncompressed text), counts and faults of the file; plain JSON values.
        note: the faults in words; empty if there are none.
    """

    numbers: list[int]
    sentences: list[tuple[str, ...]]
    encoded: list[Encoded]
    targets: Optional[np.ndarray]
    about: dict[str, Any]
    note: str


def read(data: PathLike, task: GlueTask, split: str, vocabulary: Vocabulary, limit: int, holdout: "Holdout") -> Split:
    """Read and encode a split: ``train``, ``valid``, ``dev``, ``test`` or a file stem.

    With a holdout, ``valid`` is the held-out part of train, and ``train`` the rest.

    Raises:
        KeyError: no such split.
        FileNotFoundError: its file is not there.
        ValueError: a damaged file, or a holdout that leaves nothing.
    """
    held = bool(holdout.amount) and split == "valid"
    stem = "train" if held else task.stem(split)
    path = split_path(data, task, stem)
    examples, faults = read_split(path, task, stem)
    digest = hashlib.sha256(read_bytes(path)).hexdigest()
    about: dict[str, Any] = {"path": str(path), "sha256": digest, "lines": len(examples) + faults.left_out}
    about["faults"] = faults.to_dict()
    if holdout.amount and stem == "train":
        examples = holdout.part(examples, held)
        about["holdout"] = {"amount": holdout.amount, "seed": holdout.seed}
    columns = list(zip(*(example.sentences for example in examples), strict=True))
    encoded = vocabulary.encode(columns[0], columns[1] if len(columns) > 1 else None, limit)
    about |= {"examples": len(examples), "cut": sum(example.is_cut for example in encoded), "limit": limit}
    numbers, sentences = [example.number for example in examples], [example.sentences for example in examples]
    return Split(numbers, sentences, encoded, _targets(task, examples), about, str(faults))


@dataclass(frozen=True)
class Holdout:
    """A held-out part of train for choosing models, so that the development set is only reported on.

    Attributes:
        amount: a share below 1, or a number of examples; 0: no holdout, and models are chosen on the development set.
        seed: of the random draw.
    """

    amount: float = 0.0
    seed: int = 1

    def part(self, examples: list[Example], held: bool) -> list[Example]:
        """Return the held-out examples, or the others, in the order of the file.

        Raises:
            ValueError: the amount is negative, or one of the two parts would be empty.
        """
        count = round(self.amount * len(examples)) if 0 < self.amount < 1 else int(self.amount)
        if not 0 < count < len(examples):
            raise ValueError(f"--holdout {self.amount:g}: of {len(examples)} examples, give a share or a number below")
        chosen = np.zeros(len(examples), dtype=bool)
        chosen[np.random.default_rng(self.seed).choice(len(examples), count, replace=False)] = True
        return [example for example, is_held in zip(examples, chosen, strict=True) if is_held == held]


def _targets(task: GlueTask, examples: list[Example]) -> Optional[np.ndarray]:
    if examples[0].label is None:
        return None
    if task.is_regression:
        return np.array([example.label for example in examples], dtype=np.float32)
    return np.array([task.labels.index(str(example.label)) for example in examples], dtype=np.int64)
