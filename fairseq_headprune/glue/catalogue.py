"""The GLUE tasks: columns, labels, metrics and file names."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Optional

#: the only "label" of a regression task
SCORE = "score"


@dataclass(frozen=True)
class GlueTask:
    """One task of the benchmark.

    Attributes:
        name: GLUE's spelling, also the name of its folder.
        sentences: names of the columns with the one or two sentences.
        label: name of the column with the label.
        labels: label names in alphabetical order, which is the order of the logits; ``(SCORE,)`` for regression.
        metrics: GLUE's metrics of this task; if there are two, the score is their mean.
        positive: the label whose F1 is computed.
        dev, test: file stems of the development and test sets; MNLI has two of each.
        plain: file stem -> columns, for files without a header.
        submission: stem of the test set -> name of the file that GLUE's server expects.
    """

    name: str
    sentences: tuple[str, ...]
    label: str
    labels: tuple[str, ...]
    metrics: tuple[str, ...]
    positive: Optional[str] = None
    dev: tuple[str, ...] = ("dev",)
    test: tuple[str, ...] = ("test",)
    plain: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    submission: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_regression(self) -> bool:
        """Whether scores are predicted instead of classes."""
        return self.labels == (SCORE,)

    def stem(self, split: str) -> str:
        """Return the file stem of a split: ``valid`` is the development set (the matched one if there are two).

        Raises:
            KeyError: no such split.
        """
        stem = {"valid": self.dev[0], "dev": self.dev[0], "test": self.test[0]}.get(split, split)
        if stem not in ("train", *self.dev, *self.test):
            raise KeyError(f"{self.name} has no split {split!r}; there are {', '.join(self.splits)}")
        return stem

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of its splits."""
        return tuple(dict.fromkeys(("train", "valid", "dev", *self.dev, "test", *self.test)))


_YES_NO = ("entailment", "not_entailment")
_COLA = ("source", "acceptability", "mark", "sentence")

TASKS = {
    task.name: task
    for task in (
        GlueTask(
            "CoLA",
            ("sentence",),
            "acceptability",
            ("0", "1"),
            ("matthews",),
            plain={"train": _COLA, "dev": _COLA},
        ),
        GlueTask("SST-2", ("sentence",), "label", ("0", "1"), ("accuracy",)),
        GlueTask("MRPC", ("#1 String", "#2 String"), "Quality", ("0", "1"), ("accuracy", "f1"), "1"),
        GlueTask("STS-B", ("sentence1", "sentence2"), "score", (SCORE,), ("pearson", "spearman")),
        GlueTask("QQP", ("question1", "question2"), "is_duplicate", ("0", "1"), ("accuracy", "f1"), "1"),
        GlueTask(
            "MNLI",
            ("sentence1", "sentence2"),
            "gold_label",
            ("contradiction", "entailment", "neutral"),
            ("accuracy",),
            dev=("dev_matched", "dev_mismatched"),
            test=("test_matched", "test_mismatched"),
            submission={"test_matched": "MNLI-m.tsv", "test_mismatched": "MNLI-mm.tsv"},
        ),
        GlueTask("QNLI", ("question", "sentence"), "label", _YES_NO, ("accuracy",)),
        GlueTask("RTE", ("sentence1", "sentence2"), "label", _YES_NO, ("accuracy",)),
        GlueTask("WNLI", ("sentence1", "sentence2"), "label", ("0", "1"), ("accuracy",)),
    )
}


def glue_task(name: Optional[str]) -> GlueTask:
    """Return a task by its name; case does not matter.

    Raises:
        ValueError: there is no such task.
    """
    found = {task.lower(): task for task in TASKS}.get(str(name).lower())
    if found is None:
        what = "--glue-task is missing" if name is None else f"--glue-task {name}: no task of GLUE"
        raise ValueError(f"{what}; known are {', '.join(TASKS)}")
    return TASKS[found]
