"""Released fairseq checkpoints that are not supported, and what to use instead."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq_headprune.files import PathLike

_FOLDER = "take the Hugging Face folder of the same model and headprune import it"

#: task of a checkpoint -> the released models of that task, as Hugging Face folders
_OTHER_TASKS = {
    "translation_multi_simple_epoch": "facebook/m2m100_418M, facebook/nllb-200-distilled-600M, …",
    "multilingual_translation": "facebook/m2m100_418M, …",
    "translation_from_pretrained_bart": "facebook/mbart-large-en-ro, …",
    "multilingual_denoising": "facebook/mbart-large-cc25, …",
    "denoising": "facebook/bart-base, …",
    "translation_from_pretrained_xlm": "none",
}

#: suffixes of files with one part of a model: FSDP shards, model-parallel parts, experts
_PARTS = re.compile(r"-(shard\d+|model_part-\d+|rank-\d+)(?=\.pt$|-|$)")


def refuse_task(name: Any) -> None:
    """Refuse a checkpoint whose task adds its own symbols to the dictionaries.

    Raises:
        ValueError: the task is one of these.
    """
    if name in _OTHER_TASKS:
        known = f" ({_OTHER_TASKS[name]})" if _OTHER_TASKS[name] != "none" else ""
        raise ValueError(
            f"the task {name} is not supported, since it adds symbols of its own to the dictionaries; {_FOLDER}{known}"
        )


def parts_of(path: Path) -> list[str]:
    """Return the names of the files with the parts of a checkpoint that does not exist as a single file."""
    if not path.parent.is_dir():
        return []
    names = sorted(p.name for p in path.parent.glob(f"{re.escape(path.stem)}-*{path.suffix}"))
    return [name for name in names if _PARTS.search(name)]


def refuse_part(state: Mapping[str, Any], path: PathLike) -> None:
    """Refuse a file with only a part of a model.

    Raises:
        ValueError: it is such a file; the message says what to do instead.
    """
    weights = state.get("model") or {}
    flat = next((name for name in weights if str(name).split(".")[-1].startswith("flat_param")), None)
    name = Path(path).name
    part = _PARTS.search(name)
    # A file can be named a shard although its model is complete: if training saved one copy per process.
    named = part is not None and not part[1].startswith("shard")
    if "fsdp_metadata" in state or flat is not None or named:
        raise ValueError(f"{path}: {in_parts(name)}")


def in_parts(name: str) -> str:
    """Return the message for a model that is stored in parts, with advice."""
    return (
        f"the model is stored in several parts, of which {name} is one; load it with fairseq on as many processes as "
        f"it was trained on and save it whole, or {_FOLDER}"
    )
