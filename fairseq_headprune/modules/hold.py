"""Keeps the weights of pruned parts unchanged by the optimizer."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_headprune.modules.attach import GatedParts
from fairseq_headprune.modules.cutting import ALONG, BLOCK_BIAS
from fairseq_headprune.parts import COMPONENTS, FFN


@dataclass(frozen=True)
class _Held:
    parameter: nn.Parameter
    dim: int
    index: Tensor
    values: Tensor


class PrunedWeights:
    """The weights of a model's pruned parts: rows of q, k, v and fc1, columns of ``out_proj`` and fc2.

    Their gradient is exactly 0, but weight decay still shrinks them, and momentum from before the mask still moves
    them. So their values are restored after each step, whatever the optimizer. (In fp16 training this concerns the
    model's weights; the optimizer's float32 copies are made from these when training resumes.)
    """

    def __init__(self, gates: GatedParts) -> None:
        self._gates = gates
        self._known: dict[Any, tuple[Tensor, list[_Held]]] = {}

    @contextmanager
    def held(self) -> Iterator[None]:
        """Context manager: on exit, restore these weights."""
        held = [part for place in self._gates.items(COMPONENTS) for part in self._held(*place)]
        yield
        with torch.no_grad():
            for part in held:
                part.parameter.index_copy_(part.dim, part.index, part.values)

    def _held(self, component: str, layer: int, module: Any) -> list[_Held]:
        keep = module.keep
        if keep is None:
            return []
        known = self._known.get(module)
        # The tensor is another one if the mask changed, or the model was moved to another device or dtype.
        if known is None or known[0] is not keep:
            ffn = component in FFN
            root = self._gates.layers[component][layer] if ffn else module
            known = self._known[module] = (
                keep,
                _slices(root, keep, len(module.indices), 1 if ffn else module.head_dim),
            )
        return known[1]


def _slices(root: nn.Module, keep: Tensor, count: int, width: int) -> list[_Held]:
    block = not keep.dim()
    every = torch.arange(count * width, device=keep.device)
    index = every if block else (~keep).repeat_interleave(width).nonzero().flatten()
    held = []
    for name, parameter in root.named_parameters():
        if name in ALONG:
            dim = ALONG[name]
            held.append(_Held(parameter, dim, index, parameter.detach().index_select(dim, index)))
        elif block and name == BLOCK_BIAS:
            held.append(
                _Held(parameter, 0, torch.arange(len(parameter), device=keep.device), parameter.detach().clone())
            )
    return held
