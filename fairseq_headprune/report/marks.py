"""Significance marks: a family of tests, the meaning of its marks, and whether the resamples are enough."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairseq_headprune.evaluation.p_values import LEAST, at_floor, least_resamples, p_number, smallest_p
from fairseq_headprune.report.tables import mark_of

#: What the paired bootstrap of one training's sentences speaks of.
SENTENCES = "paired bootstrap of sentences: this model against that model, not one method against another"


@dataclass(frozen=True)
class Family:
    """The tests of a study over the sentences of single models, as one family for Holm's correction.

    Attributes:
        alpha: significance level.
        resamples, seed: settings of the paired bootstrap.
        count: number of tests in the correction.
    """

    alpha: float
    resamples: int
    seed: int
    count: int

    @property
    def fine(self) -> bool:
        """Whether there are enough resamples for any difference to be significant after correction.

        Holm's correction multiplies the smallest p by the number of tests; if that one is not significant, no other is.
        """
        return self.count * smallest_p(self.resamples) < self.alpha

    def nominal(self, cell: Mapping[str, Any]) -> bool:
        """Whether a difference is significant, or may be: no resample is against it, and there are too few to tell."""
        if self.fine or cell["p_holm"] is None:
            return self.significant(cell)
        return at_floor(cell["p"], self.resamples)

    def significant(self, cell: Mapping[str, Any]) -> bool:
        """Whether a difference is significant after correction; never while ``p_holm`` is None."""
        return self.fine and cell["p_holm"] is not None and cell["p_holm"] < self.alpha

    def raw(self, cell: Mapping[str, Any]) -> bool:
        """Whether a difference is significant before correction."""
        return max(cell["p"], smallest_p(self.resamples)) < self.alpha

    def mark(self, cell: Mapping[str, Any]) -> str:
        """Return ``holm`` (significant after correction), ``raw`` (only before it) or an empty string."""
        return "holm" if self.significant(cell) else "raw" if self.raw(cell) else ""

    def legend(self, base: str = "unpruned") -> str:
        """Return the legend of the marks of tests against ``base``; ``{holm}`` and ``{raw}`` are placeholders."""
        how = f"{SENTENCES}, {self.resamples} resamples, seed {self.seed}"
        differs = f"differs from {base} at p < {self.alpha:g}"
        if not self.fine:
            return f"{{raw}} {differs} before Holm's correction ({how}); {self.limit}"
        return f"{{holm}} {differs} after Holm's correction, {{raw}} before it only ({how})"

    @property
    def limit(self) -> str:
        """A warning that nothing can be significant, with the resamples needed; empty if there are enough."""
        if self.fine:
            return ""
        return (
            f"no difference can be a finding after it: {self.resamples} resamples show no p below "
            f"{2 / self.resamples:.2g}, and for {self.count} test{'' if self.count == 1 else 's'} it takes "
            f"{least_resamples(self.count, self.alpha)} or more (--resamples)"
        )

    @property
    def too_few(self) -> str:
        """A phrase for a nominal finding, saying that the resamples are too few; empty if there are enough."""
        return "" if self.fine else f"; {self.resamples} resamples are too few to call that significant"


#: Differences within this many points of the score count as none, unless a margin is given.
MARGIN = 0.3


@dataclass(frozen=True)
class TrainingTests:
    """Tests of a study over trainings, as one family for Holm's correction.

    Attributes:
        alpha: significance level.
        count: number of tests in the correction.
        margin: of equivalence, in points of the score; None: it is not tested.
        test: the test's name.
    """

    alpha: float
    count: int
    margin: float | None = None
    test: str = "paired t-test over the seeds that both have"

    def mark(self, found: Mapping[str, Any]) -> str:
        """Return the mark of a difference with ``p`` and ``p_holm``; none where it is not tested (p is None)."""
        return mark_of(found["p"], found["p_holm"], self.alpha)

    def equivalent(self, found: Mapping[str, Any]) -> bool:
        """Whether a difference is within the margin by two one-sided tests (not corrected)."""
        return found["p_equivalent"] is not None and found["p_equivalent"] < self.alpha

    def legend(self, base: str = "unpruned") -> str:
        """Return the legend of the marks; ``{holm}`` and ``{raw}`` are placeholders."""
        tests = f"{self.count} test{'' if self.count == 1 else 's'}"
        same = f", = equal within ±{self.margin:g} (TOST at {self.alpha:g}, not corrected)" if self.margin else ""
        return (
            f"{{holm}} differs from {base} at p < {self.alpha:g} after Holm's correction over {tests}, {{raw}} before "
            f"it only{same} ({self.test}; fewer than two trainings are not tested)"
        )


def difference_text(mean: float, ci: Sequence[float] | None) -> str:
    """Return a difference with its interval, if it has one."""
    return f"{mean:+.2f}" + (f" [{ci[0]:+.2f}, {ci[1]:+.2f}]" if ci else "")


def p_said(text: str | None) -> str:
    """Return the text of a p value as part of a sentence: "p = 0.012", or "p < 0.002" for a bound."""
    return f"p < {text[1:]}" if text and text.startswith("<") else f"p = {text}"


def small(p: float | None) -> str | None:
    """Return a p value of a closed form as text."""
    return None if p is None else p_number(p)


def resamples_notice(resamples: int, tests: int, alpha: float) -> str:
    """Say why so many resamples are drawn, and what that costs."""
    return (
        f"{resamples:,} resamples, {resamples / LEAST:.1f} times the work of {LEAST:,}: Holm's correction over {tests} "
        f"tests leaves no p below {alpha:g} with fewer than {least_resamples(tests, alpha):,} (--resamples {LEAST} is "
        "quicker and marks no finding)"
    )


#: The two significance marks in each form of output.
_NAMES = dict.fromkeys(("text", "markdown", "csv"), ("**", "*")) | {
    "latex": ("bold and underlined:", "underlined only:")
}


def marks_named(text: str, form: str) -> str:
    """Return a legend with its placeholders replaced by the marks of ``form``."""
    holm, raw = _NAMES[form]
    return text.replace("{holm}", holm).replace("{raw}", raw)
