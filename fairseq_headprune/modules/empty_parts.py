"""Skips computations for attention modules without heads and layers without a feed-forward block."""

from typing import Any, Optional

from fairseq.modules.transformer_layer import TransformerDecoderLayerBase, TransformerEncoderLayerBase
from torch import Tensor, nn

_KNOWN = (TransformerEncoderLayerBase.forward, TransformerDecoderLayerBase.forward)

#: component -> name of the attention module in its layer, from which the name of its layer norm is derived
_NAMES = {"enc_self": "self_attn", "enc_dec": "encoder_attn", "dec_self": "self_attn"}


class UnreadNorm(nn.Module):
    """A layer norm whose output is not used: it returns its input, and keeps its parameters for the checkpoint.

    They are frozen, since distributed training would otherwise wait for their gradients.
    """

    @classmethod
    def adopt(cls, norm: nn.Module) -> None:
        """Turn a layer norm into one that computes nothing, in place."""
        norm.__class__ = cls
        norm.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the input."""
        return x


def skip_attention(layer: Any, component: str) -> None:
    """Skip the computations that a layer does only for an attention module without heads.

    This omits the layer norm before it (pre-norm layers), the concatenation of encoder output and decoder input
    (``cross_self_attention``), and attention weights that are not used. Layers other than fairseq's own transformer
    layers are unchanged.
    """
    if type(layer).forward not in _KNOWN:
        return
    name = _NAMES[component]
    if layer.normalize_before:
        UnreadNorm.adopt(getattr(layer, f"{name}_layer_norm"))
    if component == "enc_dec":
        layer.need_attn = False
    elif component == "dec_self":
        layer.cross_self_attention = False


def skip_ffn(layer: Any) -> None:
    """Skip the computations that a layer does only for a feed-forward block that is removed or has no units.

    This omits the layer norm before it (pre-norm layers). A removed block adds nothing: in evaluation mode its output
    has width 0.
    """
    if type(layer).forward not in _KNOWN:
        return
    if layer.normalize_before:
        UnreadNorm.adopt(layer.final_layer_norm)
    if not layer.fc2.has_block:
        layer.fc2.width_without_block = 0
        layer.residual_connection = _add_unless_nothing


def _add_unless_nothing(x: Tensor, residual: Tensor) -> Tensor:
    return residual + x if x.size(-1) else residual


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
