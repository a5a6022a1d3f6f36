"""Importance from the derivative of the loss with respect to the gates (Michel et al. 2019, eq. 2).

With one gate per sentence and head, a single forward and backward pass over a batch gives the exact derivative of each
sentence's own loss: sentences do not interact, so the gradient of the summed loss contains all of these derivatives.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Optional

import torch
from torch import Tensor, nn

from fairseq_headprune.importance.losses import Losses
from fairseq_headprune.importance.part_weights import heads_with_broken_weights
from fairseq_headprune.importance.ranks import gather_in_order
from fairseq_headprune.importance.settings import REDUCTIONS, Values
from fairseq_headprune.modules.attach import find_gates, without_attention_weights


class GateDerivatives:
    """Derivatives of the loss with respect to the gates, one batch at a time; the weights stay frozen.

    Args:
        model: a model with gates, in evaluation mode.
        losses: computes the loss of each sentence of a batch.
        ffn: ``blocks`` or ``units``: also add gates to these (Prasanna et al. 2020 gate the output of every
            feed-forward block).
    """

    def __init__(self, model: nn.Module, losses: Losses, ffn: Optional[str] = None) -> None:
        if model.training:
            raise ValueError("importance is defined on the model in evaluation mode; call model.eval() first")
        self.model, self.gates = model, find_gates(model)
        self.losses, self._ffn = losses, ffn
        if ffn and not self.gates.ffn:
            raise ValueError("the model has no feed-forward blocks that can be gated")

    def per_sentence(self, sample: dict[str, Any]) -> dict[str, list[Tensor]]:
        """Return dL(x)/d gate for each sentence x of a batch: component -> one tensor (batch, heads) per layer.

        Raises:
            ValueError: a loss or derivative is not finite; the message names the heads with broken weights.
        """
        batch = sample["target"].size(0)
        return self._grad(sample, lambda component, heads: (batch, heads))

    def per_token(self, sample: dict[str, Any]) -> dict[str, list[Tensor]]:
        """Return the derivatives at each position: component -> one tensor (batch, heads, positions) per layer.

        These are query positions: source tokens in enc_self, target tokens elsewhere; padding gives 0.
        """
        batch = sample["target"].size(0)
        return self._grad(sample, lambda c, heads: (batch, heads, self.losses.positions(c, sample)))

    def _grad(self, sample: dict, shape: Callable[[str, int], tuple[int, ...]]) -> dict[str, list[Tensor]]:
        leaf_gates = self.gates.leaf_gates(shape, self._ffn)
        with _frozen(self.model), without_attention_weights(self.model), leaf_gates as leaves:
            losses = self.losses(self.model, sample)
            flat = [gate for gates in leaves.values() for gate in gates]
            # A layer without heads does not contribute to the loss, and may disconnect other layers and feed-forward
            # blocks from it; their derivative is 0.
            empty = any(not gate.numel() for gate in flat)
            total = losses.sum() + sum(gate.sum() for gate in flat if not gate.numel())
            found = iter(torch.autograd.grad(total, flat, allow_unused=empty, materialize_grads=empty))
        grads = {component: [next(found) for _ in gates] for component, gates in leaves.items()}
        self._check_finite(losses, grads)
        return grads

    def _check_finite(self, losses: Tensor, grads: dict[str, list[Tensor]]) -> None:
        checked = [losses.sum(), *(g.sum() for layers in grads.values() for g in layers)]
        if torch.isfinite(torch.stack([value.double() for value in checked])).all():
            return
        bad = ", ".join(map(str, heads_with_broken_weights(find_gates(self.model))))
        where = f"heads with such weights: {bad}" if bad else "no head has such weights; with --fp16, try without it"
        raise ValueError(f"the loss or its derivative is not finite (NaN or infinity); {where}")


@contextmanager
def _frozen(model: nn.Module) -> Iterator[None]:
    """Context manager: compute no parameter gradients, which cost a third of the backward pass."""
    active = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in active:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in active:
            parameter.requires_grad_(True)


def gradient_importance(
    derivatives: GateDerivatives, batches: Iterable[dict[str, Any]], reduction: str = "sentence", power: int = 1
) -> tuple[Values, dict[str, int]]:
    """Estimate every head's importance over batches.

    Args:
        reduction: ``sentence``: mean over sentences of |dL(x)/d xi_h| (eq. 2, the default). Published variants:
            ``token``: mean over tokens of the absolute derivative at each position (Michel's translation code);
            ``batch``: mean over batches of |mean over the batch's sentences| (depends on the batch size);
            ``signed``: mean over sentences without the absolute value (the baseline in Li et al.'s code, whose most
            useful heads rank last).
        power: 2 squares instead of taking the absolute value (Fisher information).

    Returns:
        Values, and counts of sentences, (target) tokens and batches. A sentence without target tokens counts 0.

    Raises:
        ValueError: unknown reduction, no sentences, or values that are not finite.
    """
    if reduction not in REDUCTIONS:
        raise ValueError(f"unknown reduction {reduction!r}; known are {', '.join(REDUCTIONS)}")
    total: dict[str, list[Any]] = {}
    counts = {"sentences": 0, "tokens": 0, "batches": 0, "source_tokens": 0}
    for found, counted in gather_in_order([_of_batch(derivatives, sample, reduction, power) for sample in batches]):
        counts = {name: number + counted[name] for name, number in counts.items()}
        for component, layers in found.items():
            before = total.get(component, [0.0] * len(layers))
            total[component] = [old + new for old, new in zip(before, layers, strict=True)]
    if not counts["sentences"]:
        raise ValueError("there is no sentence with target tokens to estimate importance from")
    values = {}
    for component, layers in total.items():
        unit = {"token": "source_tokens" if component == "enc_self" else "tokens", "batch": "batches"}.get(
            reduction, "sentences"
        )
        values[component] = [(layer / counts[unit]).tolist() for layer in layers]
    counts.pop("source_tokens")
    return values, counts


def _of_batch(
    derivatives: GateDerivatives, sample: dict[str, Any], reduction: str, power: int
) -> tuple[dict[str, list[Tensor]], dict[str, int]]:
    """Return one batch's contribution to the sums, component -> (heads,) per layer, and to the counts."""
    counts = derivatives.losses.counts(sample)
    found = derivatives.per_token(sample) if reduction == "token" else derivatives.per_sentence(sample)
    sums = {
        c: [_reduce(g.double(), reduction, power, counts["sentences"]) for g in layers] for c, layers in found.items()
    }
    return sums, counts


def _reduce(gradient: Tensor, reduction: str, power: int, sentences: int) -> Tensor:
    """Sum one batch's derivatives, (batch, heads) or (batch, heads, positions), to (heads,)."""
    if reduction == "batch":
        gradient = gradient.sum(dim=0) / max(sentences, 1)
        return gradient.square() if power == 2 else gradient.abs()
    if power == 2:
        gradient = gradient.square()
    elif reduction != "signed":
        gradient = gradient.abs()
    return gradient.sum(dim=[d for d in range(gradient.dim()) if d != 1])
