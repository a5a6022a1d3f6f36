"""What trained models answer under the masks of a comparison.

``python -m fairseq_headprune.studies.pruners.answers JOB.json`` answers the cells of one file.
"""

import logging
import sys
import time
from itertools import groupby
from pathlib import Path
from typing import Any

from fairseq_headprune.files import read_json, write_text
from fairseq_headprune.importance.settings import ScoreSettings
from fairseq_headprune.jobs.leash import end_with_parent
from fairseq_headprune.jobs.methods import LEARNED
from fairseq_headprune.jobs.train import best, open_model
from fairseq_headprune.studies.folder import StudyFolder
from fairseq_headprune.studies.pruners.masks import MadeMask, importance_masks, learned_mask, random_mask

#: method -> how derivatives are averaged: eq. 21, and the sign error of the published comparison
_REDUCTIONS = {"michel": "sentence", "michel-signed": "signed"}


def run(job: dict[str, Any]) -> None:
    """Answer under every mask of a job, and add each cell to the study when it is done.

    Args:
        job: ``folder`` of the study; ``generate`` (data folder and flags of fairseq-generate); ``valid`` (what
            checkpoints were chosen by); ``step`` and ``sentences`` of importance; ``cells``, those of one checkpoint
            after each other.
    """
    study = StudyFolder(job["folder"])
    done = study.cells()
    cells = [cell for cell in job["cells"] if cell["id"] not in done]
    for checkpoint, of_one in groupby(cells, lambda cell: cell["checkpoint"]):
        _of_one_model(study, job, checkpoint, list(of_one))


def _of_one_model(study: StudyFolder, job: dict[str, Any], checkpoint: str, cells: list[dict[str, Any]]) -> None:
    session = open_model(study.path / checkpoint, job["generate"], cells[0]["split"])
    facts = {"checkpoint_sha256": session.checkpoint["sha256"], "best": best(session.path, job["valid"])}
    masks = _masks(session, job, cells)
    evaluators: dict[str, Any] = {}
    for cell, made in zip(cells, masks, strict=True):
        split = cell["split"]
        if split not in evaluators:
            evaluators[split] = session.evaluator(split)
            _write_references(study.path, split, evaluators[split].references)
        began = time.perf_counter()
        with session.gates.masked(made.mask):
            sentences = evaluators[split].answers()
        seconds = round(time.perf_counter() - began, 2)
        study.write_hypotheses(cell["id"], sentences)
        study.write_mask(cell["id"], made.mask.to_dict())
        kept = {component: ["".join(map(str, row)) for row in rows] for component, rows in made.mask.rows.items()}
        study.append({**cell, **facts, **made.facts, "kept": kept, "translate_seconds": seconds})


def _masks(session: Any, job: dict[str, Any], cells: list[dict[str, Any]]) -> list[MadeMask]:
    stored = session.gates.mask()
    session.gates.set_mask(None)
    ranked: dict[str, dict[int, MadeMask]] = {}
    masks = []
    for cell in cells:
        method, count = cell["method"], cell["count"]
        if method in _REDUCTIONS:
            if method not in ranked:
                counts = [other["count"] for other in cells if other["method"] == method]
                settings = ScoreSettings(reduction=_REDUCTIONS[method], sentences=job["sentences"])
                ranked[method] = importance_masks(session, counts, settings, job["step"])
            masks.append(ranked[method][count])
        elif method in LEARNED:
            masks.append(learned_mask(session.path, count))
        elif method == "random-after":
            masks.append(MadeMask(random_mask(session.gates.shape, count, cell["seed"]), {}))
        else:
            masks.append(MadeMask(stored, {}))
    return masks


def _write_references(folder: Path, split: str, references: list[str]) -> None:
    (folder / "references").mkdir(exist_ok=True)
    write_text(folder / "references" / f"{split}.txt", "".join(f"{line}\n" for line in references))


if __name__ == "__main__":
    end_with_parent()
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    run(read_json(sys.argv[1]))
