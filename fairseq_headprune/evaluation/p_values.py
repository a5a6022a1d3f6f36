"""p-values of many comparisons: Holm's correction, and their text in tables."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairseq_headprune.evaluation.significance import SystemResult


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


def bootstrap_p_values(result: "SystemResult", resamples: int, comparisons: int) -> list[str]:
    """Return p and p (Holm) as text; 0 is shown as below the smallest p above 0 that these resamples allow."""
    smallest = (2 / resamples, 2 / resamples * comparisons)
    return [
        f"{p:.3f}" if p > 0 else f"<{min(1, least):.2g}"
        for p, least in zip((result.p, result.p_holm), smallest, strict=True)
    ]
