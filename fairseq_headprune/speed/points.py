"""Masks chosen by pruning methods, with labels or scores, to be measured along with random masks."""

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fairseq_headprune.files import PathLike, read_json, sha256
from fairseq_headprune.parts import Mask


def named_masks(pairs: Sequence[str]) -> dict[str, tuple[Mask, dict[str, Any]]]:
    """Read masks given as ``NAME=FILE``: name -> the mask, and its description.

    Raises:
        ValueError: not in this form, a repeated name, or not a mask file.
        FileNotFoundError: there is no such file.
    """
    found: dict[str, tuple[Mask, dict[str, Any]]] = {}
    for pair in pairs:
        name, equals, path = pair.partition("=")
        if not (name and equals and path):
            raise ValueError(f"--mask-files {pair!r}: give NAME=FILE")
        if name in found:
            raise ValueError(f"--mask-files: the name {name!r} is given twice")
        found[name] = (Mask.load(path), {"name": name, **_file(path)})
    return found


def read_points(path: PathLike, study: PathLike | None = None) -> list[tuple[Mask | None, dict[str, Any]]]:
    """Read a list of ``{"method", "heads", "mask", "score"}``: each mask, and its description.

    ``mask`` is a file, relative to the list's folder, or null for the whole model (a mask of None). ``heads`` is
    optional. Instead of a list, a result of ``compare_pruners.py`` can be given with its study folder (for the masks).

    Raises:
        ValueError: not in this form (the message names the entry), or a comparison without its study folder.
        FileNotFoundError: there is no such file.
    """
    value, folder = read_json(path), Path(path).parent
    if isinstance(value, Mapping) and isinstance(value.get("rows"), list):
        if study is None:
            raise ValueError(f"{path}: a comparison; say with --study where its masks are (its --work)")
        value, folder = [_of_row(row) for row in value["rows"]], Path(study) / "masks"
    if not isinstance(value, list) or not value:
        raise ValueError(f'{path}: expected a list of {{"method", "heads", "mask", "score"}}')
    return [_point(f"{path} entry {number}", entry, folder) for number, entry in enumerate(value)]


def _of_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Describe a comparison's row as a point; its number of heads is the requested one, if any."""
    seed = {} if row.get("seed") is None else {"seed": row["seed"]}
    return {"method": row.get("method"), "score": row.get("score"), "mask": f"{row.get('id')}.json", **seed}


def _point(where: str, entry: Any, folder: Path) -> tuple[Mask | None, dict[str, Any]]:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("method"), str) or "mask" not in entry:
        raise ValueError(f'{where}: expected an object with "method", "mask" and "score"')
    score, file = entry.get("score"), entry["mask"]
    if isinstance(score, bool) or not isinstance(score, (int, float)) or not math.isfinite(score):
        raise ValueError(f"{where}: the score must be a finite number, found {score!r}")
    about = {"method": entry["method"], "score": score, **({"seed": entry["seed"]} if "seed" in entry else {})}
    if file is None:
        return None, about
    if not isinstance(file, str):
        raise ValueError(f'{where}: "mask" is the name of a file, or null for the whole model; found {file!r}')
    mask = Mask.load(folder / file)
    kept = len(mask.kept())
    if entry.get("heads", kept) != kept:
        raise ValueError(f'{where}: "heads" is {entry["heads"]!r}, but {file} keeps {kept} heads')
    return mask, {**about, **_file(folder / file)}


def _file(path: PathLike) -> dict[str, str]:
    return {"mask": os.path.basename(path), "sha256": sha256(path)}
