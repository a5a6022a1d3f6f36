"""A gate learner tied to a model's attention modules."""

from typing import Optional

import torch
from torch import Tensor

from fairseq_headprune.gates.learner import GateLearner
from fairseq_headprune.modules.attach import GatedParts
from fairseq_headprune.modules.gated_columns import gate_columns
from fairseq_headprune.parts import Mask, Part


def present_heads(gates: GatedParts) -> list[Part]:
    """List the heads that the model has, by original number, in the order component, layer, head."""
    return [Part(c, layer, head) for c, layer, module in gates.items() for head in module.original_heads]


class LearnedGates:
    """Puts the learner's gates on the heads of a model in training, and its hard set in evaluation.

    All heads share one leaf tensor (heads,), float32, on the model's device. Backward passes add up in it: over
    micro-batches, until :meth:`take_gradient`.
    """

    def __init__(self, gates: GatedParts, learner: GateLearner) -> None:
        """Find the modules of the learner's heads.

        Raises:
            ValueError: ``out_proj`` is changed by a hook while training (--quant-noise-pq), which would not be seen.
        """
        self.gates, self.learner = gates, learner
        self._modules = []
        wanted = set(learner.heads)
        for component, layer, module in gates.items():
            heads = [Part(component, layer, head) for head in module.original_heads]
            if heads and heads[0] in wanted:
                if module.out_proj._forward_pre_hooks:
                    place = f"{component} layer {layer}"
                    raise ValueError(f"{place}: learned gates and --quant-noise-pq do not go together; leave one out")
                self._modules.append((module, len(heads)))
        self._leaf: Optional[Tensor] = None
        self._mask_is_stale = True

    def put(self) -> None:
        """Put the present update's gates on the heads, for one forward and backward pass."""
        if self._leaf is None:
            device = next(module.out_proj.weight.device for module, _ in self._modules)
            self._leaf = self.learner.begin().to(device, torch.float32)
            self._leaf.requires_grad_(self.learner.needs_gradient)
        weights = [module.out_proj.weight for module, _ in self._modules]
        scaled = gate_columns(self._leaf, weights, [count for _, count in self._modules])
        for (module, _), weight in zip(self._modules, scaled, strict=True):
            module.learned_weight = weight

    def forget_gradient(self) -> None:
        """Drop what backward passes have added up: a new update begins, or the last one was skipped."""
        if self._leaf is not None:
            self._leaf.grad = None

    def take_gradient(self) -> Tensor:
        """Return the gradient that has been added up, (heads,), on the model's device (0 where there was none).

        Raises:
            RuntimeError: no gates were put into the model before.
        """
        if self._leaf is None:
            raise RuntimeError("there is no gradient of gates before put()")
        return torch.zeros_like(self._leaf) if self._leaf.grad is None else self._leaf.grad

    def step(self, gradient: Tensor) -> None:
        """Take one step of the learner.

        Args:
            gradient: (heads,), of the mean loss.

        Raises:
            FloatingPointError: it is not finite.
        """
        self.learner.step(gradient.detach().cpu())
        self._leaf, self._mask_is_stale = None, True
        for module, _ in self._modules:
            # A copy of out_proj's weight, which neither the optimizer's step nor a validation needs.
            module.learned_weight = None

    def mask(self) -> Mask:
        """Return the mask of the learned set: heads that have no gate are kept."""
        closed = [h for h, keep in zip(self.learner.heads, self.learner.hard().tolist(), strict=True) if not keep]
        mask = self.gates.full().without(closed)
        mask.ffn = self.gates.ffn.entry()
        mask.source = {"learned": self.learner.description(), "update": self.learner.updates}
        return mask

    def refresh_mask(self) -> None:
        """Bring the hard mask up to date, which evaluation uses and checkpoints keep."""
        if self._mask_is_stale:
            self.gates.set_mask(self.mask())
            self._mask_is_stale = False
