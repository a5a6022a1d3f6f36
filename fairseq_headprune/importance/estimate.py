"""Estimate the importance of a loaded model's parts, with full provenance."""

import logging
from collections.abc import Iterable
from functools import cache
from typing import Any

from fairseq_headprune.importance.attention_maps import confidence
from fairseq_headprune.importance.gradient import GateDerivatives, gradient_importance
from fairseq_headprune.importance.losses import ScoredTask
from fairseq_headprune.importance.normalize import Norms, concerns, module_norms, normalize
from fairseq_headprune.importance.part_weights import random_scores, weight_norm
from fairseq_headprune.importance.settings import ScoreSettings, Values
from fairseq_headprune.modules.attach import GatedParts
from fairseq_headprune.parts.scores import Scores

logger = logging.getLogger(__name__)


def estimate(
    model: Any,
    gates: GatedParts,
    batches: Iterable[dict[str, Any]],
    settings: ScoreSettings,
    task: ScoredTask,
    norms: Norms | None = None,
) -> Scores:
    """Score the kept heads of a model, and its feed-forward parts if requested; masked parts get None.

    Warns once if the order of the scores says less than it seems to (see :func:`~.normalize.concerns`).

    Args:
        model: in evaluation mode.
        batches: fairseq samples (not read by weight-norm and random).
        task: provides the loss of its examples, and which tokens attend to which.
        norms: for ``layer-frozen``: ``details["norms"]`` of the scores of the model before it was pruned.

    Raises:
        ValueError: no sentences, or scores that are not finite.
    """
    values, counts = _values(model, gates, batches, settings, task)
    used, mask = settings.relevant(), gates.mask("units" if settings.ffn else None)
    details: dict[str, Any] = {"settings": used, **({"counts": counts} if counts else {})}
    if settings.normalize == "layer-frozen":
        details["norms"] = norms = norms or module_norms(values, mask)
    scores = Scores(
        rows=normalize(values, mask, settings.normalize, norms),
        estimator=settings.estimator,
        reduction=used.get("reduction"),
        normalize=settings.normalize,
        loss=used.get("loss"),
        sentences=(counts or {}).get("sentences", 0),
        details=details,
    )
    for text in concerns(scores):
        _warn_once(text)
    return scores


@cache
def _warn_once(text: str) -> None:
    logger.warning(text)


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
