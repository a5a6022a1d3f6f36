"""Comparison of GLUE predictions: the metric, a paired t-test, and McNemar's test."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fairseq_headprune.evaluation.compared import PairedTest, Subject
from fairseq_headprune.evaluation.paired_tests import mcnemar_exact, paired_t_test
from fairseq_headprune.glue.catalogue import GlueTask
from fairseq_headprune.glue.metrics import LabelMetric


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
