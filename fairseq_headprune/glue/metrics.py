"""GLUE's metrics, in percent, and paired tests of two systems.

Metrics come from additive statistics of examples, so that a bootstrap need not score again.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

import numpy as np

from fairseq_headprune.evaluation.paired_tests import PairedTest, Subject, mcnemar_exact, paired_t_test
from fairseq_headprune.evaluation.statistics import check_lengths
from fairseq_headprune.glue.catalogue import GlueTask, glue_task

#: separator of metrics to be averaged: "accuracy+f1"
AND = "+"


def metric_of(task: GlueTask, asked: Optional[str] = None) -> str:
    """Return the metric by which a task's models are chosen: GLUE's, or ``asked``.

    Raises:
        ValueError: an unknown metric, or one for the other kind of task.
    """
    metric = asked or AND.join(task.metrics)
    known = ("pearson", "spearman") if task.is_regression else ("accuracy", "f1", "matthews")
    for name in metric.split(AND):
        if name not in known:
            raise ValueError(f"--metric {metric}: {task.name} knows {', '.join(known)}, or several joined by {AND}")
        if name == "f1" and len(task.labels) > 2:
            raise ValueError(f"--metric {metric}: F1 is of two classes, {task.name} has {len(task.labels)}")
    return metric


def scores(task: GlueTask, metric: str, found: np.ndarray, target: np.ndarray) -> dict[str, float]:
    """Return GLUE's metrics of a task, those in ``metric``, and the mean of the latter as ``score``, in percent.

    Args:
        found, target: (examples,): class numbers, or scores for regression.

    Raises:
        ValueError: no example.
    """
    if not len(target):
        raise ValueError("there is no example to score")
    sums = _statistics(task, np.asarray(found), np.asarray(target)).sum(axis=0)
    names = dict.fromkeys([*task.metrics, *metric.split(AND)])
    return {name: float(_score(task, name, sums)) for name in names} | {"score": float(_score(task, metric, sums))}


class LabelMetric:
    """A metric bound to the labels of a split.

    Attributes:
        name: of the metric; ``signature`` says how it is computed.
        recipe: what :func:`label_score` makes ``score`` of, as JSON values.
        score: sums of statistics (…, stats) -> scores (…) in percent.
    """

    def __init__(self, task: GlueTask, metric: str, references: Sequence[str]) -> None:
        """Bind the metric.

        Raises:
            ValueError: there are no references, or some are not labels of the task.
        """
        if not references:
            raise ValueError("no references (0 examples): there is nothing to score")
        self.name, self._task = metric, task
        self._target = self._numbers("references", references)
        self.signature = f"{metric} of {task.name}, in percent"
        self.recipe = {"metric": metric, "task": task.name}
        self.score = label_score(self.recipe)

    def extract(self, hypotheses: Sequence[str]) -> np.ndarray:
        """Return the statistics of one system, (examples, stats), float64.

        Raises:
            ValueError: not one prediction per reference, or a label that the task does not have.
        """
        check_lengths(len(hypotheses), len(self._target))
        return _statistics(self._task, self._numbers("predictions", hypotheses), self._target)

    def _numbers(self, what: str, texts: Sequence[str]) -> np.ndarray:
        """Return class numbers, or scores, (examples,)."""
        task, labels = self._task, {label: number for number, label in enumerate(self._task.labels)}
        unknown = {text for text in texts if not (_is_number(text) if task.is_regression else text in labels)}
        if unknown:
            kind = "score" if task.is_regression else "label"
            raise ValueError(f"{what} that are no {kind} of {task.name}: {', '.join(sorted(unknown)[:3])}")
        return np.array([float(text) if task.is_regression else labels[text] for text in texts])


def label_score(recipe: Mapping[str, Any]) -> Callable[[np.ndarray], np.ndarray]:
    """Return the score of a metric of labels by its recipe; KeyError for an unknown task."""
    task = glue_task(recipe["task"])
    return lambda sums: _score(task, recipe["metric"], np.asarray(sums, dtype=np.float64))


def _statistics(task: GlueTask, found: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return additive statistics, (examples, stats).

    Classes: the example's cell of the confusion matrix. Scores: 1, x, y, x², y² and xy, and the same of ranks for
    Spearman's coefficient. Ranks are over all examples: statistics of a resample's own ranks would not be additive.
    """
    if not task.is_regression:
        count = len(task.labels)
        return np.eye(count * count)[target * count + found]
    x, y = found.astype(np.float64), target.astype(np.float64)
    return np.hstack([_moments(x, y), _moments(_ranks(x), _ranks(y))])


def _score(task: GlueTask, metric: str, sums: np.ndarray) -> np.ndarray:
    """Return scores (…) in percent from sums of statistics (…, stats)."""
    if not task.is_regression:
        count = len(task.labels)
        sums = sums.reshape(*sums.shape[:-1], count, count)
    positive = task.labels.index(task.positive or task.labels[-1])
    parts = [_SCORES[name](sums, positive) for name in metric.split(AND)]
    return 100.0 * np.asarray(sum(parts)) / len(parts)


def _is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False


def _moments(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.column_stack([np.ones_like(x), x, y, x * x, y * y, x * y])


def _ranks(values: np.ndarray) -> np.ndarray:
    """Return ranks, ties averaged, divided by their number so that sums of squares stay small."""
    from scipy.stats import rankdata

    return rankdata(values) / len(values)


def _accuracy(matrix: np.ndarray, positive: int) -> np.ndarray:
    return np.trace(matrix, axis1=-2, axis2=-1) / matrix.sum(axis=(-2, -1))


def _f1(matrix: np.ndarray, positive: int) -> np.ndarray:
    both = matrix[..., positive, positive]
    either = matrix[..., positive, :].sum(axis=-1) + matrix[..., :, positive].sum(axis=-1)
    return _share(2 * both, either)


def _matthews(matrix: np.ndarray, positive: int) -> np.ndarray:
    """Gorodkin's coefficient for any number of classes; 0 if predictions or targets are all of one class."""
    right, total = np.trace(matrix, axis1=-2, axis2=-1), matrix.sum(axis=(-2, -1))
    target, found = matrix.sum(axis=-1), matrix.sum(axis=-2)
    spread = (total**2 - (found**2).sum(axis=-1)) * (total**2 - (target**2).sum(axis=-1))
    return _share(right * total - (target * found).sum(axis=-1), np.sqrt(spread))


def _correlation(sums: np.ndarray) -> np.ndarray:
    """Pearson's coefficient from moments (…, 6); 0 if one side is constant."""
    n, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    spreads = np.maximum(n * xx - x * x, 0.0), np.maximum(n * yy - y * y, 0.0)
    # A variance this small is rounding.
    flat = (spreads[0] < 1e-12 * n * xx) | (spreads[1] < 1e-12 * n * yy)
    return np.where(flat, 0.0, _share(n * xy - x * y, np.sqrt(spreads[0] * spreads[1])))


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(whole > 0, part / whole, 0.0)


_SCORES: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "accuracy": _accuracy,
    "f1": _f1,
    "matthews": _matthews,
    "pearson": lambda sums, positive: _correlation(sums[..., :6]),
    "spearman": lambda sums, positive: _correlation(sums[..., 6:]),
}


def label_subject(
    task: GlueTask, metric: str, labels: Sequence[Any], systems: Mapping[str, Sequence[Any]], **more: Any
) -> Subject:
    """Describe the comparison of predictions; classes are tested by correctness, scores by their squared errors.

    Args:
        metric: the metric of the bootstrap, as accepted by :func:`~.metrics.metric_of`.
        labels: label names, or scores, (examples,).
        systems: name -> predictions of the same kind, (examples,).
        more: further fields of the subject.

    Raises:
        ValueError: the numbers of predictions and labels differ, fewer than two examples, or a label that the task does
            not have.
    """
    for name, predictions in systems.items():
        if len(predictions) != len(labels):
            raise ValueError(f"{name}: {len(predictions)} predictions for {len(labels)} labels")
    if len(labels) < 2:
        raise ValueError(f"paired tests need at least 2 examples, got {len(labels)}: p is not defined")

    def values(predictions: Sequence[Any]) -> np.ndarray:
        if task.is_regression:
            return (np.asarray(predictions, dtype=np.float64) - np.asarray(labels, dtype=np.float64)) ** 2
        return np.array([found == label for found, label in zip(predictions, labels, strict=True)], dtype=np.float64)

    tests = [PairedTest("t_test", "t-test", paired_t_test)]
    if not task.is_regression:
        tests.append(PairedTest("mcnemar", "McNemar", mcnemar_exact))
    return Subject(LabelMetric(task, metric, labels), systems, tests, values, **more)


def values_tested(task: GlueTask) -> str:
    """Name the value per example that the t-test compares."""
    return "squared error" if task.is_regression else "correctness"


def signature(task: GlueTask, split: str | None, metric: str) -> str:
    """Describe how the metric of a comparison is computed."""
    ranks = "; Spearman's ranks are those of the whole split" if "spearman" in metric else ""
    positive = f"; F1 of the label {task.positive or task.labels[-1]}" if "f1" in metric else ""
    return f"{metric} of {task.name}{f' {split}' if split else ''}, in percent{ranks}{positive}"
