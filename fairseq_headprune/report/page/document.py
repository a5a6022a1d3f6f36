"""What goes into the report page: one JSON document of one or more study folders."""

import importlib.metadata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_headprune import __version__
from fairseq_headprune.files import PathLike
from fairseq_headprune.report.page.curves import pruning, sweep, together
from fairseq_headprune.report.page.random_study import random_study
from fairseq_headprune.report.page.single_heads import ablation, kept_heads
from fairseq_headprune.report.study_tables import measure_of
from fairseq_headprune.report.tables import Marked, Table
from fairseq_headprune.studies.folder import StudyFolder
from fairseq_headprune.studies.provenance import git_commit
from fairseq_headprune.studies.values import plain

FORMAT = "headprune.report/1"

#: The verbs whose studies can be shown.
KINDS = ("ablate", "keep-one", "prune", "sweep-epochs", "random-study")


def document(paths: Sequence[PathLike], title: str, examples: int = 2) -> dict[str, Any]:
    """Collect studies.

    Args:
        paths: their folders; one that is named twice is shown once.
        title: of the page.
        examples: how many sentences are shown of each mask of one head.

    Returns:
        ``studies``: an entry each with its numbers, tables and provenance; ``together``: charts of several of them.

    Raises:
        FileNotFoundError, ValueError: a folder that holds no study, a damaged one, or one of another verb.
    """
    folders = {Path(path).resolve(): _open(path) for path in paths}
    names = [folder.path.resolve().name for folder in folders.values()]
    studies = []
    for folder, name in zip(folders.values(), names, strict=True):
        try:
            studies.append(_study(folder, name if names.count(name) == 1 else str(folder.path), examples))
        except KeyError as error:
            raise ValueError(f"{folder.path} is damaged: {error} is not in it; make the study again") from error
    return {
        "format": FORMAT,
        "title": title,
        "made_with": {
            "headprune": __version__,
            "git": git_commit(),
            "sacrebleu": importlib.metadata.version("sacrebleu"),
        },
        "studies": studies,
        "together": together(studies),
    }


def summary(value: dict[str, Any]) -> list[dict[str, Any]]:
    """Say in a few numbers what a document holds of each study."""
    return [
        {
            **{name: study[name] for name in ("name", "path", "kind", "done", "planned", "missing", "found")},
            "split": study["provenance"]["settings"]["data"]["split"],
            "maps": len(study["maps"]),
            "charts": len(study["charts"]),
            "tables": sum("table" in part for part in study["parts"]),
            "examples": sum(len(cell.get("examples") or []) for cell in _map_cells(study)),
        }
        for study in value["studies"]
    ]


def _open(path: PathLike) -> StudyFolder:
    try:
        folder = StudyFolder(path)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error}; name folders that headprune {', '.join(KINDS)} made") from error
    kind = folder.settings.get("study")
    if kind not in KINDS:
        raise ValueError(f"{path} is a study of headprune {kind}; a report shows studies of {', '.join(KINDS)}")
    return folder


def _study(folder: StudyFolder, name: str, examples: int) -> dict[str, Any]:
    settings, kind = folder.settings, folder.settings["study"]
    collect = {
        "ablate": lambda: ablation(folder, examples),
        "keep-one": lambda: kept_heads(folder, examples),
        "prune": lambda: pruning(folder),
        "sweep-epochs": lambda: sweep(folder),
        "random-study": lambda: random_study(folder),
    }[kind]
    found = {"charts": [], **collect()}
    baseline = found.pop("baseline")
    entry = {
        "name": name,
        "path": str(folder.path),
        "kind": kind,
        **{key: settings[key] for key in ("alpha", "resamples", "seed")},
        "measure": measure_of(settings),
        "signature": baseline["signature"] if baseline else None,
        "unpruned": baseline["score"] if baseline else None,
        **found,
        "parts": [_part(part) for part in found["parts"]],
        "provenance": {"settings": settings, "runs": folder.runs},
    }
    return plain(entry, str(folder.path))


def _part(part: str | Table) -> dict[str, Any]:
    if isinstance(part, str):
        return {"text": part}
    return {"table": {"header": list(part.header), "align": part.align, "rows": [[*map(_cell, r)] for r in part.rows]}}


def _cell(cell: Any) -> dict[str, str]:
    mark = cell.mark if isinstance(cell, Marked) else ""
    return {"text": "-" if cell is None else str(cell), "mark": mark}


def _map_cells(study: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        cell for head_map in study["maps"] for part in head_map["components"] for row in part["layers"] for cell in row
    ]
