"""The loss of each sentence of a batch, and what the importance estimators need from a task."""

from collections.abc import Collection
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_headprune.importance.settings import LOSSES


class Losses(Protocol):
    """Computes the loss of every example of a batch."""

    def __call__(self, model: nn.Module, sample: dict[str, Any]) -> Tensor:
        """Run the model and return losses, (batch,), in float32 (float64 for a model in float64)."""

    def counts(self, sample: dict[str, Any]) -> dict[str, int]:
        """Return a batch's contribution to the counts: sentences, batches, tokens, and source_tokens."""

    def positions(self, component: str, sample: dict[str, Any]) -> int:
        """Return the number of query positions of a component."""


class ScoredTask(Protocol):
    """What the importance estimators need from a task.

    Attributes:
        pad: the index of padding.
        edges: indices of symbols at the start or end of a sentence; confidence ignores attention to them.
    """

    @property
    def pad(self) -> int: ...

    @property
    def edges(self) -> Collection[int]: ...

    def losses(self, loss: str, smoothing: float) -> Losses:
        """Return the loss function for these settings."""

    def sides(self, sample: dict[str, Any]) -> dict[str, tuple[Tensor, Tensor]]:
        """Return component -> tokens of the queries and of the keys, (batch, tgt) and (batch, src)."""


class TokenLosses:
    """The losses of sentences, for tasks that predict tokens."""

    def __init__(self, pad: int, loss: str = "sum", smoothing: float = 0.1) -> None:
        self.pad, self.loss, self.smoothing = pad, loss, smoothing

    def __call__(self, model: nn.Module, sample: dict[str, Any]) -> Tensor:
        """Run the model and return losses; see :func:`sentence_losses`."""
        output = model(**sample["net_input"])[0]
        adaptive = getattr(getattr(model, "decoder", None), "adaptive_softmax", None)
        logits = output if adaptive is None else adaptive_log_probabilities(adaptive, output)
        return sentence_losses(logits, sample["target"], self.pad, self.loss, self.smoothing)

    def counts(self, sample: dict[str, Any]) -> dict[str, int]:
        """Return the counts; a sentence without target tokens counts 0."""
        real = sample["target"].ne(self.pad)
        sentences = int(real.any(dim=1).sum())
        source = sample["net_input"]["src_tokens"][real.any(dim=1)].ne(self.pad)
        tokens = {"tokens": int(real.sum()), "source_tokens": int(source.sum())}
        return {"sentences": sentences, "batches": int(sentences > 0), **tokens}

    def positions(self, component: str, sample: dict[str, Any]) -> int:
        """Return the number of source tokens in enc_self, of target tokens elsewhere."""
        return sample["net_input"]["src_tokens"].size(1) if component == "enc_self" else sample["target"].size(1)


def adaptive_log_probabilities(softmax: Any, features: Tensor) -> Tensor:
    """Return log-probabilities (batch, tgt, vocabulary) of fairseq's adaptive softmax for features (batch, tgt, d).

    fairseq's ``get_log_prob`` works in place and cannot be differentiated. The probability of a word is that of its
    cluster times its probability within the cluster (Grave et al. 2017, eq. 8).
    """
    flat, first = features.reshape(-1, features.size(-1)), softmax.cutoff[0]
    wide = torch.promote_types(flat.dtype, torch.float32)
    head = softmax.head(flat).to(wide).log_softmax(dim=-1)
    tails = [tail(flat).to(wide).log_softmax(dim=-1) + head[:, first + i, None] for i, tail in enumerate(softmax.tail)]
    return torch.cat([head[:, :first], *tails], dim=-1).view(*features.shape[:-1], -1)


def sentence_losses(logits: Tensor, target: Tensor, pad: int, loss: str = "sum", smoothing: float = 0.1) -> Tensor:
    """Return each sentence's loss, (batch,), in float32, or in float64 for float64 logits.

    Args:
        logits: (batch, tgt, vocabulary); need not be normalised.
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
        # fairseq distributes the smoothing over the other vocabulary entries: epsilon / (V - 1) each.
        each = smoothing / (flat.size(-1) - 1)
        uniform = -F.log_softmax(flat, dim=-1).sum(dim=-1).view(target.shape) * real
        nll = (1 - smoothing - each) * nll + each * uniform
    return nll.sum(dim=1)
