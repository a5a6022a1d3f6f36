"""Systems against a baseline on the same GLUE examples, by three tests: paired t, McNemar's, and the bootstrap."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

import numpy as np

from fairseq_headprune.evaluation.paired_tests import McNemarTest, TTest, corrected, mcnemar_exact, paired_t_test
from fairseq_headprune.evaluation.significance import SystemResult, bootstrap_statistics
from fairseq_headprune.glue.catalogue import GlueTask
from fairseq_headprune.glue.statistics import LabelMetric


@dataclass(frozen=True)
class Compared:
    """One system against the baseline, the first one, whose own tests are None.

    Attributes:
        bootstrap: of the task's metric.
        t_test: of correctness (1 or 0 an example), or of squared errors for regression.
        mcnemar: of correctness; None for regression.
    """

    bootstrap: SystemResult
    t_test: Optional[TTest]
    mcnemar: Optional[McNemarTest]


def values_tested(task: GlueTask) -> str:
    """Name the value of an example that the t-test takes."""
    return "squared error" if task.is_regression else "correctness"


def compare(
    task: GlueTask,
    metric: str,
    labels: Sequence[Any],
    systems: Mapping[str, Sequence[Any]],
    resamples: int = 1000,
    seed: int = 12345,
) -> list[Compared]:
    """Test every system against the first one, with Holm's correction over the systems for each of the tests.

    Args:
        metric: what the bootstrap compares, one that :func:`~.metrics.metric_of` takes.
        labels: names of labels, or scores, (examples,).
        systems: name -> predictions of the same kind, (examples,).

    Raises:
        ValueError: another number of predictions than labels (checked for all systems first), fewer than two examples,
            a label that the task does not have, or a setting out of range.
    """
    for name, predictions in systems.items():
        if len(predictions) != len(labels):
            raise ValueError(f"{name}: {len(predictions)} predictions for {len(labels)} labels")
    if len(labels) < 2:
        raise ValueError(f"paired tests need at least 2 examples, got {len(labels)}: p is not defined")
    bound = LabelMetric(task, metric, labels)
    statistics = {name: bound.extract(predictions) for name, predictions in systems.items()}
    bootstrap = bootstrap_statistics(bound.score, statistics, resamples, seed)
    baseline, *others = (_values(task, labels, predictions) for predictions in systems.values())
    t_tests: list[Any] = [None, *corrected([paired_t_test(baseline, values) for values in others])]
    mcnemar: list[Any] = [None] * len(systems)
    if not task.is_regression:
        mcnemar[1:] = corrected([mcnemar_exact(baseline, values) for values in others])
    return [Compared(*tests) for tests in zip(bootstrap, t_tests, mcnemar, strict=True)]


def _values(task: GlueTask, labels: Sequence[Any], predictions: Sequence[Any]) -> np.ndarray:
    if task.is_regression:
        return (np.asarray(predictions, dtype=np.float64) - np.asarray(labels, dtype=np.float64)) ** 2
    return np.array([found == label for found, label in zip(predictions, labels, strict=True)], dtype=np.float64)
