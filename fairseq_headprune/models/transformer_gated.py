"""fairseq's transformer with a gate on every attention head."""

import os
from argparse import Namespace
from typing import Any, Optional

from fairseq.models import register_model, register_model_architecture
from fairseq.models.transformer import TransformerModel, transformer_legacy

from fairseq_headprune.checkpoints import GatedSettings, read_state, saved_settings
from fairseq_headprune.modules.attach import attach_gates
from fairseq_headprune.modules.shrink import shrink
from fairseq_headprune.removal.ffn_layout import SETTING as FFN_SETTING
from fairseq_headprune.removal.ffn_layout import FfnLayout
from fairseq_headprune.removal.layout import SETTING, HeadLayout
from fairseq_headprune.removal.settings import SUFFIXES, refuse_unfit

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
        """Build the stock model, attach gates to it, and remove the heads that its checkpoint does not have.

        Which heads those are is in the settings of a checkpoint; training takes it from the checkpoint it starts
        from (``--finetune-from-model``, ``--restore-file``), so that every later checkpoint has it, too.

        Raises:
            ValueError: the layout of heads is of a newer version or does not fit the settings.
        """
        if isinstance(args, Namespace) and not hasattr(args, SETTING):
            settings = _settings_to_start_from(args)
            for name in (SETTING, FFN_SETTING):
                setattr(args, name, getattr(settings, name, None))
        model = super().build_model(args, task)
        gates = attach_gates(model)
        layout = getattr(args, SETTING, None)
        if layout is not None:
            refuse_unfit(args)
            shrink(gates, HeadLayout.from_dict(layout, SETTING))
        if getattr(args, FFN_SETTING, None) is not None:
            gates.ffn.shrink(FfnLayout.from_dict(getattr(args, FFN_SETTING)))
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


def _settings_to_start_from(args: Namespace) -> Optional[Namespace]:
    """Return the settings in the checkpoint that fairseq-train will load, None if there is none.

    A checkpoint that cannot be read is left to fairseq, which loads it next and says what is wrong.
    """
    path = getattr(args, "restore_file", None) or ""
    if path == "checkpoint_last.pt":
        path = os.path.join(getattr(args, "save_dir", None) or "", path)
        if not os.path.exists(path):
            path = getattr(args, "continue_once", None) or getattr(args, "finetune_from_model", None) or ""
    if not os.path.isfile(path):
        return None
    try:
        return saved_settings(read_state(path))
    except (ValueError, OSError):
        return None


def _register_like_stock(suffix: str) -> None:
    """Register ``transformer_gated<suffix>`` with the defaults of fairseq's ``transformer<suffix>``."""
    name = {"": "base_architecture", "_tiny": "tiny_architecture"}.get(suffix, f"transformer{suffix}")
    register_model_architecture("transformer_gated", f"transformer_gated{suffix}")(getattr(transformer_legacy, name))


for _suffix in SUFFIXES:
    _register_like_stock(_suffix)
