"""What Session and the verbs ask of a fairseq task; whatever task answers these questions can be scored and pruned.

A new task is a fairseq task registered under a name (in a module that ``--user-dir`` loads) whose first base class is
:class:`~fairseq_headprune.tasks.gated.GatedTask`, which inherits the questions from here.
"""

import dataclasses
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Optional

from fairseq.tasks import TASK_REGISTRY
from torch import Tensor

from fairseq_headprune.evaluation.evaluator import Evaluator
from fairseq_headprune.importance.losses import Losses
from fairseq_headprune.stored.released import refuse_task

if TYPE_CHECKING:
    from fairseq.tasks import FairseqTask
else:
    FairseqTask = object  # a mixin, named before fairseq's own task


class PrunableTask(FairseqTask):
    """The questions, with the answers that are the same for most tasks; the others raise NotImplementedError.

    Attributes:
        default_subset: the split that is answered where ``--gen-subset`` is not given.
        as_trained: names of settings that mean, where their flags are not given, what the checkpoint was trained with.
        translates: whether its answers are translations found by fairseq's search.
    """

    default_subset = "test"
    as_trained: tuple[str, ...] = ()
    translates = False

    @classmethod
    def registered_name(cls) -> str:
        """Return the name under which fairseq knows the task."""
        return next(name for name, task in TASK_REGISTRY.items() if task is cls)

    @classmethod
    def opens(cls, name: Optional[str]) -> bool:
        """Whether checkpoints of a task of this name are opened with this one (None: it is not known)."""
        return name == cls.registered_name()

    @classmethod
    def complete_settings(cls, args: Any, saved: dict[str, Any]) -> None:
        """Fill in settings whose flags are not given from those that a checkpoint was trained with."""
        for name in cls.as_trained:
            if getattr(args, name, None) is None:
                setattr(args, name, saved.get(name))

    def check_checkpoint(self, path: str, state: dict[str, Any]) -> None:
        """Refuse a checkpoint that does not belong to the data, before fairseq loads its weights.

        Raises:
            ValueError: it does not.
        """

    def training_flags(self) -> list[str]:
        """Return the flags of fairseq-train that name the task."""
        given = {name: getattr(self.cfg, name) for name in self.as_trained}
        flags = [(f"--{name.replace('_', '-')}", str(value)) for name, value in given.items() if value is not None]
        return ["--task", self.registered_name(), *(word for flag in flags for word in flag)]

    def answer_settings(self, session: Any) -> dict[str, Any]:
        """Return the settings that answers and their score depend on, apart from model and data; plain JSON values."""
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
            # Data of --dataset-impl cached can be read in no other way.
            if getattr(dataset, "supports_prefetch", False):
                dataset.prefetch(range(len(dataset)))
        return self.dataset(split)

    def read_split(self, split: str, saved: Any) -> None:
        """Load a split into ``datasets``; see :meth:`open_split`."""
        self.load_dataset(split)

    def identity(self, split: str) -> dict[str, Any]:
        """Identify what is read of a split: hashes of its files (not their place), and settings that change it."""
        raise NotImplementedError(f"{type(self).__name__} does not identify its data")

    @property
    def pad(self) -> int:
        """The index of padding."""
        return self.target_dictionary.pad()

    @property
    def edges(self) -> Collection[int]:
        """Symbols at the edge of sentences; attention to them is not counted as confidence."""
        return (self.target_dictionary.eos(),)

    def losses(self, loss: str, smoothing: float) -> Losses:
        """Return the losses of a batch's examples, by which importance is estimated.

        Raises:
            ValueError: a loss that the task does not have.
        """
        raise NotImplementedError(f"{type(self).__name__} has no losses of single examples")

    def sides(self, sample: dict[str, Any]) -> dict[str, tuple[Tensor, Tensor]]:
        """Return component -> tokens that attend and that are attended to, (batch, tgt) and (batch, src)."""
        raise NotImplementedError(f"{type(self).__name__} does not say who attends to whom")

    def evaluator(self, session: Any, split: str) -> Evaluator:
        """Return what answers a split under a mask, and scores the answers."""
        raise NotImplementedError(f"{type(self).__name__} answers nothing")


def changed_settings(cfg: Any, config: type, without_effect: Collection[str]) -> dict[str, Any]:
    """Return the settings of a task that differ from the defaults of its configuration class, but for some names."""
    defaults = {field.name: field.default for field in dataclasses.fields(config)}
    names = sorted(set(defaults) - {"_name", *without_effect})
    return {name: cfg[name] for name in names if cfg[name] != defaults[name]}


def task_class(name: str) -> type[PrunableTask]:
    """Return the task that opens checkpoints of a task of this name: the one so called, else one that stands for it.

    Raises:
        ValueError: no task of ours does.
    """
    known = {key: task for key, task in TASK_REGISTRY.items() if issubclass(task, PrunableTask)}
    found = [known[name]] if name in known else [task for task in known.values() if task.opens(name)]
    if not found:
        refuse_task(name)
        raise ValueError(f"the task {name} is not supported; supported are {', '.join(sorted(known))}")
    return found[0]


def default_task() -> type[PrunableTask]:
    """Return the task to take where nothing says which."""
    known = (task for task in TASK_REGISTRY.values() if issubclass(task, PrunableTask))
    return next(task for task in known if task.opens(None))
