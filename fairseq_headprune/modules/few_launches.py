"""Attention for recorded CUDA graphs: fewer and better utilised kernels for batches of short sentences.

In a recorded graph, launching kernels costs nothing, so only their run time matters. Fused attention works on blocks
of 128 queries and keys, of which a sentence of 20 tokens fills a fortieth; plain batched products take half its time.
"""

from typing import Any, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

#: up to this many queries and keys, plain products are faster than fused attention, forward and backward combined
SHORT = 48
#: score of a masked key: its weight is exactly 0, and a fully masked row stays finite
_MASKED = -1e4


def is_short(query: Tensor, key: Tensor) -> bool:
    """Whether :func:`attend_short` is faster for (batch, heads, length, head_dim)."""
    return max(query.size(2), key.size(2)) <= SHORT


def attend_short(
    query: Tensor, key: Tensor, value: Tensor, scale: float, mask: Optional[Tensor], dropout: float
) -> Tensor:
    """Return each head's output, (batch, heads, tgt, head_dim), as ``attention.attend`` does.

    A fully masked row gives finite values, not 0: such rows are padding, so they affect neither loss nor gradients.
    """
    batch, heads, length, _ = query.shape
    added = _added(mask, query).expand(batch, heads, length, key.size(2)).flatten(0, 1)
    scores = torch.baddbmm(added, query.flatten(0, 1), key.flatten(0, 1).transpose(1, 2), alpha=scale)
    weights = torch.softmax(scores, dim=-1)
    weights = F.dropout(weights, dropout) if dropout else weights
    return torch.bmm(weights, value.flatten(0, 1)).unflatten(0, (batch, heads))


def _added(mask: Optional[Tensor], like: Tensor) -> Tensor:
    """Convert a mask of ``attention.combine_masks`` to one that is added to the scores."""
    if mask is None:
        return like.new_zeros(1, 1, 1, 1)
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=like.dtype).masked_fill(~mask, _MASKED)
    return mask.clamp(min=_MASKED) if mask.dim() == 4 else mask.clamp(min=_MASKED)[None, None]


def project(module: Any, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values, (time, batch, heads * head_dim), with one product for equal inputs."""
    if query is key is value and _alike(module.q_proj, module.k_proj, module.v_proj):
        q, k, v = _together(query, module.q_proj, module.k_proj, module.v_proj)
        return q, k, v
    q = module.q_proj(query)
    if key is value and _alike(module.k_proj, module.v_proj):
        k, v = _together(key, module.k_proj, module.v_proj)
        return q, k, v
    return q, module.k_proj(key), module.v_proj(value)


def _alike(*layers: nn.Module) -> bool:
    """Whether these are plain linear layers of one shape, all with a bias or all without."""
    shapes = {(type(layer), layer.weight.shape, layer.bias is None) for layer in layers}  # type: ignore[union-attr]
    return len(shapes) == 1 and type(layers[0]) is nn.Linear


def _together(x: Tensor, *layers: nn.Linear) -> tuple[Tensor, ...]:
    bias = None if layers[0].bias is None else torch.cat([layer.bias for layer in layers])
    return F.linear(x, torch.cat([layer.weight for layer in layers]), bias).chunk(len(layers), dim=-1)
