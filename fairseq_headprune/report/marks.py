"""Marks of significance: one family of tests, what its marks mean, and what so few resamples cannot show."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Family:
    """The tests of a study, a family for Holm's correction.

    Attributes:
        alpha: the level of significance.
        resamples, seed: of the paired bootstrap.
        count: how many tests the correction is over.
    """

    alpha: float
    resamples: int
    seed: int
    count: int

    @property
    def fine(self) -> bool:
        """Whether so many resamples can show a significant difference after correction at all.

        p = 0 says no more than "below 2 / resamples". Holm's correction multiplies the smallest p by the number of
        tests, and where that one is not significant no other is.
        """
        return 2 * self.count / self.resamples <= self.alpha

    def nominal(self, cell: Mapping[str, Any]) -> bool:
        """Whether p after correction is below the level as it was computed, where p = 0 may be too coarse."""
        return cell["p_holm"] is not None and cell["p_holm"] < self.alpha

    def significant(self, cell: Mapping[str, Any]) -> bool:
        """Whether a difference is significant after correction; while ``p_holm`` is None nothing is."""
        return self.fine and self.nominal(cell)

    def raw(self, cell: Mapping[str, Any]) -> bool:
        """Whether a difference is significant by its own test."""
        return cell["p"] < self.alpha and (cell["p"] > 0 or 2 / self.resamples <= self.alpha)

    def mark(self, cell: Mapping[str, Any]) -> str:
        """Return ``holm`` for significant after correction, ``raw`` for significant only before it, else nothing."""
        return "holm" if self.significant(cell) else "raw" if self.raw(cell) else ""

    def legend(self, base: str = "unpruned") -> str:
        """Explain the marks of tests against ``base``; ``{holm}`` and ``{raw}`` stand for the marks."""
        how = f"paired bootstrap, {self.resamples} resamples, seed {self.seed}"
        differs = f"differs from {base} at p < {self.alpha:g}"
        if not self.fine:
            return f"{{raw}} {differs} before Holm's correction ({how}); {self.limit}"
        return f"{{holm}} {differs} after Holm's correction, {{raw}} before it only ({how})"

    @property
    def limit(self) -> str:
        """Say that nothing can be a finding and how many resamples would do; empty where they are enough."""
        if self.fine:
            return ""
        return (
            f"no difference can be a finding after it: {self.resamples} resamples show no p below "
            f"{2 / self.resamples:.2g}, and for {self.count} test{'' if self.count == 1 else 's'} it takes "
            f"{math.ceil(2 * self.count / self.alpha)} or more (--resamples)"
        )

    @property
    def too_few(self) -> str:
        """Say that the resamples are too few, for a sentence about a nominal finding; empty where they are enough."""
        return "" if self.fine else f"; {self.resamples} resamples are too few to call that significant"


#: How the two marks of significance are named in each form of output.
_NAMES = dict.fromkeys(("text", "markdown", "csv"), ("**", "*")) | {
    "latex": ("bold and underlined:", "underlined only:")
}


def marks_named(text: str, form: str) -> str:
    """Return a legend with the marks named as they are shown in ``form``."""
    holm, raw = _NAMES[form]
    return text.replace("{holm}", holm).replace("{raw}", raw)
