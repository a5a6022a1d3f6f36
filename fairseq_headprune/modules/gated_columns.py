"""Learned gates that scale the columns of ``out_proj``'s weights, in a single autograd node for all modules.

Scaling a head's output is equivalent to scaling the columns that read it. The weights are smaller than a batch of
outputs, and those of all modules can be scaled at once: training time is dominated by the number of kernel launches
and Python calls.
"""

from collections.abc import Sequence
from typing import Any, Optional

import torch
from torch import Tensor


def gate_columns(gate: Tensor, weights: Sequence[Tensor], counts: Sequence[int]) -> tuple[Tensor, ...]:
    """Scale the columns of each head by its gate (Michel et al. 2019, §2.3: xi_h).

    Args:
        gate: float32, the heads of all modules, concatenated.
        weights: each module's ``out_proj`` weight, (d, heads * head_dim).
        counts: number of heads of each module.

    Returns:
        The scaled weights. The gates' gradient is computed in float32, whatever the dtype of the weights.
    """
    return _GateColumns.apply(gate, tuple(counts), *weights)


class _GateColumns(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, counts: tuple[int, ...], *weights: Tensor) -> tuple[Tensor, ...]:
        """See :func:`gate_columns`."""
        ctx.set_materialize_grads(False)
        widths = [weight.size(1) // count for weight, count in zip(weights, counts, strict=True)]
        if len(set(widths)) == 1:
            factors = gate.to(weights[0].dtype).repeat_interleave(widths[0]).split([w.size(1) for w in weights])
        else:
            parts = zip(gate.split(counts), weights, widths, strict=True)
            factors = [part.to(weight.dtype).repeat_interleave(width) for part, weight, width in parts]
        # Not saved_tensors, which the first backward pass frees: with activation checkpointing there is one per layer.
        ctx.counts, ctx.weights, ctx.factors = counts, weights, factors
        return tuple(weight * factor for weight, factor in zip(weights, factors, strict=True))

    @staticmethod
    def backward(ctx: Any, *gradients: Optional[Tensor]) -> tuple[Any, ...]:
        """Return the gradients for gate, counts (None) and weights; None for weights that were not used."""
        by_weight = [
            gradient * factor if wanted and gradient is not None else None
            for gradient, factor, wanted in zip(gradients, ctx.factors, ctx.needs_input_grad[2:], strict=True)
        ]
        by_gate = _by_gate(gradients, ctx.weights, ctx.counts) if ctx.needs_input_grad[0] else None
        return by_gate, None, *by_weight


def _by_gate(gradients: Sequence[Optional[Tensor]], weights: Sequence[Tensor], counts: Sequence[int]) -> Tensor:
    """Sum gradient times weight over each head's columns, (heads,); modules of equal shape are batched."""
    alike: dict[tuple, list[int]] = {}
    given: dict[int, Tensor] = {}
    for place, gradient in enumerate(gradients):
        if gradient is not None:
            given[place] = gradient
            alike.setdefault((counts[place], *weights[place].shape), []).append(place)
    found: dict[int, Tensor] = {}
    for (count, *_), places in alike.items():
        product = torch.stack([given[place] for place in places]).float()
        product *= torch.stack([weights[place] for place in places])
        found |= zip(places, product.unflatten(2, (count, -1)).sum((1, 3)), strict=True)
    return torch.cat(
        [
            found[place] if place in found else weights[place].new_zeros(count, dtype=torch.float32)
            for place, count in enumerate(counts)
        ]
    )
