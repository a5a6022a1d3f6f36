"""What mask studies need from a task: answers to a split, one text per example, and a metric to compare them."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from fairseq_headprune.parts import Mask

#: metrics that stand beside the tested one -> their names in tables
BESIDE = {"chrf": "chrF", "comet": "COMET"}


class AnswerMetric(Protocol):
    """A corpus metric of answers; see :class:`~fairseq_headprune.evaluation.statistics.Metric`.

    One without ``recipe`` cannot be recorded in result files.
    """

    name: str
    signature: str
    recipe: dict[str, str]

    def extract(self, hypotheses: Sequence[str]) -> np.ndarray:
        """Return statistics (examples, stats) that add up to those of the corpus."""

    def score(self, sums: np.ndarray) -> np.ndarray:
        """Return scores (…) from sums of statistics (…, stats)."""


class Evaluator(Protocol):
    """Produces the answers to one split (translations, or label names), any number of times.

    Attributes:
        obstacle: why a batch cannot be evaluated under many masks at once; None if it can.
        references, sources: correct answers and inputs, one text per example, in corpus order.
    """

    obstacle: str | None

    @property
    def references(self) -> Sequence[str]: ...

    @property
    def sources(self) -> Sequence[str]: ...

    def answers(self) -> list[str]:
        """Return the answers under the current mask, in corpus order."""

    def answers_of(self, masks: Sequence[Mask]) -> list[list[str]]:
        """Return the answers under each mask.

        Raises:
            ValueError: a batch cannot be evaluated under many masks at once, or a mask does not fit.
        """

    def metric(self, comparison: Any) -> AnswerMetric:
        """Return the metric of a comparison's settings, bound to the references."""

    def beside(self) -> Mapping[str, AnswerMetric]:
        """Return further metrics by name, bound to the references; they are reported but not tested."""
