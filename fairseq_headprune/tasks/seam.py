"""The interface of fairseq tasks that Session and the commands use; any task that implements it can be pruned.

A new task is a fairseq task registered under a name (in a module that ``--user-dir`` loads) whose first base class is
:class:`~fairseq_headprune.tasks.gated.GatedTask`, which inherits this interface.
"""

import dataclasses
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

from fairseq.tasks import TASK_REGISTRY
from torch import Tensor

from fairseq_headprune.evaluation.evaluator import Evaluator
from fairseq_headprune.importance.losses import Losses
from fairseq_headprune.stored.loader import refuse_task

if TYPE_CHECKING:
    from fairseq.tasks import FairseqTask

    from fairseq_headprune.glue.catalogue import GlueTask
else:
    FairseqTask = object  # a mixin, placed before fairseq's own task


class PrunableTask(FairseqTask):
    """The interface, with defaults that suit most tasks; the other methods raise NotImplementedError.

    Attributes:
        default_subset: the split that is evaluated if ``--gen-subset`` is not given.
        as_trained: settings that default to those the checkpoint was trained with if their flags are not given.
        translates: whether its answers are translations by fairseq's search.
        glue: description of its labels and splits, by which ``headprune evaluate`` scores and writes predictions, with
            the task's ``metric`` and ``score``; None: it does not.
    """

    default_subset = "test"
    as_trained: tuple[str, ...] = ()
    translates = False
    glue: Optional["GlueTask"] = None

    @classmethod
    def registered_name(cls) -> str:
        """Return the name under which the task is registered with fairseq."""
        return next(name for name, task in TASK_REGISTRY.items() if task is cls)

    @classmethod
    def opens(cls, name: Optional[str]) -> bool:
        """Whether this task opens checkpoints of a task with this name (None: the name is unknown)."""
        return name == cls.registered_name()

    @classmethod
    def complete_settings(cls, args: Any, saved: dict[str, Any]) -> None:
        """Set settings whose flags are not given to those that a checkpoint was trained with."""
        for name in cls.as_trained:
            if getattr(args, name, None) is None:
                setattr(args, name, saved.get(name))

    def check_checkpoint(self, path: str, state: dict[str, Any]) -> None:
        """Refuse a checkpoint that does not belong to the data, before fairseq loads its weights.

        Raises:
            ValueError: it does not.
        """

    def training_flags(self) -> list[str]:
        """Return the flags of fairseq-train that select the task."""
        given = {name: getattr(self.cfg, name) for name in self.as_trained}
        flags = [(f"--{name.replace('_', '-')}", str(value)) for name, value in given.items() if value is not None]
        return ["--task", self.registered_name(), *(word for flag in flags for word in flag)]

    def answer_settings(self, session: Any) -> dict[str, Any]:
        """Return the settings, other than model and data, that affect answers and their score; plain JSON values."""
        return {}

    def open_split(self, split: str, saved: Any) -> Any:
        """Return the dataset of a split, loaded once.

        Args:
            saved: the task's settings in the checkpoint.

        Raises:
            FileNotFoundError, KeyError: there is no such split.
            ValueError: it is damaged or empty.
        """
        if split not in self.datasets:
            self.read_split(split, saved)
            dataset = self.dataset(split)
            # Data of --dataset-impl cached cannot be read in any other way.
            if getattr(dataset, "supports_prefetch", False):
                dataset.prefetch(range(len(dataset)))
        return self.dataset(split)

    def read_split(self, split: str, saved: Any) -> None:
        """Load a split into ``datasets``; see :meth:`open_split`."""
        self.load_dataset(split)

    def identity(self, split: str) -> dict[str, Any]:
        """Identify a split: hashes of its files (not their paths), and settings that change its content."""
        raise NotImplementedError(f"{type(self).__name__} does not identify its data")

    def split_files(self, split: str) -> list[Path]:
        """Return the files that a split is read from, dictionaries included; empty if there are none."""
        return []

    @property
    def pad(self) -> int:
        """The index of padding."""
        return self.target_dictionary.pad()

    @property
    def edges(self) -> Collection[int]:
        """Symbols at the ends of sentences; attention to them does not count as confidence."""
        return (self.target_dictionary.eos(),)

    def losses(self, loss: str, smoothing: float) -> Losses:
        """Return the losses of a batch's examples, for importance estimates.

        Raises:
            ValueError: the task does not have this loss.
        """
        raise NotImplementedError(f"{type(self).__name__} has no losses of single examples")

    def sides(self, sample: dict[str, Any]) -> dict[str, tuple[Tensor, Tensor]]:
        """Return component -> tokens that attend and tokens that are attended to, (batch, tgt) and (batch, src)."""
        raise NotImplementedError(f"{type(self).__name__} does not say who attends to whom")

    def words(self, tokens: Tensor, side: str) -> list[str]:
        """Return the text of each token, (n,).

        Args:
            side: ``source`` or ``target``.
        """
        dictionary = self.source_dictionary if side == "source" else self.target_dictionary
        return [dictionary[int(token)] for token in tokens]

    def evaluator(self, session: Any, split: str) -> Evaluator:
        """Return an evaluator, which answers a split under a mask and scores the answers."""
        raise NotImplementedError(f"{type(self).__name__} answers nothing")


def changed_settings(cfg: Any, config: type, without_effect: Collection[str]) -> dict[str, Any]:
    """Return a task's settings that differ from the defaults of its configuration class, except ``without_effect``."""
    defaults = {field.name: field.default for field in dataclasses.fields(config)}
    names = sorted(set(defaults) - {"_name", *without_effect})
    return {name: cfg[name] for name in names if cfg[name] != defaults[name]}


def task_class(name: str) -> type[PrunableTask]:
    """Return the task that opens checkpoints of a task with this name: the task of this name, or a replacement for it.

    Raises:
        ValueError: there is none.
    """
    known = {key: task for key, task in TASK_REGISTRY.items() if issubclass(task, PrunableTask)}
    found = [known[name]] if name in known else [task for task in known.values() if task.opens(name)]
    if not found:
        refuse_task(name)
        raise ValueError(f"the task {name} is not supported; supported are {', '.join(sorted(known))}")
    return found[0]


def default_task() -> type[PrunableTask]:
    """Return the task to use if none is specified."""
    known = (task for task in TASK_REGISTRY.values() if issubclass(task, PrunableTask))
    return next(task for task in known if task.opens(None))
