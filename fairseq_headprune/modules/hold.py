"""Keep the weights of pruned heads where they are while an optimizer steps."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fairseq_headprune.modules.attach import GatedParts
from fairseq_headprune.modules.multihead import GatedMultiheadAttention

#: parameter of an attention module -> the dimension along which its heads lie
_ALONG = {f"{part}.{kind}": 0 for part in ("q_proj", "k_proj", "v_proj") for kind in ("weight", "bias")}
_ALONG |= {"out_proj.weight": 1, "bias_k": 2, "bias_v": 2}


class _Part(NamedTuple):
    parameter: nn.Parameter
    dim: int
    index: Tensor
    values: Tensor


class PrunedWeights:
    """The weights of a model's pruned heads: rows of q, k and v, columns of ``out_proj``.

    Their gradient is exactly 0, but weight decay shrinks them nevertheless, and momentum of the time before the mask
    moves them on. So their values are put back after each step, whatever the optimizer. (Of fp16 training the weights
    in the model are meant; the optimizer's float32 copies are made from these when training goes on.)
    """

    def __init__(self, gates: GatedParts) -> None:
        self._gates = gates
        self._known: dict[GatedMultiheadAttention, tuple[Tensor, list[_Part]]] = {}

    @contextmanager
    def held(self) -> Iterator[None]:
        """Undo, at the end, what happened to them meanwhile."""
        parts = [part for _, _, module in self._gates.items() for part in self._parts(module)]
        yield
        with torch.no_grad():
            for part in parts:
                part.parameter.index_copy_(part.dim, part.index, part.values)

    def _parts(self, module: GatedMultiheadAttention) -> list[_Part]:
        keep = module.head_keep
        if keep is None:
            return []
        known = self._known.get(module)
        # Another mask, or a model that was moved to another device or type, has another tensor.
        if known is None or known[0] is not keep:
            known = self._known[module] = (keep, _slices(module, keep))
        return known[1]


def _slices(module: GatedMultiheadAttention, keep: Tensor) -> list[_Part]:
    index = (~keep).repeat_interleave(module.head_dim).nonzero().flatten()
    named = dict(module.named_parameters())
    found = [(named[name], dim) for name, dim in _ALONG.items() if name in named]
    return [_Part(p, dim, index, p.detach().index_select(dim, index)) for p, dim in found]
