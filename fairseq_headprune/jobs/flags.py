"""Parses the flags of later processes before anything starts: a wrong one would only be noticed after other work."""

import sys
from collections.abc import Sequence
from typing import Any, NoReturn


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
        return vars(options.parse_args_and_arch(parser, list(words)))
    finally:
        sys.argv = before


def _refuse(message: str) -> NoReturn:
    raise ValueError(f"fairseq-train would refuse its flags: {message}")
