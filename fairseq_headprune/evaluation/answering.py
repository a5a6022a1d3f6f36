"""The one way in which studies and trainings get a model's answers under masks."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fairseq_headprune.parts import Mask

if TYPE_CHECKING:  # imports numpy, which --help does not need
    from fairseq_headprune.evaluation.evaluator import Evaluator

#: Default of ``--masks-at-once`` by device type; a killed study loses up to that many cells.
MASKS_AT_ONCE = {"cpu": 8, "cuda": 128}


def masks_at_once(session: Any, evaluator: "Evaluator") -> int:
    """Return how many masks are evaluated in one batch: as ``--masks-at-once`` says; 1 where only one can be."""
    asked = getattr(session.args, "masks_at_once", 0) or MASKS_AT_ONCE.get(session.device.type, 1)
    return 1 if evaluator.obstacle else asked


def answers_under(session: Any, evaluator: "Evaluator", masks: Sequence[Mask]) -> list[list[str]]:
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
