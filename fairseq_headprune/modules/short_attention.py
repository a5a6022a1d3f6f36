"""Attention of short sentences in passes recorded as CUDA graphs: projections and products without copies.

In a recording launches cost nothing, so only the kernels' run time matters. Fused attention works on blocks of 128
queries and keys, of which a sentence of 20 tokens fills a fortieth: plain batched products take half its time. Between
them the heads are never copied: the joint projection's rows are ordered by head, so that each product reads and writes
its part of (time, batch, d) in place, forward and backward.
"""

from typing import Any, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_headprune.modules.attention import alike, combine_masks

#: up to this many queries and keys, plain products are faster than fused attention, forward and backward combined
SHORT = 48
#: score of a masked key: its weight is exactly 0, and a fully masked row stays finite
_MASKED = -1e4


class AddedMasks:
    """The masks of one pass as they are added to scores, each made once for all layers that share it."""

    def __init__(self) -> None:
        self._made: dict[tuple, tuple[tuple, Tensor]] = {}

    def added(
        self, pads: Optional[Tensor], attn_mask: Optional[Tensor], like: Tensor, shape: tuple[int, ...]
    ) -> Tensor:
        """Return the mask of :func:`~.attention.combine_masks`, (batch * heads, tgt, src), or 0 if there is none.

        Args:
            pads, attn_mask: see there; they must not change during the pass.
            like: gives dtype and device.
            shape: (batch, heads, tgt, src).
        """
        if pads is None and attn_mask is None:
            return like.new_zeros(())
        key = (_place(pads), _place(attn_mask), like.dtype, shape)
        if key not in self._made:
            mask = combine_masks(pads, attn_mask, like.dtype)
            assert mask is not None
            if mask.dtype == torch.bool:
                mask = torch.zeros_like(mask, dtype=like.dtype).masked_fill_(~mask, _MASKED)
            # The tensors are kept, so that no other one gets their place in memory.
            self._made[key] = (pads, attn_mask), mask.clamp(min=_MASKED).expand(shape).reshape(-1, *shape[2:])
        return self._made[key][1]


def _place(tensor: Optional[Tensor]) -> Optional[tuple]:
    return None if tensor is None else (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)


def can_attend(module: Any, query: Tensor, key: Optional[Tensor]) -> bool:
    """Whether :func:`attend` computes this module's attention, which needs no weights and has no cache."""
    if module.bias_k is not None or module.add_zero_attn:
        return False
    if module.self_attention:
        return query.size(0) <= SHORT and alike(module.q_proj, module.k_proj, module.v_proj)
    if not module.encoder_decoder_attention or key is None:
        return False
    return max(query.size(0), key.size(0)) <= SHORT and alike(module.k_proj, module.v_proj)


def attend(
    module: Any, query: Tensor, key: Tensor, masks: AddedMasks, pads: Optional[Tensor], attn_mask: Optional[Tensor]
) -> Tensor:
    """Return each head's output, a view (batch, heads, tgt, head_dim) of (tgt, batch, d).

    A fully masked row gives finite values, not 0: such rows are padding, so they affect neither loss nor gradients.

    Args:
        query: (tgt, batch, d).
        key: (src, batch, d); not read in self-attention.
        masks: of this pass.
        pads, attn_mask: see :func:`~.attention.combine_masks`.
    """
    count, dropout = module.num_heads, module.dropout_module.p if module.training else 0.0
    if module.self_attention:
        first, second = _project(query, count, module.q_proj, module.k_proj, module.v_proj), None
    else:
        first, second = module.q_proj(query), _project(key, count, module.k_proj, module.v_proj)
    length, batch, _ = query.shape
    source = len(first if second is None else second)
    added = masks.added(pads, attn_mask, first, (batch, count, length, source))
    output = _Attention.apply(first, second, added, count, module.scaling, dropout)
    return output.view(length, batch, count, -1).permute(1, 2, 0, 3)


def _project(inputs: Tensor, count: int, *layers: nn.Linear) -> Tensor:
    """Return the joint projection, its rows ordered by head."""
    weight = _ByHead.apply(count, *(layer.weight for layer in layers))
    bias = None if layers[0].bias is None else _ByHead.apply(count, *(layer.bias for layer in layers))
    return F.linear(inputs, weight, bias)


class _ByHead(torch.autograd.Function):
    """Joins the rows (heads * head_dim, …) of several layers, head by head: all of the first head come first."""

    @staticmethod
    def forward(ctx: Any, count: int, *parts: Tensor) -> Tensor:
        """Return the rows of all parts, (heads * n * head_dim, …); ``count``: heads of each part."""
        ctx.count, ctx.number = count, len(parts)
        rows = [part.view(count, 1, -1, *part.shape[1:]) for part in parts]
        return torch.cat(rows, 1).flatten(0, 2)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Optional[Tensor], ...]:  # type: ignore[override]
        """Return the gradient of each part, contiguous views of one tensor."""
        rows = gradient.unflatten(0, (ctx.count, ctx.number, -1)).transpose(0, 1).contiguous()
        return None, *rows.flatten(1, 2).unbind()


class _Attention(torch.autograd.Function):
    """softmax(scale q k^T + added) v of each head, from and to (time, batch, …) without copies."""

    @staticmethod
    def forward(
        ctx: Any, first: Tensor, second: Optional[Tensor], added: Tensor, count: int, scale: float, dropout: float
    ) -> Tensor:
        """Return the heads' outputs (Vaswani et al. 2017, eq. 1), (tgt, batch, d).

        Args:
            first, second: the joint projection of queries, keys and values, (tgt, batch, 3 d), and None; or that of
                queries, (tgt, batch, d), and that of keys and values, (src, batch, 2 d).
            added: (batch * heads, tgt, src), or ().
            count: heads.
        """
        q, k, v = _heads(first, second, count)
        weights = torch.softmax(torch.baddbmm(added, q, k.transpose(1, 2), alpha=scale), dim=-1)
        used, kept = (weights, None) if not dropout else torch.native_dropout(weights, dropout, True)
        output = first.new_empty(first.size(0), q.size(0), q.size(2))
        torch.bmm(used, v, out=output.transpose(0, 1))
        ctx.save_for_backward(first, second, weights, used, kept)
        ctx.settings = count, scale, dropout
        return output.view(first.size(0), first.size(1), -1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Optional[Tensor], ...]:  # type: ignore[override]
        """Return the gradients of both projections, written in place by the products; ``gradient``: (tgt, batch, d)."""
        first, second, weights, used, kept = ctx.saved_tensors
        count, scale, dropout = ctx.settings
        q, k, v = _heads(first, second, count)
        by_first, by_second = torch.empty_like(first), None if second is None else torch.empty_like(second)
        by_q, by_k, by_v = _heads(by_first, by_second, count)
        gradient = gradient.reshape(q.size(1), q.size(0), q.size(2)).transpose(0, 1)
        torch.bmm(used.transpose(1, 2), gradient, out=by_v)
        by_weights = torch.bmm(gradient, v.transpose(1, 2))
        if kept is not None:
            by_weights = torch.ops.aten.native_dropout_backward(by_weights, kept, 1 / (1 - dropout))
        by_scores = torch._softmax_backward_data(by_weights, weights, -1, weights.dtype)
        by_q.baddbmm_(by_scores, k, beta=0, alpha=scale)
        by_k.baddbmm_(by_scores.transpose(1, 2), q, beta=0, alpha=scale)
        return by_first, by_second, None, None, None, None


def _heads(first: Tensor, second: Optional[Tensor], count: int) -> tuple[Tensor, ...]:
    """Return views (batch * heads, time, head_dim) of queries, keys and values."""
    if second is None:
        return _views(first, count, 3)
    return *_views(first, count, 1), *_views(second, count, 2)


def _views(rows: Tensor, count: int, number: int) -> tuple[Tensor, ...]:
    time, batch, _ = rows.shape
    return rows.view(time, batch * count, number, -1).transpose(0, 1).unbind(2)
