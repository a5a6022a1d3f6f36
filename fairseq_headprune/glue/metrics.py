"""GLUE's metrics, in percent, by scikit-learn and SciPy."""

import warnings
from collections.abc import Callable
from typing import Optional

import numpy as np

from fairseq_headprune.glue.catalogue import GlueTask

#: joins metrics whose mean is meant: "accuracy+f1"
AND = "+"


def _accuracy(found: np.ndarray, target: np.ndarray, positive: int) -> float:
    return float((found == target).mean())


def _f1(found: np.ndarray, target: np.ndarray, positive: int) -> float:
    from sklearn.metrics import f1_score

    return float(f1_score(target == positive, found == positive, zero_division=0.0))


def _matthews(found: np.ndarray, target: np.ndarray, positive: int) -> float:
    from sklearn.metrics import matthews_corrcoef

    return float(matthews_corrcoef(target, found))


def _pearson(found: np.ndarray, target: np.ndarray, positive: int) -> float:
    from scipy.stats import pearsonr

    return _defined(lambda: pearsonr(found, target)[0], len(found))


def _spearman(found: np.ndarray, target: np.ndarray, positive: int) -> float:
    from scipy.stats import spearmanr

    return _defined(lambda: spearmanr(found, target)[0], len(found))


def _defined(compute: Callable[[], float], count: int) -> float:
    """A correlation; 0 where it is not defined: predictions (or targets) that are all the same, or a single one."""
    if count < 2:
        return 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = float(compute())
    return value if np.isfinite(value) else 0.0


METRICS = {"accuracy": _accuracy, "f1": _f1, "matthews": _matthews, "pearson": _pearson, "spearman": _spearman}


def metric_of(task: GlueTask, asked: Optional[str] = None) -> str:
    """Return the metric by which a task's models are chosen: GLUE's, or the one asked for.

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
    """Return GLUE's metrics of a task, those of ``metric``, and as ``score`` the mean of the latter, in percent.

    Args:
        found, target: (examples,): class numbers, or scores for regression.

    Raises:
        ValueError: no example.
    """
    if not len(target):
        raise ValueError("there is no example to score")
    chosen = metric.split(AND)
    names = dict.fromkeys([*task.metrics, *chosen])
    positive = task.labels.index(task.positive or task.labels[-1])
    values = {name: 100 * METRICS[name](found, target, positive) for name in names}
    return {**values, "score": sum(values[name] for name in chosen) / len(chosen)}
