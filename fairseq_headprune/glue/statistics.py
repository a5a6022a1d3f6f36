"""Statistics of single predictions that add up to GLUE's metrics, so that a bootstrap need not score again."""

from collections.abc import Callable, Sequence

import numpy as np

from fairseq_headprune.evaluation.statistics import check_lengths
from fairseq_headprune.glue.catalogue import GlueTask
from fairseq_headprune.glue.metrics import AND


class LabelMetric:
    """A metric bound to the labels of a split.

    Classes: an example's statistics are its cell of the confusion matrix. Scores: 1, x, y, x², y² and xy, and the same
    of ranks for Spearman's coefficient, taken over the whole split: a resample's own ranks would not add up.

    Attributes:
        name: of the metric; ``signature`` says how it is computed.
    """

    def __init__(self, task: GlueTask, metric: str, references: Sequence[str]) -> None:
        """Bind the metric.

        Raises:
            ValueError: there are no references, or some are no labels of the task.
        """
        if not references:
            raise ValueError("no references (0 examples): there is nothing to score")
        _check(task, "references", references)
        self.name, self._task, self._references = metric, task, list(references)
        self.signature = f"{metric} of {task.name}, in percent"

    def extract(self, hypotheses: Sequence[str]) -> np.ndarray:
        """Return the statistics of one system, (examples, stats), float64.

        Raises:
            ValueError: not one prediction a reference, or a label that the task does not have.
        """
        check_lengths(len(hypotheses), len(self._references))
        _check(self._task, "predictions", hypotheses)
        if self._task.is_regression:
            x, y = (np.array([float(text) for text in texts]) for texts in (hypotheses, self._references))
            return np.hstack([_moments(x, y), _moments(_ranks(x), _ranks(y))])
        numbers = {label: number for number, label in enumerate(self._task.labels)}
        count = len(numbers)
        cells = [numbers[y] * count + numbers[x] for x, y in zip(hypotheses, self._references, strict=True)]
        return np.eye(count * count)[cells]

    def score(self, sums: np.ndarray) -> np.ndarray:
        """Return scores (…) in percent from sums of statistics (…, stats)."""
        sums = np.asarray(sums, dtype=np.float64)
        if not self._task.is_regression:
            count = len(self._task.labels)
            sums = sums.reshape(*sums.shape[:-1], count, count)
        positive = self._task.labels.index(self._task.positive or self._task.labels[-1])
        parts = [_SCORES[name](sums, positive) for name in self.name.split(AND)]
        return 100.0 * sum(parts) / len(parts)


def _check(task: GlueTask, what: str, texts: Sequence[str]) -> None:
    unknown = {text for text in texts if not (_is_number(text) if task.is_regression else text in task.labels)}
    if unknown:
        kind = "score" if task.is_regression else "label"
        raise ValueError(f"{what} that are no {kind} of {task.name}: {', '.join(sorted(unknown)[:3])}")


def _is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False


def _moments(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.column_stack([np.ones_like(x), x, y, x * x, y * y, x * y])


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks, ties averaged, as a share of their number, so that sums of squares stay small."""
    from scipy.stats import rankdata

    return rankdata(values) / len(values)


def _accuracy(matrix: np.ndarray, positive: int) -> np.ndarray:
    return np.trace(matrix, axis1=-2, axis2=-1) / matrix.sum(axis=(-2, -1))


def _f1(matrix: np.ndarray, positive: int) -> np.ndarray:
    both = matrix[..., positive, positive]
    either = matrix[..., positive, :].sum(axis=-1) + matrix[..., :, positive].sum(axis=-1)
    return _share(2 * both, either)


def _matthews(matrix: np.ndarray, positive: int) -> np.ndarray:
    """Gorodkin's coefficient for any number of classes: 0 where predictions or targets are of one class."""
    right, total = np.trace(matrix, axis1=-2, axis2=-1), matrix.sum(axis=(-2, -1))
    target, found = matrix.sum(axis=-1), matrix.sum(axis=-2)
    spread = (total**2 - (found**2).sum(axis=-1)) * (total**2 - (target**2).sum(axis=-1))
    return _share(right * total - (target * found).sum(axis=-1), np.sqrt(spread))


def _correlation(sums: np.ndarray) -> np.ndarray:
    """Pearson's coefficient from moments (…, 6); 0 where one side does not vary."""
    n, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    spreads = np.maximum(n * xx - x * x, 0.0), np.maximum(n * yy - y * y, 0.0)
    # What is left of rounding is no variation.
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
