"""What is stored, read again: studies by verb, documents that are no studies of masks, and the p of result files."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_headprune.evaluation.recorded import recomputed
from fairseq_headprune.evaluation.statistics import score_of
from fairseq_headprune.files import PathLike, check_format, read_json, write_json
from fairseq_headprune.glue.metrics import label_score
from fairseq_headprune.report.document import Document
from fairseq_headprune.report.page.document import page_entry
from fairseq_headprune.studies.ablate import Ablate
from fairseq_headprune.studies.examples import with_examples
from fairseq_headprune.studies.folder import StudyFolder
from fairseq_headprune.studies.keep_one import KeepOne
from fairseq_headprune.studies.lottery import LotteryFind
from fairseq_headprune.studies.lottery_retrain import LotteryRetrain
from fairseq_headprune.studies.prune import Prune
from fairseq_headprune.studies.random_study import RandomStudy
from fairseq_headprune.studies.study import Study
from fairseq_headprune.studies.sweep import Sweep

_STUDIES: tuple[type[Study], ...] = (Ablate, KeepOne, Prune, Sweep, RandomStudy, LotteryFind, LotteryRetrain)

#: verb -> its study
KINDS: dict[str, type[Study]] = {study.name: study for study in _STUDIES}

FORMAT = "headprune.document/1"
NAME = "document.json"


def read_study(path: PathLike) -> Study:
    """Open a stored study, without its model.

    Raises:
        FileNotFoundError, ValueError: the folder holds no study, or one of an unknown verb.
    """
    try:
        folder = StudyFolder(path)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error}; name folders that headprune {', '.join(KINDS)} made") from error
    kind = folder.settings.get("study")
    if kind not in KINDS:
        raise ValueError(f"{path} is a study of headprune {kind}; a report shows studies of {', '.join(KINDS)}")
    return KINDS[kind](folder.settings, folder=folder)


def page_result(study: Study, examples: int) -> Document:
    """Return the document of a stored study for the report page, which counts layers and heads from 0.

    Args:
        examples: maximum number of example sentences for each mask of one head.

    Raises:
        ValueError: the folder is damaged.
    """
    study.first = 0
    try:
        cells = study.cells()
        document = with_examples(study.result(cells), study.folder, examples)
        tested = [name for name, cell in cells.items() if cell.get("p") is not None]
        lost = [name for name in tested if not study.folder.hyp_path(name).is_file()]
        if lost:
            count = f"{len(lost)} of {len(cells)} cells"
            document.notes.append(f"the outputs of {count} are not kept: their p cannot be computed again")
        return document
    except KeyError as error:
        raise ValueError(f"{study.folder.path} is damaged: {error} is not in it; make the study again") from error


def check_folder(path: PathLike, name: str = NAME, other: str = "something else") -> Path:
    """Return the folder that a document may be stored in: a new one, an empty one, or one that holds this file.

    Raises:
        ValueError: it holds something else.
    """
    folder = Path(path)
    if folder.exists() and not (folder.is_dir() and ((folder / name).exists() or not any(folder.iterdir()))):
        raise ValueError(f"{path} is there and holds {other}; name another folder")
    return folder


def store(document: Document, kind: str, folder: Path) -> None:
    """Write a document, with its numbers and its entry on a report page.

    Args:
        kind: the verb.
    """
    folder.mkdir(parents=True, exist_ok=True)
    document.provenance["study"] = str(folder)
    content = {"format": FORMAT, "page": page_entry(folder.name, kind, document), "data": document.data}
    write_json(folder / NAME, content)


def is_stored(path: PathLike) -> bool:
    """Whether a folder holds a stored document."""
    return (Path(path) / NAME).is_file()


def stored_entry(path: PathLike, name: str) -> dict[str, Any]:
    """Return the entry of a stored document on a report page, under this name.

    Raises:
        ValueError: the file is damaged or of another version.
    """
    file = Path(path) / NAME
    content = read_json(file)
    check_format(content, FORMAT, "document", "document file", str(file))
    if not isinstance(content.get("page"), dict) or "parts" not in content["page"]:
        raise ValueError(f"{file} is damaged: it has no page; make it again")
    return content["page"] | {"name": name, "path": str(path)}


def recomputed_p(value: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return ``score``, ``base`` (the score it is compared with) and ``p`` of every system or cell, by name.

    p is that of the paired bootstrap, before Holm's correction (:func:`~fairseq_headprune.evaluation.p_values.holm`).

    Args:
        value: a result that a verb printed with ``--json`` or wrote.

    Raises:
        KeyError: it holds no statistics; it is of an older version, or of a study whose folder has them.
        ValueError: they are damaged.
    """
    if not value.get("statistics"):
        raise KeyError("there are no sentence statistics in this result; make it again with this version (--json)")
    return {name: found for record in value["statistics"] for name, found in recomputed(record, _score).items()}


def _score(recipe: Mapping[str, Any]) -> Callable[[np.ndarray], np.ndarray]:
    return (label_score if "task" in recipe else score_of)(recipe)
