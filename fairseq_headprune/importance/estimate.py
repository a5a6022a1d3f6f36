"""Estimate the importance of a loaded model's parts, with full provenance."""

from collections.abc import Iterable
from typing import Any

from fairseq_headprune.importance.confidence import confidence
from fairseq_headprune.importance.gradient import GateDerivatives, gradient_importance
from fairseq_headprune.importance.losses import ScoredTask
from fairseq_headprune.importance.normalize import normalize
from fairseq_headprune.importance.part_weights import Values, random_scores, weight_norm
from fairseq_headprune.importance.settings import ScoreSettings
from fairseq_headprune.modules.attach import GatedParts
from fairseq_headprune.parts.scores import Scores


def estimate(
    model: Any, gates: GatedParts, batches: Iterable[dict[str, Any]], settings: ScoreSettings, task: ScoredTask
) -> Scores:
    """Score the kept heads of a model, and its feed-forward parts if requested; masked parts get None.

    Args:
        model: in evaluation mode.
        batches: fairseq samples (not read by weight-norm and random).
        task: provides the loss of its examples, and which tokens attend to which.

    Raises:
        ValueError: no sentences, or scores that are not finite.
    """
    values, counts = _values(model, gates, batches, settings, task)
    used = settings.relevant()
    return Scores(
        rows=normalize(values, gates.mask("units" if settings.ffn else None), settings.normalize),
        estimator=settings.estimator,
        reduction=used.get("reduction"),
        normalize=settings.normalize,
        loss=used.get("loss"),
        sentences=(counts or {}).get("sentences", 0),
        details={"settings": used, **({"counts": counts} if counts else {})},
    )


def _values(
    model: Any, gates: GatedParts, batches: Iterable[dict[str, Any]], settings: ScoreSettings, task: ScoredTask
) -> tuple[Values, dict[str, int] | None]:
    if settings.estimator == "weight-norm":
        return gates.in_original_numbers(weight_norm(gates, settings.norm_order, settings.ffn), settings.ffn), None
    if settings.estimator == "random":
        return random_scores(gates, settings.seed, settings.ffn), None
    if settings.estimator == "confidence":
        values, counts = confidence(model, batches, task)
    else:
        losses = task.losses(settings.loss, settings.smoothing)
        derivatives = GateDerivatives(model, losses, settings.ffn)
        power = 2 if settings.estimator == "fisher" else 1
        values, counts = gradient_importance(derivatives, batches, settings.reduction, power)
    return gates.in_original_numbers(values, settings.ffn), counts
