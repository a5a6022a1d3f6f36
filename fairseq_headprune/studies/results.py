"""Reading finished studies of masks: differences, Holm's correction, and the results of an ablation by head."""

from collections.abc import Iterable, Sequence
from typing import Any

from fairseq_headprune.evaluation.evaluator import BESIDE
from fairseq_headprune.evaluation.p_values import holm
from fairseq_headprune.files import PathLike, sha256
from fairseq_headprune.parts import HEADS, KEYS, Mask, Part
from fairseq_headprune.parts.scores import Scores
from fairseq_headprune.studies.folder import StudyFolder
from fairseq_headprune.studies.study import UNPRUNED


def finished_cells(folder: StudyFolder) -> dict[str, dict[str, Any]]:
    """Return the finished cells of a study of masks by id.

    Raises:
        ValueError: a cell lacks a required number; the message names it and says what to do.
    """
    cells = folder.cells()
    for cell_id, cell in cells.items():
        numbers = [cell.get(name) for name in ("score", "p")]
        if not all(isinstance(number, (int, float)) for number in numbers) or "signature" not in cell:
            raise ValueError(f"a cell is damaged: {folder.way_out(cell_id)}")
    return cells


def with_holm(cells: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return copies of cells with ``p_holm``: Holm's correction over exactly these cells."""
    corrected = holm([cell["p"] for cell in cells])
    return [{**cell, "p_holm": p} for cell, p in zip(cells, corrected, strict=True)]


def with_delta(cell: dict[str, Any], baseline: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a cell with ``delta``, its score minus the unpruned model's (``delta_chrf`` for chrF, …)."""
    beside = {f"delta_{name}": cell[name] - baseline[name] for name in BESIDE if name in cell and name in baseline}
    return {**cell, "delta": cell["score"] - baseline["score"], **beside}


def beside_text(cell: dict[str, Any]) -> str:
    """Return the metrics that stand beside a cell's score, with their signatures; empty if there are none."""
    return "".join(f"; {BESIDE[n]}: {cell[n]:.2f} ({cell[f'{n}_signature']})" for n in BESIDE if n in cell)


def cell_head(cell: dict[str, Any]) -> Part:
    """Return the head of a cell."""
    return Part(cell["component"], cell["layer"], cell["head"])


def best_of_layers(cells: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the cell with the highest score in each layer; the first one on ties."""
    best: dict[tuple[str, int], dict[str, Any]] = {}
    for cell in cells:
        layer = (cell["component"], cell["layer"])
        if layer not in best or cell["score"] > best[layer]["score"]:
            best[layer] = cell
    return list(best.values())


class Ablation:
    """A finished study of ``headprune ablate``.

    Attributes:
        path, settings: of the study folder; ``measure`` is the name of the score.
        baseline: the unpruned cell.
        cells: head -> its cell with ``delta``, in the fixed order of heads.
    """

    def __init__(self, path: PathLike) -> None:
        """Read the folder.

        Raises:
            FileNotFoundError: it holds no study.
            ValueError: it is another kind of study, or not finished.
        """
        folder = StudyFolder(path)
        kind = folder.settings.get("study")
        if kind != "ablate":
            raise ValueError(f"{path} is a study of headprune {kind}; a study of headprune ablate is needed")
        self.path, self.settings = folder.path, folder.settings
        self.measure = folder.settings.get("metric", "BLEU")
        absent = [name for name in ("start", "components", "data", "checkpoint") if name not in folder.settings]
        if absent:
            raise ValueError(f"{path} is damaged: there is no {absent[0]!r} in its study.json; make the study again")
        self.start = Mask(folder.settings["start"])
        found = finished_cells(folder)
        heads = self.start.kept(folder.settings["components"])
        lost = [name for name, cell in found.items() if not all(part in cell for part in KEYS)]
        if lost:
            raise ValueError(f"a cell is damaged: {folder.way_out(lost[0])}")
        done = {cell_head(cell): cell for name, cell in found.items() if name != UNPRUNED}
        missing = [head for head in heads if head not in done]
        if missing or UNPRUNED not in found:
            done_heads = f"{len(heads) - len(missing)} of {len(heads)} heads are done"
            what = done_heads if missing else "the unpruned model is not done"
            raise ValueError(f"{path} is not finished ({what}); run headprune ablate again with its settings")
        self.baseline = found[UNPRUNED]
        self.cells = {head: with_delta(done[head], self.baseline) for head in heads}

    def oracle(self) -> Scores:
        """Return the oracle order of Michel et al. (2019), §4.2: the head whose removal hurts least scores lowest.

        A head's score is minus its difference in BLEU; heads that the study did not remove have none.
        """
        shape = self.start.shape
        scores = {
            c: [[self._loss(Part(c, layer, head)) for head in range(n)] for layer, n in enumerate(shape[c])]
            for c in HEADS
            if c in shape
        }
        return Scores(
            scores,
            estimator="oracle",
            data=self.settings["data"],
            checkpoint={"sha256": self.settings["checkpoint"]},
            details={
                "study": str(self.path),
                "cells": sha256(self.path / "cells.jsonl"),
                "signature": self.baseline["signature"],
                **{name: self.settings[name] for name in ("generation", "metric") if name in self.settings},
            },
        )

    def _loss(self, head: Part) -> float | None:
        return -self.cells[head]["delta"] if head in self.cells else None
