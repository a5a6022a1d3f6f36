"""A BERT checkpoint with its GLUE task and data: what every verb that takes a model works on."""

import argparse
from pathlib import Path
from typing import Any

from fairseq_headprune.checkpoints import read_state, task_settings
from fairseq_headprune.glue.predict import Predictor
from fairseq_headprune.importance.reading import SentenceReading
from fairseq_headprune.session import Session

#: flags that mean, where they are not given, what the model was trained with
_AS_TRAINED = ("glue_task", "metric", "max_positions", "holdout", "holdout_seed")


class GlueSession(Session):
    """A checkpoint of ``bert_gated`` and the ``glue`` task."""

    def __init__(self, args: argparse.Namespace, task: Any = None) -> None:
        """Load everything; what the flags do not say of the task is as in training.

        Raises:
            ValueError, FileNotFoundError: a checkpoint that cannot be read or is of another task, a mask that does not
                fit, data that is not there.
        """
        saved = task_settings(read_state(args.path))
        if saved.get("_name") != "glue":
            raise ValueError(f"{args.path}: trained with the task {saved.get('_name')}, not glue")
        for name in _AS_TRAINED:
            if getattr(args, name, None) is None:
                setattr(args, name, saved.get(name))
        super().__init__(args, task)

    def _check(self, state: dict) -> None:
        """The model itself refuses another task's labels."""

    def training_flags(self) -> list[str]:
        """Return the flags of fairseq-train that name the task, as the model was trained."""
        given = {name: getattr(self.args, name) for name in _AS_TRAINED}
        flags = [(f"--{name.replace('_', '-')}", str(value)) for name, value in given.items() if value is not None]
        return ["--task", "glue", *(word for flag in flags for word in flag)]

    def answering(self) -> dict[str, Any]:
        """Return the settings that answers and their score depend on, apart from model and data."""
        return {"metric": self.task.metric}

    @property
    def reading(self) -> SentenceReading:
        """How importance reads a batch."""
        vocabulary = self.task.vocabulary
        return SentenceReading(vocabulary.pad, vocabulary.edges, self.task.glue.is_regression)

    def evaluator(self, split: str) -> Predictor:
        """Return what predicts the labels of a split."""
        return Predictor(self, split)

    def dataset(self, split: str) -> Any:
        """Load a split (once).

        Raises:
            KeyError: the task has no such split.
            FileNotFoundError, ValueError: its file is missing or damaged.
        """
        if split not in self.task.datasets:
            self.task.load_dataset(split)
        return self.task.dataset(split)

    def data(self, split: str) -> dict[str, Any]:
        """Identify a split by its file's hash (not by its place), and say what was left out of it and cut."""
        about = dict(self.dataset(split).split.about)
        name, digest = Path(about.pop("path")).name.removesuffix(".gz"), about.pop("sha256")
        return {"split": split, "task": self.task.glue.name, "sha256": {name: digest}, **about}
