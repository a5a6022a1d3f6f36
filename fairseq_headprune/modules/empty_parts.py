"""What fairseq's transformer layers need not compute when a part of them has no heads, or no feed-forward block."""

from typing import Any

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
