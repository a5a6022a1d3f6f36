"""Load a checkpoint's model with fairseq, with one-line errors."""

import argparse
import ast
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fairseq import checkpoint_utils

from fairseq_headprune.checkpoints import State, saved_settings
from fairseq_headprune.models.starting import refuse_other_heads

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
    refuse_other_heads(argparse.Namespace(**overrides), saved_settings(state), "take it out of --model-overrides")
    with _one_line_load_errors(path):
        models, saved = checkpoint_utils.load_model_ensemble([path], {**_RECOMPUTING, **overrides}, task)
    return models[0], saved


@contextmanager
def _one_line_load_errors(path: str) -> Iterator[None]:
    """Replace torch's long report about weights that do not fit by a one-line error."""
    try:
        yield
    except RuntimeError as error:
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
