"""The checkpoint that a model's structure and weights come from, in training and in evaluation."""

import argparse
import ast
import os
from argparse import Namespace
from collections.abc import Mapping
from typing import Any, Optional

from fairseq import checkpoint_utils

from fairseq_headprune.checkpoints import GatedSettings, State, read_state, saved_settings
from fairseq_headprune.errors import errors_of
from fairseq_headprune.modules.attach import GatedParts
from fairseq_headprune.modules.shrink import shrink
from fairseq_headprune.parts.layout import FFN_SETTING, SETTING, layout_of_settings
from fairseq_headprune.removal.settings import refuse_unfit


def state_to_start_from(args: Any) -> Optional[State]:
    """Return the checkpoint that fairseq-train will load; None if there is none.

    An unreadable one is left to fairseq, which loads it next and reports the error.
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
    """Refuse to build a model whose numbers of heads differ from those of the checkpoint it takes its weights from.

    The weights would fit any number of heads, but give another model.

    Args:
        settings: of the model to be built; missing ones are not compared.
        saved: the checkpoint's settings, None if there is no checkpoint.
        way_out: advice for the user (default: set the flag to the checkpoint's number).

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
    """Refuse settings of fairseq that change the layers of heads or feed-forward units.

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
    """Return ``encoder_attention_heads``, or ``attention_heads`` of ``encoder`` in fairseq's hydra form."""
    found = getattr(settings, f"{side}_attention_heads", None)
    part = getattr(settings, side, None)
    if found is None and part is not None:
        found = part.get("attention_heads") if isinstance(part, Mapping) else getattr(part, "attention_heads", None)
    return found


def take_layouts(args: Any, settings: Optional[Namespace]) -> None:
    """Copy the layouts of heads and feed-forward parts from ``settings`` to those of the model to be built."""
    for name in (SETTING, FFN_SETTING):
        setattr(args, name, getattr(settings, name, None))


def carry_out_layouts(args: Any, gates: GatedParts) -> None:
    """Remove the parts that the model's settings say are missing, and make fairseq save settings that name the plugin.

    Raises:
        ValueError: a layout is of a newer version or does not fit the model.
    """
    layout = layout_of_settings(args)
    if layout is not None:
        refuse_unfit(args)
        shrink(gates, layout)
    name_plugin(args)


def name_plugin(args: Any) -> None:
    """Make fairseq save model settings that name the plugin, by changing ``args``, the object that it saves.

    Loading the checkpoint without the plugin then fails with an error that names it.
    """
    if type(args) is Namespace:
        args.__class__ = GatedSettings


#: Training settings that prevent derivatives w.r.t. anything but parameters, and change no value.
_RECOMPUTING = {"checkpoint_activations": False, "offload_activations": False}

#: errors of fairseq and its models on settings of the wrong type or missing ones
_OF_STRUCTURE = (Exception, KeyError, TypeError, AttributeError, IndexError, AssertionError)


def model_overrides(text: str) -> dict[str, Any]:
    """Parse ``--model-overrides``, a Python dictionary.

    Raises:
        ValueError: it is not a dictionary.
    """
    try:
        found = ast.literal_eval(text or "{}")
    except (ValueError, SyntaxError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise ValueError(f"--model-overrides {text}: give a Python dictionary, as in \"{{'dropout': 0.1}}\"")
    return found


def load_model(path: str, state: State, overrides: dict[str, Any], task: Any) -> tuple[Any, Any]:
    """Return the model of a loaded checkpoint, with activation checkpointing off, and its settings.

    Args:
        overrides: settings that replace those of the checkpoint.

    Raises:
        ValueError: the weights do not fit the settings, or overrides would give another model.
    """
    with errors_of(path):
        settings = saved_settings(state)
    refuse_other_heads(argparse.Namespace(**overrides), settings, "take it out of --model-overrides")
    try:
        models, saved = checkpoint_utils.load_model_ensemble([path], {**_RECOMPUTING, **overrides}, task)
        return models[0], saved
    except RuntimeError as error:
        # In one line, instead of torch's long report about weights that do not fit.
        if "Error(s) in loading" not in str(error):
            raise
        lines = [line.strip() for line in str(error).splitlines()[1:] if line.strip()]
        more = f" (and {len(lines) - 3} more)" if len(lines) > 3 else ""
        raise ValueError(f"{path} does not fit the model its settings describe: {' '.join(lines[:3])}{more}") from error
    except Exception as error:
        if type(error) not in _OF_STRUCTURE:
            raise
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise ValueError(f"{path}: its settings or parts are not as fairseq writes them ({said})") from error
