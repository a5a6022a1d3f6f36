"""fairseq's transformer with a gate on every attention head."""

from argparse import Namespace
from typing import Any, Optional

from fairseq.models import register_model, register_model_architecture
from fairseq.models.transformer import TransformerModel, transformer_legacy

from fairseq_headprune.checkpoints import GatedSettings
from fairseq_headprune.modules.attach import attach_gates

#: A layer number that no decoder has: "return no alignment".
_NO_LAYER = -1


@register_model("transformer_gated")
class TransformerGatedModel(TransformerModel):
    """The transformer of Vaswani et al. 2017 as fairseq builds it, with gated attention heads.

    Same flags, same parameters by name, same initial values for the same seed, same output while no gate is set; any
    checkpoint of fairseq's own ``transformer`` loads unchanged.
    """

    @classmethod
    def build_model(cls, args: Namespace, task: Any) -> "TransformerGatedModel":
        """Build the stock model, then attach gates to it."""
        model = super().build_model(args, task)
        attach_gates(model)
        if type(args) is Namespace:
            # fairseq saves this very object: whoever loads the checkpoint without the plugin is told what to do.
            args.__class__ = GatedSettings
        return model

    def forward(
        self,
        src_tokens,
        src_lengths,
        prev_output_tokens,
        return_all_hiddens: bool = True,
        features_only: bool = False,
        alignment_layer: Optional[int] = None,
        alignment_heads: Optional[int] = None,
    ):
        """Run encoder and decoder; unlike stock, training computes no alignment unless ``alignment_layer`` asks for it.

        fairseq's decoder returns the last layer's attention weights on every forward, and no translation criterion
        reads them.
        """
        if alignment_layer is None and self.training:
            alignment_layer = _NO_LAYER
        return super().forward(
            src_tokens,
            src_lengths,
            prev_output_tokens,
            return_all_hiddens=return_all_hiddens,
            features_only=features_only,
            alignment_layer=alignment_layer,
            alignment_heads=alignment_heads,
        )


def _register_like_stock(suffix: str) -> None:
    """Register ``transformer_gated<suffix>`` with the defaults of fairseq's ``transformer<suffix>``."""
    name = {"": "base_architecture", "_tiny": "tiny_architecture"}.get(suffix, f"transformer{suffix}")
    register_model_architecture("transformer_gated", f"transformer_gated{suffix}")(getattr(transformer_legacy, name))


for _suffix in (
    "",
    "_tiny",
    "_iwslt_de_en",
    "_wmt_en_de",
    "_wmt_en_de_big",
    "_vaswani_wmt_en_de_big",
    "_vaswani_wmt_en_fr_big",
):
    _register_like_stock(_suffix)
