"""The checkpoint that a training starts from: a model takes its structure from there, before fairseq loads it."""

import os
from argparse import Namespace
from collections.abc import Mapping
from typing import Any, Optional

from fairseq_headprune.checkpoints import GatedSettings, State, read_state, saved_settings
from fairseq_headprune.modules.attach import GatedParts
from fairseq_headprune.modules.shrink import shrink
from fairseq_headprune.parts.layout import FFN_SETTING, SETTING, layout_of_settings
from fairseq_headprune.removal.settings import refuse_unfit


def state_to_start_from(args: Any) -> Optional[State]:
    """Return the checkpoint that fairseq-train will load, None if there is none.

    One that cannot be read is left to fairseq, which loads it next and says what is wrong.
    """
    path = getattr(args, "restore_file", None) or ""
    if path == "checkpoint_last.pt":
        path = os.path.join(getattr(args, "save_dir", None) or "", path)
        if not os.path.exists(path):
            path = getattr(args, "continue_once", None) or getattr(args, "finetune_from_model", None) or ""
    if not os.path.isfile(path):
        return None
    try:
        return read_state(path)
    except (ValueError, OSError):
        return None


def settings_to_start_from(args: Any) -> Optional[Namespace]:
    """Return the model settings in that checkpoint, None if there are none."""
    state = state_to_start_from(args)
    try:
        return None if state is None else saved_settings(state)
    except ValueError:
        return None


def refuse_other_heads(settings: Any, saved: Any, way_out: str = "") -> None:
    """Refuse to build a model with other numbers of heads than the checkpoint it takes its weights from.

    The weights themselves fit any number of heads, and give another model.

    Args:
        settings: of the model that is built; what it does not say is not compared.
        saved: the checkpoint's, None if there is no checkpoint.
        way_out: what to do instead (default: give the flag that says the checkpoint's number).

    Raises:
        ValueError: the numbers differ.
    """
    for side in ("encoder", "decoder"):
        asked, found = _heads(settings, side), _heads(saved, side)
        if asked is not None and found is not None and asked != found:
            raise ValueError(
                f"{side}_attention_heads {asked}: the checkpoint was trained with {found} heads a layer, and its "
                f"weights do not tell; {way_out or f'give --{side}-attention-heads {found}'}"
            )


def refuse_unsupported(settings: Any) -> None:
    """Refuse settings of fairseq under which the layers that hold heads or feed-forward units are others.

    Raises:
        ValueError: ``quant_noise_scalar`` or ``base_layers`` is on.
    """
    if getattr(settings, "quant_noise_scalar", None):
        raise ValueError(
            "--quant-noise-scalar is not supported: it puts quantised layers in the place of those that have gates "
            "(a trained model is read without them with --model-overrides \"{'quant_noise_scalar': 0}\")"
        )
    if getattr(settings, "base_layers", None):
        raise ValueError("--base-layers is not supported: its experts are divided among the processes of a training")


def _heads(settings: Any, side: str) -> Any:
    """Return ``encoder_attention_heads``, or ``attention_heads`` of the part ``encoder`` (fairseq's hydra form)."""
    found = getattr(settings, f"{side}_attention_heads", None)
    part = getattr(settings, side, None)
    if found is None and part is not None:
        found = part.get("attention_heads") if isinstance(part, Mapping) else getattr(part, "attention_heads", None)
    return found


def take_layouts(args: Any, settings: Optional[Namespace]) -> None:
    """Give a model that will be built the heads and feed-forward parts of these settings."""
    for name in (SETTING, FFN_SETTING):
        setattr(args, name, getattr(settings, name, None))


def carry_out_layouts(args: Any, gates: GatedParts) -> None:
    """Remove from a model what its settings say it lacks, and make fairseq save settings that name the plugin.

    Raises:
        ValueError: a layout is of a newer version or does not fit the model.
    """
    layout = layout_of_settings(args)
    if layout is not None:
        refuse_unfit(args)
        shrink(gates, layout)
    name_plugin(args)


def name_plugin(args: Any) -> None:
    """Make fairseq save model settings that name the plugin: it saves this very object.

    Loading the checkpoint without the plugin then fails with an error that names the plugin.
    """
    if type(args) is Namespace:
        args.__class__ = GatedSettings
