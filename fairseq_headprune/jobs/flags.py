"""Parses the flags of later processes before anything starts: a wrong one would only be noticed after other work."""

import json
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

#: settings that fairseq reads as JSON, when the model is built
_JSON = ("eval_bleu_args", "eval_bleu_detok_args")


def training_settings(words: Sequence[str]) -> dict[str, Any]:
    """Return the settings that fairseq-train makes of its arguments.

    Raises:
        ValueError: it would refuse them.
    """
    from fairseq import options

    from fairseq_headprune import plugin  # noqa: F401  (registers)

    # fairseq reads sys.argv while it builds the parser.
    before, sys.argv = sys.argv, ["fairseq-train", *words]
    try:
        parser = options.get_training_parser()
        parser.error = _refuse  # type: ignore[method-assign]
        found = vars(options.parse_args_and_arch(parser, list(words)))
    except RuntimeError as error:
        if str(error):
            raise
        found = {}  # fairseq's error without a text: there is no architecture
    finally:
        sys.argv = before
    given = {name: found.get(name) for name in ("arch", "optimizer")}
    given["max-tokens or --batch-size"] = found.get("max_tokens") or found.get("batch_size")
    missing = next((name for name, value in given.items() if not value), None)
    if missing is not None:
        _refuse(f"--{missing} is missing")
    for name in _JSON:
        text = found.get(name) or "{}"
        try:
            right = isinstance(json.loads(text), dict)
        except ValueError:
            right = False
        if not right:
            _refuse(f"--{name.replace('_', '-')} {text!r} is no JSON object; put it in single quotes there")
    return found


def _refuse(message: str) -> NoReturn:
    raise ValueError(f"fairseq-train would refuse its flags: {message}")
