"""p values: their estimate from resamples, Holm's correction, how many resamples a family needs, and their text."""

import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

Test = TypeVar("Test")

#: Fewest resamples that are drawn unless told otherwise.
LEAST = 1000


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the adjusted p-values in the order given (Holm 1979, step-down).

    The k-th smallest of m (k from 0) is multiplied by m - k, raised to the one before it if smaller, and capped at 1.

    Raises:
        ValueError: a value is not in [0, 1].
    """
    for p in p_values:
        if not 0.0 <= p <= 1.0:
            raise ValueError(f"a p-value must be between 0 and 1, got {p}")
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def corrected(tests: Sequence[Test]) -> list[Test]:
    """Return tests, dataclasses with ``p`` and ``p_holm``, after Holm's correction over those with a p (not None)."""
    given: Sequence[Any] = tests
    adjusted = iter(holm([test.p for test in given if test.p is not None]))
    return [test if test.p is None else replace(test, p_holm=next(adjusted)) for test in given]


def resampled_p(against: int, resamples: int) -> float:
    """Return the two-sided p of a bootstrap, min(1, 2 (b + 1) / (n + 1)) (Davison and Hinkley 1997, eq. 4.11).

    Args:
        against: b, the number of the n resamples in which the difference is 0 or has the other sign.
    """
    return min(1.0, 2 * (against + 1) / (resamples + 1))


def smallest_p(resamples: int) -> float:
    """Return the smallest two-sided p that this many resamples can give, that of b = 0."""
    return resampled_p(0, resamples)


def at_floor(p: float, resamples: int) -> bool:
    """Whether no resample was against a difference: its p is only known to be below a bound."""
    return p <= smallest_p(resamples) * (1 + 1e-9)


def least_resamples(tests: int, alpha: float) -> int:
    """Return the fewest resamples with which Holm's correction over ``tests`` can leave a p below ``alpha``."""
    return math.floor(2 * tests / alpha * (1 + 1e-12))


def enough_resamples(tests: int, alpha: float) -> int:
    """Return the default number of resamples of a family: above ``2 tests / alpha``, in hundreds, at least 1,000."""
    return max(LEAST, 100 * (least_resamples(tests, alpha) // 100 + 1))


def p_text(p: float, resamples: int, p_holm: float | None = None, tests: int = 1) -> str:
    """Return p as text, or ``p_holm`` if given; where no resample is against the difference, as "<" and a bound.

    Args:
        p: before correction.
        tests: number of tests in Holm's correction.
    """
    if at_floor(p, resamples):
        return f"<{min(1, 2 / resamples * (1 if p_holm is None else tests)):.2g}"
    return p_number(p if p_holm is None else p_holm)


def positive(p: float) -> float:
    """Return p of a closed form, or the smallest normal number where it underflowed: a p is never 0."""
    return max(p, sys.float_info.min)


def p_number(p: float) -> str:
    """Return p as text, with three decimals or one digit; "<" and a bound below what a float can hold."""
    return f"{p:.3f}" if p >= 0.0005 else f"{p:.0e}" if p > 1e-300 else "<1e-300"
