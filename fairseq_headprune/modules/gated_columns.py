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
        """See :func:`gate_columns`; modules of equal shape are scaled by one multiplication."""
        ctx.set_materialize_grads(False)
        alike: dict[tuple, list[int]] = {}
        for place, (weight, count) in enumerate(zip(weights, counts, strict=True)):
            alike.setdefault((count, weight.shape, weight.dtype), []).append(place)
        parts, scaled = gate.split(counts), list(weights)
        # Not saved_tensors, which the first backward pass frees: with activation checkpointing there is one per layer.
        ctx.groups, ctx.count = [], len(weights)
        for (count, shape, dtype), places in alike.items():
            together = torch.stack([weights[place] for place in places])  # (modules, d, heads * head_dim)
            factor = torch.stack([parts[place] for place in places]).to(dtype).unsqueeze(1)  # (modules, 1, heads)
            factor = factor.repeat_interleave(shape[1] // count, 2)
            for place, result in zip(places, (together * factor).unbind(), strict=True):
                scaled[place] = result
            ctx.groups.append((places, count, together, factor))
        return tuple(scaled)

    @staticmethod
    def backward(ctx: Any, *gradients: Optional[Tensor]) -> tuple[Any, ...]:
        """Return the gradients for gate, counts (None) and weights; None for weights that were not used."""
        wanted, by_weight = any(ctx.needs_input_grad[2:]), [None] * ctx.count
        by_gate: list[Any] = [None] * ctx.count
        for places, count, together, factor in ctx.groups:
            used = [number for number, place in enumerate(places) if gradients[place] is not None]
            if len(used) < len(places):
                together, factor = together[used], factor[used]
            mine = [places[number] for number in used]
            found = torch.stack([gradients[place] for place in mine]) if mine else together
            if wanted:
                by_weight = _put(by_weight, mine, (found * factor).unbind())
            if ctx.needs_input_grad[0]:
                # Each head's sum of gradient times weight over its columns.
                sums = (found.float() * together).unflatten(2, (count, -1)).sum((1, 3))
                by_gate = _put(by_gate, places, together.new_zeros(len(places), count, dtype=torch.float32))
                by_gate = _put(by_gate, mine, sums)
        return torch.cat(by_gate) if ctx.needs_input_grad[0] else None, None, *by_weight


def _put(values: list[Any], places: Sequence[int], new: Any) -> list[Any]:
    """Replace the values at these places."""
    for place, value in zip(places, new, strict=True):
        values[place] = value
    return values
