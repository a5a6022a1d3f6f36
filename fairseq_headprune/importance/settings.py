"""The settings of importance estimation; importing this module does not import torch."""

from dataclasses import asdict, dataclass
from typing import Any

from fairseq_headprune.parts import FFN_PARTS

#: scores: component -> one list per layer -> one number per part
Values = dict[str, list[list[float]]]

ESTIMATORS = ("gradient", "fisher", "confidence", "weight-norm", "random")

#: how derivatives are averaged
REDUCTIONS = ("sentence", "token", "batch", "signed")

#: the loss of a sentence
LOSSES = ("sum", "mean", "label-smoothed")

#: how scores are normalised; the first is the default
METHODS = ("none", "layer", "layer-rms", "layer-frozen", "minmax")

#: the importance of Michel et al. 2019, which Prasanna et al. 2020 search with
MICHEL = "michel-2019"
#: --preset -> the settings of a paper
PRESETS: dict[str, dict[str, Any]] = {
    MICHEL: {"estimator": "gradient", "reduction": "sentence", "loss": "sum", "normalize": "layer"},
}

#: estimators that read sentences
_WITH_DATA = ("gradient", "fisher", "confidence")


@dataclass(frozen=True)
class ScoreSettings:
    """How importance is estimated.

    Attributes:
        estimator: ``gradient`` (Michel et al. 2019, eq. 2), ``fisher`` (the derivative squared), ``confidence`` (mean
            maximum attention weight, Voita et al. 2019), ``weight-norm``, ``random``.
        reduction, loss, smoothing: see ``importance.gradient``; only gradient and fisher use them.
        normalize: see ``importance.normalize``; the default is that of ``examples/normalizers``, not a paper's.
        subset: the split of the sentences; ``sentences`` how many (0 = all), drawn with ``seed``.
        norm_order: 1 or 2, for weight-norm.
        ffn: None, or ``blocks`` or ``units``: also score these, with the same estimator.
    """

    estimator: str = "gradient"
    reduction: str = "sentence"
    loss: str = "sum"
    smoothing: float = 0.1
    normalize: str = "none"
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
        """Whether the estimator reads sentences at all."""
        return self.estimator in _WITH_DATA

    def relevant(self) -> dict[str, Any]:
        """Return the settings that affect the result."""
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
