"""Parses the flags of later processes before anything starts: a wrong one would only be noticed after other work."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from fairseq_headprune.errors import errors_of

#: settings that fairseq reads as JSON, when the model is built
_JSON = ("eval_bleu_args", "eval_bleu_detok_args")


def training_settings(words: Sequence[str]) -> dict[str, Any]:
    """Return the settings that fairseq-train makes of its arguments.

    Raises:
        ValueError: it would refuse them, or a split of a translation task that it reads is empty or damaged.
        FileNotFoundError: there is no such split.
    """
    from fairseq import options

    from fairseq_headprune.generation_flags import called  # registers our tasks and models, too

    try:
        with called("fairseq-train", words):
            parser = options.get_training_parser()
            parser.error = _refuse  # type: ignore[method-assign]
            found = vars(options.parse_args_and_arch(parser, list(words)))
    except RuntimeError as error:
        if str(error):
            raise
        found = {}  # fairseq's error without a text: there is no architecture
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
    if found["task"] == "translation_headprune":
        _check_splits(found)
    return found


def _check_splits(found: Mapping[str, Any]) -> None:
    """Check the files of the splits that a training reads."""
    from fairseq.data.data_utils import infer_language_pair

    from fairseq_headprune.binarised import check_split_files

    data = found["data"].split(os.pathsep)[0]
    pair = found["source_lang"], found["target_lang"]
    source, target = infer_language_pair(data) if None in pair else pair
    for split in [found["train_subset"], *([] if found["disable_validation"] else found["valid_subset"].split(","))]:
        if not any(Path(data).glob(f"{split}.*")):
            raise FileNotFoundError(f"{data} has no split {split!r}, which fairseq-train reads")
        with errors_of(f"the split {split!r} of {data}, which fairseq-train reads"):
            check_split_files(data, split, source, target)


def _refuse(message: str) -> NoReturn:
    raise ValueError(f"fairseq-train would refuse its flags: {message}")
