"""A split of a GLUE task: its examples with the faults of its file, batches as a fairseq dataset, and losses."""

import hashlib
from dataclasses import dataclass
from typing import Any, Optional

import numpy as np
import torch
import torch.nn.functional as F
from fairseq.data import FairseqDataset
from torch import Tensor, nn

from fairseq_headprune.files import PathLike
from fairseq_headprune.glue.catalogue import GlueTask
from fairseq_headprune.glue.tsv import Example, read_bytes, read_split, split_path
from fairseq_headprune.imports.wordpieces import Encoded, WordPieceVocabulary


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


def read(
    data: PathLike, task: GlueTask, split: str, vocabulary: WordPieceVocabulary, limit: int, holdout: "Holdout"
) -> Split:
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


class GlueDataset(FairseqDataset):
    """Encoded examples; batches pad ``src_tokens`` on the right, as in BERT's training.

    Args:
        name: of the split; each batch contains it.
        shuffle: draw a random order for training (from numpy's seed, which fairseq sets). Otherwise examples of similar
            length share a batch.
    """

    def __init__(self, split: Split, name: str, pad: int, shuffle: bool = False) -> None:
        self.split, self.name, self.pad, self.shuffle = split, name, pad, shuffle
        self.sizes = np.array([len(example.ids) for example in split.encoded])

    @property
    def targets(self) -> Optional[np.ndarray]:
        """Class numbers or scores, (examples,); None for a test set."""
        return self.split.targets

    def __getitem__(self, index: int) -> int:
        return int(index)

    def __len__(self) -> int:
        return len(self.sizes)

    def num_tokens(self, index: int) -> int:
        """Number of word pieces of an example."""
        return int(self.sizes[index])

    def num_tokens_vec(self, indices: Any) -> np.ndarray:
        """Numbers of word pieces of several examples."""
        return self.sizes[indices]

    size = num_tokens  # fairseq compares it with the maximum number of positions

    def ordered_indices(self) -> np.ndarray:
        """Return the order in which examples are batched."""
        if self.shuffle:
            return np.random.permutation(len(self))
        return np.argsort(self.sizes, kind="stable")

    def collater(self, samples: list[int]) -> dict[str, Any]:
        """Return one batch: ``id``, ``net_input``, ``target`` if there are labels, and counts."""
        if not samples:
            return {}
        lengths = torch.from_numpy(self.sizes[samples])
        tokens = torch.full((len(samples), int(lengths.max())), self.pad)
        types = torch.zeros_like(tokens)
        for row, index in enumerate(samples):
            example = self.split.encoded[index]
            tokens[row, : len(example.ids)] = torch.tensor(example.ids)
            types[row, : len(example.types)] = torch.tensor(example.types)
        sample = {
            "id": torch.tensor(samples),
            "net_input": {"src_tokens": tokens, "src_lengths": lengths, "token_types": types},
            "nsentences": len(samples),
            "ntokens": int(lengths.sum()),
            "split": self.name,
        }
        if self.targets is not None:
            sample["target"] = torch.from_numpy(self.targets[samples])
        return sample


class ExampleLosses:
    """Cross entropy of each classified example, or squared error of each graded one."""

    def __init__(self, pad: int, is_regression: bool) -> None:
        self.pad, self.is_regression = pad, is_regression

    def __call__(self, model: nn.Module, sample: dict[str, Any]) -> Tensor:
        """Run the model and return losses, (batch,)."""
        logits = model(**sample["net_input"])[0]
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if self.is_regression:
            return (logits.view(-1) - sample["target"]).square()
        return F.cross_entropy(logits, sample["target"], reduction="none")

    def counts(self, sample: dict[str, Any]) -> dict[str, int]:
        """Return the counts; tokens are input tokens."""
        tokens = int(sample["net_input"]["src_tokens"].ne(self.pad).sum())
        return {"sentences": sample["target"].numel(), "batches": 1, "tokens": tokens, "source_tokens": tokens}

    def positions(self, component: str, sample: dict[str, Any]) -> int:
        """Return the number of input tokens."""
        return sample["net_input"]["src_tokens"].size(1)
