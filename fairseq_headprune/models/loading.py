"""A checkpoint's model, built and filled by fairseq, with errors of one line."""

import argparse
import ast
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fairseq import checkpoint_utils

from fairseq_headprune.checkpoints import State, saved_settings
from fairseq_headprune.models.starting import refuse_other_heads

#: Settings of training that are in the way of derivatives by anything but parameters, and change no value.
_RECOMPUTING = {"checkpoint_activations": False, "offload_activations": False}

#: what fairseq and its models make of settings of another type, or of parts that are missing
_OF_STRUCTURE = (Exception, KeyError, TypeError, AttributeError, IndexError, AssertionError)


def model_overrides(text: str) -> dict[str, Any]:
    """Read ``--model-overrides``: a Python dictionary.

    Raises:
        ValueError: it is something else.
    """
    try:
        found = ast.literal_eval(text or "{}")
    except (ValueError, SyntaxError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise ValueError(f"--model-overrides {text}: give a Python dictionary, as in \"{{'dropout': 0.1}}\"")
    return found


def load_model(path: str, state: State, overrides: dict[str, Any], task: Any) -> tuple[Any, Any]:
    """Return the model of a checkpoint that was read already, and its settings; it recomputes no activations.

    Args:
        overrides: replace settings of the checkpoint.

    Raises:
        ValueError: weights that do not fit the settings, or overrides that would give another model.
    """
    refuse_other_heads(argparse.Namespace(**overrides), saved_settings(state), "take it out of --model-overrides")
    with _one_line_load_errors(path):
        models, saved = checkpoint_utils.load_model_ensemble([path], {**_RECOMPUTING, **overrides}, task)
    return models[0], saved


@contextmanager
def _one_line_load_errors(path: str) -> Iterator[None]:
    """Turn torch's long report about weights that do not fit into a short error."""
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
