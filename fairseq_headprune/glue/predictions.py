"""Files of an evaluation: predictions for labelled examples, and those that GLUE's server expects."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

import numpy as np

from fairseq_headprune.errors import errors_of
from fairseq_headprune.files import PathLike, check_format, check_output, read_json, read_lines, write_json, write_text
from fairseq_headprune.glue.catalogue import TASKS, GlueTask
from fairseq_headprune.glue.metrics import metric_of

FORMAT = "headprune.predictions/1"


@dataclass(frozen=True)
class Predictions:
    """What one system predicts for one labelled split.

    Attributes:
        split: the file stem, such as ``dev`` or ``dev_mismatched``; None if unknown.
        metric: the metric by which the model was chosen, such as ``accuracy+f1``.
        ids: unique ids of the examples: line numbers in the file, from 0, without the header.
        labels, predictions: label names, or scores, (examples,).
        about: where the predictions come from; plain JSON values.

    Raises:
        ValueError: unequal lengths, no example, a repeated id, an unknown label, a score that is not finite, or an
            unknown metric.
    """

    task: GlueTask
    split: Optional[str]
    metric: str
    ids: Sequence[Any]
    labels: Sequence[Any]
    predictions: Sequence[Any]
    about: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        counts = {"ids": len(self.ids), "labels": len(self.labels), "predictions": len(self.predictions)}
        if len(set(counts.values())) > 1:
            raise ValueError(", ".join(f"{count} {name}" for name, count in counts.items()) + ": one of each is needed")
        if not self.ids:
            raise ValueError("there is no example")
        if len(set(map(str, self.ids))) < len(self.ids):
            raise ValueError("an id is there twice")
        metric_of(self.task, self.metric)
        for name, values in (("label", self.labels), ("prediction", self.predictions)):
            for number, value in zip(self.ids, values, strict=True):
                self._check(f"the {name} of example {number}", value)

    def _check(self, what: str, value: Any) -> None:
        if self.task.is_regression:
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                raise ValueError(f"{what} is {value!r}; {self.task.name} needs a finite number")
        elif not isinstance(value, str) or value not in self.task.labels:
            known = ", ".join(map(json.dumps, self.task.labels))
            raise ValueError(f"{what} is {json.dumps(value)}; the labels of {self.task.name} are {known}")

    def save(self, path: PathLike) -> None:
        """Write the file, atomically."""
        columns = {"ids": list(self.ids), "labels": list(self.labels), "predictions": list(self.predictions)}
        head = {"format": FORMAT, "task": self.task.name, "split": self.split, "metric": self.metric}
        write_json(path, {**head, **self.about, **columns})


def load_predictions(path: PathLike) -> Predictions:
    """Read a file of predictions.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is damaged or not a file of predictions; the message names it.
    """
    value = read_json(path)
    check_format(value, FORMAT, "predictions", "a file of predictions", str(path))
    needed = {"task": str, "split": str, "metric": str, "ids": list, "labels": list, "predictions": list}
    for name, kind in needed.items():
        if not isinstance(value.get(name), kind):
            raise ValueError(f'{path}: "{name}" is missing or not a {"text" if kind is str else "list"}')
    if value["task"] not in TASKS:
        raise ValueError(f"{path}: no task {value['task']!r} in GLUE; known are {', '.join(TASKS)}")
    about = {name: entry for name, entry in value.items() if name not in ("format", *needed)}
    with errors_of(path):
        return Predictions(TASKS[value["task"]], **{name: value[name] for name in list(needed)[1:]}, about=about)


def read_label_lines(labels: PathLike, path: PathLike, task: GlueTask) -> Predictions:
    """Read labels and predictions from two text files with one label, or score, per line; the metric is GLUE's own.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the numbers of lines differ, or a line is not a label or score; the message names the file.
    """
    gold, found = ([_value(task, line) for line in read_lines(name)] for name in (labels, path))
    if len(gold) != len(found):
        raise ValueError(f"{path}: {len(found)} predictions for {len(gold)} labels")
    with errors_of(f"{path} (labels: {labels})"):
        return Predictions(task, None, metric_of(task), range(len(gold)), gold, found)


def _value(task: GlueTask, text: str) -> Any:
    """Convert a score to a number; return other text unchanged, so that the check can report its line."""
    try:
        return float(text) if task.is_regression and math.isfinite(float(text)) else text
    except ValueError:
        return text


def is_predictions(path: PathLike) -> bool:
    """Whether a file holds predictions, of any version and even if damaged; pipes are not read."""
    if not Path(path).is_file():
        return False
    data = Path(path).read_bytes()
    return data.lstrip().startswith(b"{") and FORMAT.split("/")[0].encode() + b"/" in data


def check_same_examples(systems: Mapping[str, Predictions]) -> None:
    """Check that all systems have the same task, examples and labels as the first one.

    Raises:
        ValueError: they differ; the message names two systems and the difference.
    """
    first, base = next(iter(systems.items()))
    for name, system in systems.items():
        for what, ours, theirs in (("task", base.task.name, system.task.name), ("split", base.split, system.split)):
            if ours != theirs:
                raise ValueError(f"{name} is of the {what} {theirs}, {first} of {ours}: they cannot be compared")
        if len(system.ids) != len(base.ids):
            raise ValueError(f"{name} has {len(system.ids)} examples, {first} has {len(base.ids)}: not the same ones")
        for what, mine, other in (("id", base.ids, system.ids), ("label", base.labels, system.labels)):
            place = next((i for i, pair in enumerate(zip(mine, other, strict=True)) if pair[0] != pair[1]), None)
            if place is not None:
                raise ValueError(
                    f"the {what} of example {place + 1} is {other[place]} in {name} and {mine[place]} in {first}: "
                    "predictions must be of the same examples in the same order"
                )


def plain_values(task: GlueTask, values: np.ndarray) -> list[Any]:
    """Return class numbers as label names, and float32 scores as their shortest decimal numbers."""
    if task.is_regression:
        return [float(str(value)) for value in values]
    return [task.labels[int(number)] for number in values]


def submission_paths(task: GlueTask, path: PathLike) -> dict[str, Path]:
    """Return the file of each test set: ``path``, or GLUE's file names if it is a folder.

    Raises:
        ValueError: a single file for a task with two test sets.
        FileNotFoundError: a file in a folder that is not there.
    """
    names = {stem: task.submission.get(stem, f"{task.name}.tsv") for stem in task.test}
    return output_paths("--submission", path, names, f"{task.name} has {len(names)} test sets")


def write_submission(path: PathLike, task: GlueTask, numbers: Sequence[int], predicted: np.ndarray) -> None:
    """Write predictions, one per line, in the order of the test file; scores are clipped to GLUE's range, 0 to 5.

    Args:
        numbers: line numbers of the examples in the file, from 0.
        predicted: class numbers, or scores, (examples,).
    """
    if task.is_regression:
        answers = [f"{value:.3f}" for value in np.clip(predicted, 0.0, 5.0)]
    else:
        answers = [task.labels[int(number)] for number in predicted]
    lines = [f"{number}\t{answer}\n" for number, answer in zip(numbers, answers, strict=True)]
    write_text(path, "index\tprediction\n" + "".join(lines))


def output_paths(flag: str, path: PathLike, names: Mapping[str, str], what: str) -> dict[str, Path]:
    """Return the file of each split: ``path``, or the split's own file name if it is a folder.

    Args:
        flag: the flag of the path, for the message.
        names: split -> file name in a folder.
        what: start of the message if there are several splits, such as "MNLI has 2 test sets".

    Raises:
        ValueError: a single file for several splits, or a path that is not a file.
        FileNotFoundError: a file in a folder that is not there.
    """
    path = Path(path)
    if path.is_dir():
        return {split: path / name for split, name in names.items()}
    if len(names) > 1:
        raise ValueError(f"{flag} {path}: {what}; name an existing folder")
    check_output(path)
    return {split: path for split in names}
