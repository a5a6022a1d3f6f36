"""Reading finished cells of masks: their numbers, differences, and Holm's correction."""

from collections.abc import Sequence
from typing import Any

from fairseq_headprune.evaluation.evaluator import BESIDE
from fairseq_headprune.evaluation.p_values import holm
from fairseq_headprune.studies.folder import StudyFolder


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


def with_holm(cells: Sequence[dict[str, Any]], finished: bool = True) -> list[dict[str, Any]]:
    """Return copies of cells with ``p_holm``: Holm's correction over exactly these cells; None if some are missing."""
    corrected = holm([cell["p"] for cell in cells]) if finished else [None] * len(cells)
    return [{**cell, "p_holm": p} for cell, p in zip(cells, corrected, strict=True)]


def with_delta(cell: dict[str, Any], baseline: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a cell with ``delta``, its score minus the unpruned model's (``delta_chrf`` for chrF, …)."""
    beside = {f"delta_{name}": cell[name] - baseline[name] for name in BESIDE if name in cell and name in baseline}
    return {**cell, "delta": cell["score"] - baseline["score"], **beside}


def beside_text(cell: dict[str, Any]) -> str:
    """Return the metrics that stand beside a cell's score, with their signatures; empty if there are none."""
    return "".join(f"; {BESIDE[n]}: {cell[n]:.2f} ({cell[f'{n}_signature']})" for n in BESIDE if n in cell)
