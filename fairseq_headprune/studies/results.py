"""Finished cells of masks: their numbers, differences and Holm's correction, and the statistics of their outputs."""

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from fairseq_headprune.evaluation.evaluator import BESIDE, AnswerMetric, Evaluator
from fairseq_headprune.evaluation.p_values import LEAST, holm
from fairseq_headprune.evaluation.significance import bootstrap_statistics
from fairseq_headprune.parts import Mask
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


class ScoredSplit:
    """One split of a study, whose outputs are scored: evaluator and metric, statistics, and which masks are evaluated.

    Attributes:
        statistics: id of a cell -> its sentence statistics (sentences, stats), of all cells scored or read here.
    """

    def __init__(self, folder: StudyFolder, evaluator: Evaluator, comparison: Any) -> None:
        self.folder, self.evaluator, self.comparison = folder, evaluator, comparison
        self.metric: AnswerMetric = evaluator.metric(comparison)
        self.statistics: dict[str, np.ndarray] = {}
        self._seen: dict[str, dict[str, str]] = {}

    def seen(self, against: str) -> dict[str, str]:
        """Evaluated mask -> id of its cell, among the cells compared with the given one."""
        if against not in self._seen:
            prefix = against.removesuffix(UNPRUNED)
            # Outputs of a fine-tuned model, or without single weights, are not those of the study's model.
            done = finished_cells(self.folder).items()
            names = [name for name, cell in done if name.startswith(prefix) and not {"tuned", "weights"} & set(cell)]
            self._seen[against] = {mask_key(self.folder.read_mask(name)): name for name in names}
        return self._seen[against]

    def answers(self, cell_id: str) -> list[str]:
        """The outputs of a finished cell."""
        return self.folder.read_hypotheses(cell_id, len(self.evaluator.references))

    def score(self, cell_id: str) -> float:
        """Return the score of a finished cell."""
        return float(self.metric.score(self.of(cell_id).sum(axis=0)))

    def tested(self, cell_id: str, against: str) -> dict[str, Any]:
        """Return the score of a cell and its test against another one over the sentences."""
        how, pair = self.comparison, {"base": self.of(against), "system": self.of(cell_id)}
        return bootstrap_statistics(self.metric.score, pair, how.resamples or LEAST, how.seed)[1].alone()

    @cached_property
    def _beside(self) -> Mapping[str, AnswerMetric]:
        return self.evaluator.beside()

    def told_beside(self, answers: list[str]) -> dict[str, Any]:
        """Score outputs by the additional metrics; return each score and signature by name."""
        found: dict[str, Any] = {}
        for name, metric in self._beside.items():
            found[name] = float(metric.score(metric.extract(answers).sum(axis=0)))
            found[f"{name}_signature"] = metric.signature
        return found

    def of(self, cell_id: str) -> np.ndarray:
        """The statistics of a finished cell; its outputs are read only if it was not scored here."""
        if cell_id not in self.statistics:
            self.statistics[cell_id] = self.metric.extract(self.answers(cell_id))
        return self.statistics[cell_id]


def mask_key(mask: Mask) -> str:
    """Return a text that equal masks share."""
    return json.dumps(mask.rows, sort_keys=True)
