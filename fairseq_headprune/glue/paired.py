"""Tests of two systems' predictions for the same examples: the paired t-test and McNemar's."""

import math
from collections.abc import Sequence
from typing import Any, Optional

import numpy as np

from fairseq_headprune.glue.catalogue import GlueTask


def paired_tests(
    task: GlueTask, references: Sequence[str], first: Sequence[str], second: Sequence[str]
) -> dict[str, Any]:
    """Compare predictions example by example; both tests are two-sided.

    Returns:
        ``t_test``: p of the paired t-test on correctness (Michel et al. 2019 name the t-test for BERT and no more), for
        regression on squared errors; ``mcnemar``: p of the exact test of McNemar (1947), the binomial one on the
        examples that just one system gets right, with these counts in ``only_first`` and ``only_second``; None for
        regression. Where the systems do not differ at all, p is 1.
    """
    if task.is_regression:
        target = np.array([float(text) for text in references])
        x, y = ((np.array([float(text) for text in side]) - target) ** 2 for side in (first, second))
        return {"t_test": _t_test(x, y), "mcnemar": None}
    x, y = (np.array([a == b for a, b in zip(side, references, strict=True)]) for side in (first, second))
    only_first, only_second = int((x & ~y).sum()), int((y & ~x).sum())
    counts = {"only_first": only_first, "only_second": only_second}
    return {"t_test": _t_test(x.astype(float), y.astype(float)), "mcnemar": mcnemar(only_first, only_second), **counts}


def mcnemar(only_first: int, only_second: int) -> float:
    """Return p of McNemar's exact test: how likely a fair coin divides so many examples at least so unevenly."""
    from scipy.stats import binomtest

    total = only_first + only_second
    return float(binomtest(only_first, total, 0.5).pvalue) if total else 1.0


def _t_test(x: np.ndarray, y: np.ndarray) -> Optional[float]:
    """p of the paired t-test; 1 where nothing differs, None where it is not defined (all differences are alike)."""
    from scipy.stats import ttest_rel

    differences = y - x
    if not differences.any():
        return 1.0
    if len(differences) < 2 or math.isclose(differences.min(), differences.max()):
        return None
    return float(ttest_rel(x, y).pvalue)
