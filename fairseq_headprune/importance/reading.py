"""How importance reads a batch: the loss of each example, what is counted, and who attends to whom."""

from collections.abc import Collection
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

LOSSES = ("sum", "mean", "label-smoothed")


class Losses(Protocol):
    """A loss of every example of a batch."""

    def __call__(self, logits: Tensor, sample: dict[str, Any]) -> Tensor:
        """Return losses, (batch,), in float32, or in float64 for float64 logits."""

    def counts(self, sample: dict[str, Any]) -> dict[str, int]:
        """Return what a batch adds to the counts: sentences, batches, tokens, and source_tokens."""

    def positions(self, component: str, sample: dict[str, Any]) -> int:
        """Return the number of query positions of a component."""


class Reading(Protocol):
    """What the estimators ask of a task.

    Attributes:
        pad: the index of padding.
        ignored: indices of symbols at the edge of sentences; attention to them is not counted as confidence.
    """

    pad: int
    ignored: Collection[int]

    def losses(self, loss: str, smoothing: float) -> Losses:
        """Return the losses that the settings ask for."""

    def sides(self, sample: dict[str, Any]) -> dict[str, tuple[Tensor, Tensor]]:
        """Return component -> tokens of queries and of keys, (batch, tgt) and (batch, src)."""


class TokenLosses:
    """The losses of sentences whose tokens are predicted."""

    def __init__(self, pad: int, loss: str = "sum", smoothing: float = 0.1) -> None:
        self.pad, self.loss, self.smoothing = pad, loss, smoothing

    def __call__(self, logits: Tensor, sample: dict[str, Any]) -> Tensor:
        """Return losses; see :func:`sentence_losses`."""
        return sentence_losses(logits, sample["target"], self.pad, self.loss, self.smoothing)

    def counts(self, sample: dict[str, Any]) -> dict[str, int]:
        """Return the counts; a sentence without target tokens counts 0."""
        real = sample["target"].ne(self.pad)
        sentences = int(real.any(dim=1).sum())
        source = sample["net_input"]["src_tokens"][real.any(dim=1)].ne(self.pad)
        tokens = {"tokens": int(real.sum()), "source_tokens": int(source.sum())}
        return {"sentences": sentences, "batches": int(sentences > 0), **tokens}

    def positions(self, component: str, sample: dict[str, Any]) -> int:
        """Source tokens in enc_self, target tokens elsewhere."""
        return sample["net_input"]["src_tokens"].size(1) if component == "enc_self" else sample["target"].size(1)


class ExampleLosses:
    """The losses of examples that are classified (cross entropy) or graded (squared error)."""

    def __init__(self, pad: int, is_regression: bool) -> None:
        self.pad, self.is_regression = pad, is_regression

    def __call__(self, logits: Tensor, sample: dict[str, Any]) -> Tensor:
        """Return losses of logits (batch, classes)."""
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if self.is_regression:
            return (logits.view(-1) - sample["target"]).square()
        return F.cross_entropy(logits, sample["target"], reduction="none")

    def counts(self, sample: dict[str, Any]) -> dict[str, int]:
        """Return the counts; tokens are those that are read."""
        tokens = int(sample["net_input"]["src_tokens"].ne(self.pad).sum())
        return {"sentences": sample["target"].numel(), "batches": 1, "tokens": tokens, "source_tokens": tokens}

    def positions(self, component: str, sample: dict[str, Any]) -> int:
        """The tokens that are read."""
        return sample["net_input"]["src_tokens"].size(1)


class TranslationReading:
    """Reading of an encoder-decoder's batches."""

    def __init__(self, pad: int, eos: int) -> None:
        self.pad, self.ignored = pad, (eos,)

    def losses(self, loss: str, smoothing: float) -> TokenLosses:
        """Return the losses of target sentences."""
        return TokenLosses(self.pad, loss, smoothing)

    def sides(self, sample: dict[str, Any]) -> dict[str, tuple[Tensor, Tensor]]:
        """Return the tokens that attend and are attended to."""
        source, prefix = sample["net_input"]["src_tokens"], sample["net_input"]["prev_output_tokens"]
        return {"enc_self": (source, source), "enc_dec": (prefix, source), "dec_self": (prefix, prefix)}


class SentenceReading:
    """Reading of a classifier's batches; ``ignored`` are [CLS] and [SEP]."""

    def __init__(self, pad: int, ignored: Collection[int], is_regression: bool) -> None:
        self.pad, self.ignored, self.is_regression = pad, ignored, is_regression

    def losses(self, loss: str, smoothing: float) -> ExampleLosses:
        """Return the losses of examples; each has one label, so that its sum is its mean.

        Raises:
            ValueError: label smoothing.
        """
        if loss == "label-smoothed":
            raise ValueError("--loss label-smoothed is for translation; examples of GLUE have one loss")
        return ExampleLosses(self.pad, self.is_regression)

    def sides(self, sample: dict[str, Any]) -> dict[str, tuple[Tensor, Tensor]]:
        """Return the tokens, which attend to each other."""
        tokens = sample["net_input"]["src_tokens"]
        return {"enc_self": (tokens, tokens)}


def sentence_losses(logits: Tensor, target: Tensor, pad: int, loss: str = "sum", smoothing: float = 0.1) -> Tensor:
    """Return each sentence's loss, (batch,), in float32, or in float64 for float64 logits.

    Args:
        logits: (batch, tgt, vocabulary), not normalised.
        target: (batch, tgt); ``pad`` is not counted.
        loss: ``sum`` of the negative log-likelihoods of its tokens, their ``mean``, or the sum of fairseq's
            ``label-smoothed`` cross entropy.
        smoothing: weight of the uniform distribution (label-smoothed only).

    Raises:
        ValueError: an unknown loss.
    """
    if loss not in LOSSES:
        raise ValueError(f"unknown loss {loss!r}; known are {', '.join(LOSSES)}")
    flat, real = logits.reshape(-1, logits.size(-1)), target.ne(pad)
    flat = flat.to(torch.promote_types(flat.dtype, torch.float32))
    nll = F.cross_entropy(flat, target.reshape(-1), ignore_index=pad, reduction="none").view(target.shape)
    if loss == "mean":
        return nll.sum(dim=1) / real.sum(dim=1).clamp(min=1)
    if loss == "label-smoothed":
        # fairseq spreads the smoothing over the other vocabulary entries: epsilon / (V - 1) each.
        each = smoothing / (flat.size(-1) - 1)
        uniform = -F.log_softmax(flat, dim=-1).sum(dim=-1).view(target.shape) * real
        nll = (1 - smoothing - each) * nll + each * uniform
    return nll.sum(dim=1)
