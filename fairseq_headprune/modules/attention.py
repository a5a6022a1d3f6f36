"""Scaled dot-product attention with one gate per head, in plain torch."""

from typing import Any, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

#: Up to this many queries per sentence (its beams), plain matrix products are faster than fused attention on CUDA.
_FEW_QUERIES = 16


def combine_masks(
    key_padding_mask: Optional[Tensor], attn_mask: Optional[Tensor], dtype: torch.dtype
) -> Optional[Tensor]:
    """Combine a padding mask and an attention mask into one for ``scaled_dot_product_attention``.

    Args:
        key_padding_mask: (batch, src); nonzero means padding: bool or uint8 (1 = pad), or float (0 = real, ``-inf`` or
            fairseq's cached 1.0 = pad).
        attn_mask: (tgt, src) or broadcastable to (batch, heads, tgt, src); bool or integer: not 0 = may not attend;
            float: added to the scores (``-inf``, or fairseq's -1e8, which becomes ``-inf`` if the dtype cannot
            represent it).
        dtype: dtype of the scores.

    Returns:
        None, a bool mask (True = may attend), or a float mask that is added.
    """
    padded = None if key_padding_mask is None else key_padding_mask.to(torch.bool)[:, None, None, :]
    if attn_mask is None:
        return None if padded is None else ~padded
    if not attn_mask.is_floating_point():
        blocked = attn_mask.to(torch.bool)
        return ~blocked if padded is None else ~(blocked | padded)
    added = attn_mask.to(dtype)
    return added if padded is None else added.masked_fill(padded, float("-inf"))


def attention_weights(query: Tensor, key: Tensor, scale: float, mask: Optional[Tensor]) -> tuple[Tensor, Tensor]:
    """Return attention weights and the scores before the softmax, each (batch, heads, tgt, src).

    The weights are in float32, or float64 for float64 input. A fully masked row gets weights 0 and no gradient, as in
    :func:`attend`.
    """
    scores = torch.matmul(query * scale, key.transpose(-2, -1))
    precision = torch.promote_types(scores.dtype, torch.float32)
    if mask is None:
        return torch.softmax(scores, dim=-1, dtype=precision), scores
    scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask
    # Softmax over an empty set is 0/0, and its gradient NaN: give such a row finite scores first.
    nowhere = (scores == float("-inf")).all(dim=-1, keepdim=True)
    weights = torch.softmax(scores.masked_fill(nowhere, 0.0), dim=-1, dtype=precision)
    return weights.masked_fill(nowhere, 0.0), scores


def counted_weights(weights: Tensor, keep: Optional[Tensor]) -> Tensor:
    """Return the attention weights such that their mean over heads is the mean over the kept heads.

    Args:
        weights: (batch, heads, tgt, src).
        keep: None; bool (heads,): pruned heads are omitted; or bool (batch, heads): pruned heads become 0 and the
            others are rescaled, since each sentence keeps different heads. If no head is kept, there is one head of
            zeros, as from a module whose heads were removed.
    """
    if keep is None:
        return weights
    if keep.dim() == 1:
        return weights[:, keep] if bool(keep.any()) else weights.new_zeros(weights[:, :1].shape)
    share = keep.to(weights.dtype) * keep.size(1) / keep.sum(dim=1, keepdim=True).clamp(min=1)
    return weights * share[:, :, None, None]


def attend(query: Tensor, key: Tensor, value: Tensor, scale: float, mask: Optional[Tensor], dropout: float) -> Tensor:
    """Return each head's output, (batch, heads, tgt, head_dim), without storing the attention weights of many queries.

    A fully masked row gives 0 (torch's own convention since 2.5, on every back end), so a fully padded sentence adds
    only ``out_proj``'s bias and never NaN. As in fairseq, a masked key has weight 0, so a non-finite value there makes
    the output of its sentence non-finite: clearing it would cost a copy of all values in every layer.
    """
    if not dropout and _is_one_step(query):
        return torch.matmul(attention_weights(query, key, scale, mask)[0].to(query.dtype), value)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout, scale=scale)


def _is_one_step(query: Tensor) -> bool:
    """Whether this is a decoding step on CUDA: fused kernels process a block of many queries even for a few."""
    return query.is_cuda and query.size(2) <= _FEW_QUERIES and not torch.is_grad_enabled()


def apply_gate(heads: Tensor, gate: Optional[Tensor], keep: Optional[Tensor]) -> Tensor:
    """Scale each head's output by its gate and zero the pruned ones (Michel et al. 2019, §2.3: xi_h).

    Args:
        heads: (batch, heads, tgt, head_dim).
        gate: None, or one value per head (heads,), per sentence and head (batch, heads), or per sentence, head and
            target position (batch, heads, tgt).
        keep: None, or bool (heads,) or (batch, heads). A pruned head is replaced by 0, not multiplied by 0, so that
            even a NaN in it does not reach the output, exactly as if the head had been removed.

    Raises:
        ValueError: the gate has none of these shapes.
    """
    if gate is not None:
        batch, count, length = heads.shape[:3]
        if gate.shape not in ((count,), (batch, count), (batch, count, length)):
            fitting = f"({count},), ({batch}, {count}) nor ({batch}, {count}, {length})"
            raise ValueError(f"gate of shape {tuple(gate.shape)} fits neither {fitting}")
        view = gate.view(1, -1, 1, 1) if gate.dim() == 1 else gate.view(gate.shape + (1,) * (4 - gate.dim()))
        heads = heads * view.to(heads.dtype)
    if keep is not None:
        heads = heads.masked_fill(~(keep if keep.dim() == 2 else keep[None])[:, :, None, None], 0.0)
    return heads


def attend_without_heads(
    module: Any, query: Tensor, key: Optional[Tensor], weights: bool, per_head: bool, before_softmax: bool
) -> tuple[Tensor, Optional[Tensor]]:
    """Return ``out_proj``'s bias for every position (zeros if it has none), without projections or cache.

    Args:
        weights: also return attention weights: zeros (batch, tgt, src). Here src counts only the given keys, neither
            those of earlier steps of self-attention, which are unknown, nor extra ones (``add_bias_kv``,
            ``add_zero_attn``).
        per_head: return (1, batch, tgt, src) instead: a mean over zero heads would be NaN.
        before_softmax: return scores and values of zero heads instead: (0, tgt, src), (0, src, head_dim).
    """
    length, batch, _ = query.shape
    width, bias = module.out_proj.out_features, module.out_proj.bias
    source = (query if key is None or module.self_attention else key).size(0)
    if before_softmax:
        return query.new_zeros(0, length, source), query.new_zeros(0, source, module.head_dim)
    output = query.new_zeros(length, batch, width) if bias is None else bias.expand(length, batch, width)
    if module.on_weights is not None:
        module.on_weights(module, query.new_zeros(batch, 0, length, source))
    if not weights:
        return output, None
    shape = (1, batch, length, source) if per_head else (batch, length, source)
    return output, query.new_zeros(shape).float()


def alike(*layers: nn.Module) -> bool:
    """Whether these are plain linear layers of one shape, all with a bias or all without."""
    shapes = {(type(layer), layer.weight.shape, layer.bias is None) for layer in layers}  # type: ignore[union-attr]
    return len(shapes) == 1 and type(layers[0]) is nn.Linear


def together(*layers: nn.Linear) -> tuple[Tensor, Optional[Tensor]]:
    """Return weight and bias of one linear layer that computes all of these, see :func:`alike`."""
    bias = None if layers[0].bias is None else torch.cat([layer.bias for layer in layers])
    return torch.cat([layer.weight for layer in layers]), bias
