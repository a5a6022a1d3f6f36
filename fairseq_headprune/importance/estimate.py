"""Estimate the importance of a loaded model's parts, with full provenance."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from fairseq_headprune.importance.confidence import confidence
from fairseq_headprune.importance.gradient import REDUCTIONS, GateDerivatives, Values, gradient_importance
from fairseq_headprune.importance.losses import LOSSES, ScoredTask
from fairseq_headprune.importance.normalize import METHODS, normalize
from fairseq_headprune.importance.simple import random_scores, weight_norm
from fairseq_headprune.modules.attach import GatedParts
from fairseq_headprune.parts import FFN_PARTS
from fairseq_headprune.parts.scores import Scores

ESTIMATORS = ("gradient", "fisher", "confidence", "weight-norm", "random")

#: estimators that look at sentences
_WITH_DATA = ("gradient", "fisher", "confidence")


@dataclass(frozen=True)
class ScoreSettings:
    """How importance is estimated.

    Attributes:
        estimator: ``gradient`` (Michel et al. 2019, eq. 2), ``fisher`` (the derivative squared), ``confidence`` (mean
            maximum attention weight, Voita et al. 2019), ``weight-norm``, ``random``.
        reduction, loss, smoothing: see ``importance.gradient``; only gradient and fisher use them.
        normalize: see ``importance.normalize``.
        subset: the split the sentences come from; ``sentences`` how many (0 = all), drawn with ``seed``.
        norm_order: 1 or 2, for weight-norm.
        ffn: None, or ``blocks`` or ``units``: score these, too, by the same estimate.
    """

    estimator: str = "gradient"
    reduction: str = "sentence"
    loss: str = "sum"
    smoothing: float = 0.1
    normalize: str = "layer"
    subset: str = "train"
    sentences: int = 2000
    seed: int = 1
    norm_order: int = 2
    ffn: str | None = None

    def __post_init__(self) -> None:
        """Check the choices.

        Raises:
            ValueError: an unknown name or a number out of range.
        """
        choices = {"estimator": ESTIMATORS, "reduction": REDUCTIONS, "loss": LOSSES, "normalize": METHODS}
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise ValueError(f"unknown {name} {getattr(self, name)!r}; known are {', '.join(known)}")
        if self.ffn is not None and self.ffn not in FFN_PARTS:
            raise ValueError(f"unknown feed-forward parts {self.ffn!r}; known are {', '.join(FFN_PARTS)}")
        if self.ffn and (self.estimator == "confidence" or (self.needs_data and self.reduction == "token")):
            raise ValueError(
                "feed-forward parts have no attention weights and no score per token: --ffn needs another --estimator "
                "than confidence, and another --reduction than token"
            )
        if self.sentences < 0:
            raise ValueError(f"cannot draw {self.sentences} sentences; 0 takes all")
        if self.seed < 0:
            raise ValueError(f"a seed of scores (--score-seed) is at least 0, not {self.seed}")
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"label smoothing is at least 0 and below 1, not {self.smoothing}")

    @property
    def needs_data(self) -> bool:
        """Whether the estimator looks at sentences at all."""
        return self.estimator in _WITH_DATA

    def relevant(self) -> dict[str, Any]:
        """Return the settings that have a bearing on the result."""
        values = asdict(self)
        unused = {"norm_order"} if self.estimator != "weight-norm" else set()
        if self.estimator not in ("gradient", "fisher"):
            unused |= {"reduction", "loss"}
        if self.ffn is None:
            unused.add("ffn")
        if self.loss != "label-smoothed" or "loss" in unused:
            unused.add("smoothing")
        if not self.needs_data:
            unused |= {"subset", "sentences"} | ({"seed"} if self.estimator != "random" else set())
        return {name: value for name, value in values.items() if name not in unused}


def estimate(
    model: Any, gates: GatedParts, batches: Iterable[dict[str, Any]], settings: ScoreSettings, task: ScoredTask
) -> Scores:
    """Score the kept heads of a model, and feed-forward parts if asked for; parts that its mask prunes get None.

    Args:
        model: in evaluation mode.
        task: the loss of its examples, and who attends to whom.
        batches: fairseq samples (not read by weight-norm and random).

    Raises:
        ValueError: no sentences, or values that are not finite.
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
