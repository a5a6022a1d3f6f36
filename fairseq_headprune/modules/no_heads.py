"""What an attention module adds when all of its heads were removed: the bias of ``out_proj``, and nothing else."""

from typing import Any, Optional

from torch import Tensor


def attend_without_heads(
    module: Any, query: Tensor, key: Optional[Tensor], weights: bool, per_head: bool, before_softmax: bool
) -> tuple[Tensor, Optional[Tensor]]:
    """Return ``out_proj``'s bias for every position (zeros where there is none); no projection, no cache.

    Args:
        weights: also return attention weights: zeros (batch, tgt, src). Only the given keys count as src: those of
            earlier steps of self-attention are not known, extra ones (``add_bias_kv``, ``add_zero_attn``) left out.
        per_head: return (1, batch, tgt, src) instead: a mean over no head at all would be NaN.
        before_softmax: return scores and values of no head instead: (0, tgt, src), (0, src, head_dim).
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
