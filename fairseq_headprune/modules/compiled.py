"""Transformer layers that torch.compile speeds up while they train: fewer, larger kernels."""

import functools
from collections.abc import Callable

import torch
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase, TransformerEncoderLayerBase
from torch import Tensor, nn

#: Layers of one kind share their code. With and without padding, gates and masks it has more variants than torch
#: allows by default, and would then quietly run uncompiled.
_VARIANTS = 64


@functools.cache
def _compiled(forward: Callable) -> Callable:
    torch._dynamo.config.cache_size_limit = max(torch._dynamo.config.cache_size_limit, _VARIANTS)
    return torch.compile(forward, dynamic=True)


class CompiledEncoderLayer(TransformerEncoderLayerBase):
    """fairseq's encoder layer; compiled while training, plain in evaluation."""

    def forward(self, x: Tensor, *args, **kwargs):
        """Run the layer, (src, batch, d) -> (src, batch, d)."""
        if not self.training:
            return super().forward(x, *args, **kwargs)
        # The first layer gets a transposed view, the others do not: one layout means one variant.
        return _compiled(TransformerEncoderLayerBase.forward)(self, x.contiguous(), *args, **kwargs)


class CompiledDecoderLayer(TransformerDecoderLayerBase):
    """fairseq's decoder layer; compiled while training, plain in evaluation and incremental decoding."""

    def forward(self, x: Tensor, *args, **kwargs):
        """Run the layer, (tgt, batch, d) -> (tgt, batch, d) and what fairseq returns beside it."""
        if not self.training:
            return super().forward(x, *args, **kwargs)
        return _compiled(TransformerDecoderLayerBase.forward)(self, x.contiguous(), *args, **kwargs)


_KINDS = {TransformerEncoderLayerBase: CompiledEncoderLayer, TransformerDecoderLayerBase: CompiledDecoderLayer}


def compile_layers(model: nn.Module) -> None:
    """Make every transformer layer of a model one that is compiled in training, in place.

    Raises:
        ValueError: a layer is wrapped (``--checkpoint-activations``) or of another class.
    """
    layers = [*model.encoder.layers, *model.decoder.layers]
    for layer in layers:
        if type(layer) not in _KINDS or "forward" in vars(layer):
            raise ValueError(
                f"--compile-layers cannot compile {type(layer).__name__}; leave it or --checkpoint-activations away"
            )
    for layer in layers:
        layer.__class__ = _KINDS[type(layer)]
