"""Connects a gate learner with a model's attention modules: gates scale the columns of ``out_proj``'s weights."""

from collections.abc import Sequence
from typing import Any, Optional

import numpy as np
import torch
from torch import Tensor

from fairseq_headprune.gates.learner import GateLearner
from fairseq_headprune.modules.attach import GatedParts
from fairseq_headprune.parts import FFN, HEADS, Mask, Part


class LearnedGates:
    """Applies the learner's gates to the heads of a model in training, and its hard set in evaluation.

    All heads share one leaf tensor (heads,), float32, on the model's device. Backward passes of micro-batches
    accumulate its gradient until :meth:`take_gradient`.
    """

    def __init__(self, gates: GatedParts, learner: GateLearner) -> None:
        """Find the modules of the learner's heads.

        Raises:
            ValueError: a hook changes ``out_proj`` in training (--quant-noise-pq); the gates would bypass it.
        """
        self.gates, self.learner = gates, learner
        self._modules = []
        wanted = set(learner.heads)
        for component, layer, module in gates.items():
            heads = [Part(component, layer, head) for head in module.indices]
            if heads and heads[0] in wanted:
                if module.out_proj._forward_pre_hooks:
                    place = f"{component} layer {layer}"
                    raise ValueError(f"{place}: learned gates are not supported with --quant-noise-pq; omit one")
                self._modules.append((module, len(heads)))
        self._leaf: Optional[Tensor] = None
        self._place: Optional[Tensor] = None
        self._recorded: list[Tensor] = []
        self._read: Optional[Tensor] = None
        self._mask_is_stale = True
        self._is_on = False

    def stay_at_one_place(self) -> None:
        """From now on keep the gates at a fixed address, for recorded passes (CUDA graphs)."""
        device = next(module.out_proj.weight.device for module, _ in self._modules)
        self._place = torch.zeros(len(self.learner.heads), device=device, requires_grad=True)
        self._values = self._place.detach()
        self._staged = torch.zeros(len(self.learner.heads), pin_memory=device.type == "cuda")
        self._staged_values = self._staged.numpy()

    def begin(self) -> Tensor:
        """Return the present update's gates, a leaf tensor."""
        if self._leaf is not None:
            return self._leaf
        if self._place is None:
            device = next(module.out_proj.weight.device for module, _ in self._modules)
            self._leaf = torch.from_numpy(self.learner.begin()).float().to(device)
            self._leaf.requires_grad_(self.learner.needs_gradient)
        else:
            # Every update waits for the device before its step, so the last update's asynchronous copies have finished.
            self._staged_values[:] = self.learner.begin()
            self._leaf = self._place
        return self._leaf

    def put(self) -> Tensor:
        """Apply the present update's gates to the heads, for one forward and backward pass, and return them."""
        leaf = self.begin()
        if self._place is not None:
            self._values.copy_(self._staged, non_blocking=True)  # recorded with the pass
        weights = [module.out_proj.weight for module, _ in self._modules]
        scaled = gate_columns(leaf, weights, [count for _, count in self._modules])
        for (module, _), weight in zip(self._modules, scaled, strict=True):
            module.learned_weight = weight
        self._is_on = True
        return leaf

    def take_off(self) -> None:
        """Remove the scaled copies of ``out_proj``'s weights: neither a step nor a validation needs them."""
        if self._is_on:
            for module, _ in self._modules:
                module.learned_weight = None
            self._is_on = False

    def forget_gradient(self) -> None:
        """Clear the accumulated gradient: a new update begins, or the last one was skipped."""
        self._read = None
        self._recorded.clear()
        if self._leaf is not None:
            self._leaf.grad = None

    def take_gradient(self) -> Tensor:
        """Return the accumulated gradient, (heads,), on the model's device (0 for heads without one).

        It is on the CPU if it was copied there already (:meth:`note_gradient`).

        Raises:
            RuntimeError: no gates were applied to the model before.
        """
        if self._read is not None:
            return self._read
        if self._leaf is None:
            raise RuntimeError("there is no gradient of gates before put()")
        found = [*self._recorded, *([] if self._leaf.grad is None else [self._leaf.grad])]
        return sum(found[1:], found[0]) if found else torch.zeros_like(self._leaf)

    def add_gradient(self, gradient: Tensor) -> None:
        """Add the gradient w.r.t. the gates of one recorded pass, (heads,), which must not change later."""
        self._recorded.append(gradient)

    def note_gradient(self, gradient: Tensor) -> None:
        """Store the gradient, (heads,), which was copied to the CPU together with other numbers."""
        self._read = gradient

    def step(self, gradient: np.ndarray) -> None:
        """Take one step of the learner.

        Args:
            gradient: float64 (heads,), of the mean loss; finite.
        """
        self.learner.step(gradient)
        self._leaf, self._mask_is_stale, self._read = None, True, None
        self.take_off()
        if self._place is not None:
            self.begin()  # now, while the device makes the weights' step

    def mask(self) -> Mask:
        """Return the mask of the learned set; heads without a gate are kept."""
        closed = [h for h, keep in zip(self.learner.heads, self.learner.hard().tolist(), strict=True) if not keep]
        heads, ffn = self.gates.full().without(closed).only(HEADS), self.gates.mask().only(FFN)
        mask = Mask({**heads.rows, **ffn.rows})
        mask.source = {"learned": self.learner.description(), "update": self.learner.updates}
        return mask

    def refresh_mask(self) -> None:
        """Update the hard mask, which is used in evaluation and stored in checkpoints."""
        if self._mask_is_stale:
            self.gates.set_mask(self.mask())
            self._mask_is_stale = False


def gate_columns(gate: Tensor, weights: Sequence[Tensor], counts: Sequence[int]) -> tuple[Tensor, ...]:
    """Scale the columns of each head by its gate (Michel et al. 2019, §2.3: xi_h), in one autograd node.

    Scaling a head's output is equivalent to scaling the columns that read it. The weights are smaller than a batch of
    outputs, and training time is dominated by the number of kernel launches and Python calls.

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
            together = torch.stack([weights[place] for place in places])
            together = together.unflatten(2, (count, shape[1] // count))  # (modules, d, heads, head_dim)
            mine = gate if len(places) == len(weights) else torch.cat([parts[place] for place in places])
            factor = mine.to(dtype).view(len(places), 1, count, 1)
            for place, result in zip(places, (together * factor).flatten(2).unbind(), strict=True):
                scaled[place] = result
            ctx.groups.append((places, together, factor))
        return tuple(scaled)

    @staticmethod
    def backward(ctx: Any, *gradients: Optional[Tensor]) -> tuple[Any, ...]:
        """Return the gradients for gate, counts (None) and weights; None for weights that were not used."""
        wanted, by_weight = any(ctx.needs_input_grad[2:]), [None] * ctx.count
        by_gate: list[Any] = [None] * ctx.count
        for places, together, factor in ctx.groups:
            used = [number for number, place in enumerate(places) if gradients[place] is not None]
            mine, sums = [places[number] for number in used], None
            if mine:
                if len(mine) < len(places):
                    together, factor = together[used], factor[used]
                found = torch.stack([gradients[place] for place in mine]).unflatten(2, together.shape[2:])
                if wanted:
                    by_weight = _put(by_weight, mine, (found * factor).flatten(2).unbind())
                if ctx.needs_input_grad[0]:
                    # Each head's sum of gradient times weight over its columns.
                    sums = (found.float() * together).sum((1, 3))
            if len(mine) == ctx.count:
                return None if sums is None else sums.flatten(), None, *by_weight
            if ctx.needs_input_grad[0]:
                by_gate = _put(by_gate, places, factor.new_zeros(len(places), together.shape[2], dtype=torch.float32))
                by_gate = by_gate if sums is None else _put(by_gate, mine, sums)
        return torch.cat(by_gate) if ctx.needs_input_grad[0] else None, None, *by_weight


def _put(values: list[Any], places: Sequence[int], new: Any) -> list[Any]:
    """Replace the values at these places."""
    for place, value in zip(places, new, strict=True):
        values[place] = value
    return values
