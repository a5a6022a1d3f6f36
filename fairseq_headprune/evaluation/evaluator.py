"""What studies and trainings need from a task: answers to a split, under masks, and a metric to compare them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from fairseq_headprune.parts import Mask

if TYPE_CHECKING:  # --help does not need it
    import numpy as np

#: metrics that stand beside the tested one -> their names in tables
BESIDE = {"chrf": "chrF", "comet": "COMET"}

#: Default of ``--masks-at-once`` by device type; a killed study loses up to that many cells.
MASKS_AT_ONCE = {"cpu": 8, "cuda": 128}


class AnswerMetric(Protocol):
    """A corpus metric of answers; see :class:`~fairseq_headprune.evaluation.statistics.Metric`.

    One without ``recipe`` cannot be recorded in result files.
    """

    name: str
    signature: str
    recipe: dict[str, str]

    def extract(self, hypotheses: Sequence[str]) -> "np.ndarray":
        """Return statistics (examples, stats) that add up to those of the corpus."""

    def score(self, sums: "np.ndarray") -> "np.ndarray":
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


def masks_at_once(session: Any, evaluator: Evaluator) -> int:
    """Return how many masks are evaluated in one batch: as ``--masks-at-once`` says; 1 where only one can be."""
    asked = getattr(session.args, "masks_at_once", 0) or MASKS_AT_ONCE.get(session.device.type, 1)
    return 1 if evaluator.obstacle else asked


def answers_under(session: Any, evaluator: Evaluator, masks: Sequence[Mask]) -> list[list[str]]:
    """Return the answers under each mask, in corpus order; the model's own mask does not count.

    All masks share batches, also if there is only one. With ``--masks-at-once 1``, and where the evaluator has an
    obstacle, they are evaluated one by one instead: translations are then those of fairseq's generator.

    Raises:
        ValueError: a mask does not fit the model.
        FloatingPointError: the model's output is not finite.
    """
    if masks_at_once(session, evaluator) > 1:
        return evaluator.answers_of(masks)
    found = []
    for mask in masks:
        with session.gates.masked(mask):
            found.append(evaluator.answers())
    return found
