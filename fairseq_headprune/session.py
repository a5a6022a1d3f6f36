"""One model with its task and data, opened from fairseq-generate's flags; every verb that uses a model starts here."""

import argparse
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from fairseq import tasks, utils
from fairseq.data import data_utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from fairseq_headprune import plugin  # noqa: F401  (registers)
from fairseq_headprune.checkpoints import State, read_state, task_settings, updates_of
from fairseq_headprune.evaluation.evaluator import Evaluator
from fairseq_headprune.evaluation.generation import built
from fairseq_headprune.files import identified, sha256
from fairseq_headprune.generation_flags import parse_generation_args  # noqa: F401  (for callers of this module)
from fairseq_headprune.models.starting import load_model, model_overrides
from fairseq_headprune.modules.attach import attach_gates
from fairseq_headprune.modules.connected import check_source_is_read
from fairseq_headprune.parts import ffn_parts
from fairseq_headprune.tasks.seam import PrunableTask, task_class

#: fairseq-generate's default when neither limit is given
_DEFAULT_MAX_TOKENS = 12000
_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


class Batches:
    """A list of index groups, collated during iteration: a whole corpus is never held on the device."""

    def __init__(self, dataset: Any, groups: list, device: torch.device) -> None:
        self.groups = groups
        self._dataset, self._device = dataset, device

    def __len__(self) -> int:
        return len(self.groups)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for group in self.groups:
            sample = self._dataset.collater([self._dataset[int(i)] for i in group])
            yield utils.move_to_cuda(sample, self._device) if self._device.type == "cuda" else sample


def sample_indices(total: int, count: int, seed: int) -> np.ndarray:
    """Draw ``count`` of ``total`` sentences without replacement (0: all), in ascending order.

    Raises:
        ValueError: a negative count.
    """
    if count < 0:
        raise ValueError(f"cannot draw {count} sentences; 0 takes all")
    if count == 0 or count >= total:
        return np.arange(total)
    return np.sort(np.random.default_rng(seed).choice(total, count, replace=False))


class Session:
    """A checkpoint loaded with its task, ready for inference and for computing gradients.

    Whatever differs between tasks is delegated to the task (:class:`~fairseq_headprune.tasks.seam.PrunableTask`).

    Attributes:
        args, cfg: the settings, as parsed and as fairseq's configuration.
        overrides: the value of ``--model-overrides``.
        updates: updates of the checkpoint's training; None if it does not say.
        task, model, gates: the model is gated, in evaluation mode and on the device.
        sample: only so many sentences of a split, of all lengths, are in its batches; None: all.
    """

    sample: int | None = None

    def __init__(self, args: argparse.Namespace, task: Any = None) -> None:
        """Load everything; ``task`` reuses the task of another session, with the data it has loaded.

        Raises:
            ValueError, FileNotFoundError: a checkpoint that cannot be read, is for another task or does not fit the
                data; a mask that does not fit; or missing data.
        """
        state = read_state(args.path)
        _complete(args, state)
        self.updates = updates_of(state)
        self.args = args
        self.cfg = built("settings (null: a flag that is missing)", lambda: convert_namespace_to_omegaconf(args))
        if self.cfg.dataset.max_tokens is None and self.cfg.dataset.batch_size is None:
            self.cfg.dataset.max_tokens = _DEFAULT_MAX_TOKENS
        self.path = args.path
        self.overrides = model_overrides(self.cfg.common_eval.model_overrides)
        self.device = torch.device("cuda" if torch.cuda.is_available() and not self.cfg.common.cpu else "cpu")
        self.task: Any = task or _setup_task(self.cfg)
        self.task.check_checkpoint(self.path, state)
        self.model, self.saved_cfg = load_model(self.path, state, self.overrides, self.task)
        self.gates = attach_gates(self.model)
        check_source_is_read(self.path, self.gates)
        self.gates.ffn_parts = ffn_parts(getattr(args, "components", None), getattr(args, "ffn", None))
        self.model.to(self.device, _DTYPES[self.precision])
        self.model.prepare_for_inference_(self.cfg)

    @property
    def precision(self) -> str:
        """The model's precision: ``fp32``, ``fp16`` or ``bf16``."""
        common = self.cfg.common
        return "fp16" if common.fp16 else "bf16" if common.bf16 else "fp32"

    @cached_property
    def checkpoint(self) -> dict[str, str]:
        """Path and hash of the checkpoint."""
        return identified(self.path)

    def answering(self) -> dict[str, Any]:
        """Return the settings, apart from model and data, that the outputs and their score depend on."""
        return self.task.answer_settings(self)

    def evaluator(self, split: str) -> Evaluator:
        """Return a split's evaluator, which runs and scores the model under a mask (:mod:`evaluation.evaluator`)."""
        return self.task.evaluator(self, split)

    def dataset(self, split: str) -> Any:
        """Load a split (once).

        Raises:
            FileNotFoundError, KeyError: there is no such split.
            ValueError: it is damaged or empty.
        """
        return self.task.open_split(split, self.saved_cfg.task)

    def data(self, split: str) -> dict[str, Any]:
        """Describe the data read from a split: hashes, settings, and the numbers of sentences if only some are used."""
        count = self.scored(split)
        return {**self.task.identity(split), **({"sentences": count} if count["scored"] < count["of"] else {})}

    def origin(self) -> dict[str, Any]:
        """Return the model's updates, and the hashes of train, valid and test of the data folder, as far as known."""
        files = {path for split in ("train", "valid", "test") for path in self.task.split_files(split)}
        return {"updates": self.updates, "data_files": {path.name: sha256(path) for path in sorted(files)}}

    def batches(self, split: str, indices: np.ndarray | None = None, max_tokens: int | None = None) -> Batches:
        """Return batches of a split, each moved to the device when used.

        Args:
            indices: which sentences (default: all). For all sentences, the batches are those of fairseq-generate.
            max_tokens: batch size limit, instead of ``--max-tokens`` and ``--batch-size``.

        Raises:
            ValueError: a sentence is longer than the model allows and ``--skip-invalid-size-inputs-valid-test`` is off,
                or longer than ``--max-tokens``.
        """
        dataset, chosen = self.dataset(split), self._in_order(split)
        if indices is not None:
            chosen = chosen[np.isin(chosen, np.asarray(indices))]
        chosen = self._short_enough(split, chosen)
        limits = {"max_tokens": self.cfg.dataset.max_tokens, "max_sentences": self.cfg.dataset.batch_size}
        if max_tokens is not None:
            limits = {"max_tokens": max_tokens, "max_sentences": None}
        try:
            groups = dataset.batch_by_size(chosen, **limits, required_batch_size_multiple=1)
        except AssertionError as error:
            raise ValueError(f"{split}: {error}; raise --max-tokens") from error
        return Batches(dataset, groups, self.device)

    def _in_order(self, split: str) -> np.ndarray:
        """Return all sentences in the order in which fairseq-generate batches them."""
        with data_utils.numpy_seed(self.cfg.common.seed):
            found = np.asarray(self.dataset(split).ordered_indices())
        return found if self.sample is None else found[:: max(1, len(found) // self.sample)][: self.sample]

    def _short_enough(self, split: str, indices: np.ndarray) -> np.ndarray:
        """Drop sentences longer than the model or the task allows, if the flags ask for it."""
        positions = utils.resolve_max_positions(self.task.max_positions(), self.model.max_positions())
        if positions is None:
            return indices
        ignore = self.cfg.dataset.skip_invalid_size_inputs_valid_test
        try:
            return self.task.filter_indices_by_size(indices, self.dataset(split), positions, ignore)
        except Exception as error:
            raise ValueError(f"{split}: {error}") from error

    def scored(self, split: str) -> dict[str, int]:
        """Return how many sentences of a split are evaluated (``scored``), and how many it has (``of``)."""
        total = len(self.dataset(split))
        if not self.cfg.dataset.skip_invalid_size_inputs_valid_test:
            return {"scored": total, "of": total}
        return {"scored": len(self._short_enough(split, np.arange(total))), "of": total}

    def collate(self, split: str, indices: Sequence[int]) -> dict[str, Any]:
        """Return one batch of these sentences, on the device."""
        return next(iter(Batches(self.dataset(split), [indices], self.device)))


def _complete(args: argparse.Namespace, state: State) -> None:
    """Fill in task settings from the checkpoint where no flag is given.

    Raises:
        ValueError: the requested task cannot open the checkpoint's task.
    """
    saved, task = task_settings(state), task_class(args.task)
    if not task.opens(saved.get("_name")):
        raise ValueError(f"{args.path}: trained with the task {saved.get('_name')}, not {args.task}")
    task.complete_settings(args, saved)


def _setup_task(cfg: Any) -> PrunableTask:
    try:
        return tasks.setup_task(cfg.task)
    except (ValueError, KeyError, OSError):
        raise
    except Exception as error:
        raise ValueError(f"{cfg.task.data}: {error}") from error
