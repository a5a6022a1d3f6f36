"""Hashes of a checkpoint's training dictionaries, since weights fit any dictionaries of the same size."""

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fairseq_headprune.files import PathLike

#: the embeddings with one row per dictionary entry
_TABLES = {"source": "encoder.embed_tokens.weight", "target": "decoder.embed_tokens.weight"}


def hash_symbols(symbols: Iterable[str]) -> str:
    """Hash a dictionary's entries in order."""
    return hashlib.sha256("\n".join(symbols).encode()).hexdigest()


def noted_hashes(state: Mapping[str, Any]) -> dict[str, str]:
    """Return the dictionary hashes stored in a checkpoint, by side; empty if there are none."""
    return dict((state.get("task_state") or {}).get("dictionaries") or {})


def differing_sides(noted: Mapping[str, str], mine: Mapping[str, str]) -> str:
    """Return the sides whose hashes are known in both arguments and differ; empty if there are none."""
    return " and ".join(side for side, found in noted.items() if found != mine.get(side, found))


def hashes_from_data(state: Mapping[str, Any], task: Mapping[str, Any], path: PathLike) -> dict[str, str]:
    """Hash the dictionaries in the training data folder of a checkpoint without stored hashes (as from stock fairseq).

    Includes only reliable dictionaries: those that still exist, are not newer than the checkpoint and have as many
    entries as the model has embeddings.

    Args:
        task: the task's settings in the checkpoint.
        path: the checkpoint; its modification time is used.
    """
    from fairseq.data import Dictionary, data_utils

    folder = Path(str(task.get("data") or "").split(os.pathsep)[0])
    if not folder.is_dir() or not task.get("data"):
        return {}
    languages = [task.get("source_lang"), task.get("target_lang")]
    if None in languages:
        languages = list(data_utils.infer_language_pair(str(folder)))
    found = {}
    for side, language in zip(_TABLES, languages, strict=True):
        file, table = folder / f"dict.{language}.txt", state["model"].get(_TABLES[side])
        if language is None or table is None or not file.is_file() or file.stat().st_mtime > os.path.getmtime(path):
            continue
        try:
            symbols = Dictionary.load(str(file)).symbols
        except Exception:  # whatever fairseq says of a file that is no dictionary (any more)
            continue
        if len(symbols) == table.size(0):
            found[side] = hash_symbols(symbols)
    return found
