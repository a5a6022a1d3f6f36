"""What need not be computed where an attention module has no heads, or a layer no feed-forward block."""

from typing import Any, Optional

from fairseq.modules.transformer_layer import TransformerDecoderLayerBase, TransformerEncoderLayerBase
from torch import Tensor, nn

_KNOWN = (TransformerEncoderLayerBase.forward, TransformerDecoderLayerBase.forward)

#: component -> name of the attention module in its layer; a layer norm's name follows from it
_NAMES = {"enc_self": "self_attn", "enc_dec": "encoder_attn", "dec_self": "self_attn"}


class UnreadNorm(nn.Module):
    """A layer norm whose output nobody reads: it returns its input, and keeps its parameters for the checkpoint.

    They are frozen, since distributed training would wait for their gradient.
    """

    @classmethod
    def adopt(cls, norm: nn.Module) -> None:
        """Turn any layer norm into one that computes nothing, in place."""
        norm.__class__ = cls
        norm.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the input."""
        return x


def skip_attention(layer: Any, component: str) -> None:
    """Let a layer compute nothing for an attention module without heads, which reads neither queries nor keys.

    The layer norm before it (pre-norm layers) is left out; encoder output and decoder input are not joined
    (``cross_self_attention``), and no weights are asked for that nobody reads. Other layers than fairseq's own
    transformer layers stay as they are.
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
    """Let a layer compute nothing for a feed-forward block that has no units, or is gone as a whole.

    The layer norm before it (pre-norm layers) is left out. Of a block that is gone nothing is added: in evaluation its
    output is of width 0.
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
