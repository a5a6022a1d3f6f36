"""fairseq's transformer with a gate on every attention head."""

from argparse import Namespace
from typing import Any, Optional

from fairseq.models import register_model, register_model_architecture
from fairseq.models.transformer import TransformerModel, transformer_legacy

from fairseq_headprune.models.starting import (
    carry_out_layouts,
    refuse_unsupported,
    settings_to_start_from,
    take_layouts,
)
from fairseq_headprune.modules.attach import attach_gates
from fairseq_headprune.parts.layout import SETTING
from fairseq_headprune.removal.settings import SUFFIXES

#: A layer number that no decoder has, which means "return no alignment".
NO_LAYER = -1


@register_model("transformer_gated")
class TransformerGatedModel(TransformerModel):
    """The transformer of Vaswani et al. 2017 as fairseq builds it, with gated attention heads.

    It has the same flags, parameter names, initial values for the same seed, and output while no gate is set.
    Checkpoints of fairseq's own ``transformer`` load unchanged.
    """

    @classmethod
    def build_model(cls, args: Namespace, task: Any) -> "TransformerGatedModel":
        """Build the stock model, attach gates to it, and remove the heads that its checkpoint lacks.

        These are listed in a checkpoint's settings; training copies the list from the checkpoint it starts from
        (``--finetune-from-model``, ``--restore-file``), so that every later checkpoint has it, too.

        Raises:
            ValueError: the layout of heads has a newer version or does not fit the settings, or a setting is not
                supported.
        """
        refuse_unsupported(args)
        if isinstance(args, Namespace) and not hasattr(args, SETTING):
            take_layouts(args, settings_to_start_from(args))
        model = super().build_model(args, task)
        cls.adapt(model, args, task)
        carry_out_layouts(args, attach_gates(model))
        return model

    @classmethod
    def adapt(cls, model: Any, args: Namespace, task: Any) -> None:
        """Modify a built model before it gets gates; a hook for architectures that differ slightly."""

    def forward(self, src_tokens, src_lengths, prev_output_tokens, *, alignment_layer: Optional[int] = None, **options):
        """Run encoder and decoder; unlike in fairseq, training computes no alignment without ``alignment_layer``.

        fairseq's decoder returns the last layer's attention weights in every forward pass, although no translation
        criterion uses them.
        """
        if alignment_layer is None and self.training:
            alignment_layer = NO_LAYER
        return super().forward(src_tokens, src_lengths, prev_output_tokens, alignment_layer=alignment_layer, **options)


def _register_like_stock(suffix: str) -> None:
    """Register ``transformer_gated<suffix>`` with the defaults of fairseq's ``transformer<suffix>``."""
    name = {"": "base_architecture", "_tiny": "tiny_architecture"}.get(suffix, f"transformer{suffix}")
    register_model_architecture("transformer_gated", f"transformer_gated{suffix}")(getattr(transformer_legacy, name))


for _suffix in SUFFIXES:
    _register_like_stock(_suffix)
