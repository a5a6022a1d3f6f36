"""Correlation coefficients with confidence intervals, such as of the effects of the same heads on two test sets."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairseq_headprune.evaluation.p_values import positive

#: With fewer pairs there is no interval: the variance of Fisher's z is 1 / (n - 3).
MINIMUM = 4


@dataclass(frozen=True)
class Correlation:
    """One coefficient.

    Attributes:
        value: from -1 to 1.
        ci: 95% confidence interval.
        p: two-sided; the null hypothesis is no correlation.
        method: how the interval and p were computed.
    """

    value: float
    ci: tuple[float, float]
    p: float
    method: str


def correlations(x: Sequence[float], y: Sequence[float]) -> dict[str, Correlation]:
    """Return Pearson's and Spearman's correlation of paired values.

    Intervals are Fisher's: tanh(artanh r -+ z s) with s = 1 / sqrt(n - 3) for Pearson, and for Spearman
    s = sqrt((1 + r^2 / 2) / (n - 3)) (Bonett and Wright 2000). p is scipy's, from the t distribution with n - 2
    degrees of freedom.

    Raises:
        ValueError: sides of different length, fewer than 4 pairs, a number that is not finite, or a side whose values
            are all equal.
    """
    from scipy import stats

    _check(x, y)
    pearson, spearman = stats.pearsonr(x, y), stats.spearmanr(x, y)
    errors = {"pearson": 1 / math.sqrt(len(x) - 3)}
    errors["spearman"] = errors["pearson"] * math.sqrt(1 + float(spearman.statistic) ** 2 / 2)
    methods = {"pearson": "Fisher z", "spearman": "Fisher z with Bonett and Wright's standard error"}
    normal = float(stats.norm.ppf(0.975))
    return {
        name: Correlation(
            value=float(found.statistic),
            ci=_fisher(float(found.statistic), normal * errors[name]),
            p=positive(float(found.pvalue)),
            method=f"95% interval: {methods[name]}; p: t distribution",
        )
        for name, found in (("pearson", pearson), ("spearman", spearman))
    }


def _fisher(r: float, reach: float) -> tuple[float, float]:
    # At exactly +-1 artanh is infinite and the interval is a single point.
    if abs(r) >= 1:
        return r, r
    z = math.atanh(r)
    return math.tanh(z - reach), math.tanh(z + reach)


def _check(x: Sequence[float], y: Sequence[float]) -> None:
    if len(x) != len(y):
        raise ValueError(f"a correlation is of pairs; there are {len(x)} values on one side and {len(y)} on the other")
    if len(x) < MINIMUM:
        raise ValueError(f"a correlation with an interval needs at least {MINIMUM} pairs, got {len(x)}")
    for name, values in (("first", x), ("second", y)):
        if not np.isfinite(values).all():
            raise ValueError(f"the {name} side holds a number that is not finite")
        if np.ptp(values) == 0:
            raise ValueError(
                f"all {len(values)} values of the {name} side are {values[0]:g}: without variance there is no "
                "correlation"
            )
