"""The outputs of a study's cells on one split, scored once: what their tests and a result file take statistics from."""

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from fairseq_headprune.evaluation.evaluator import AnswerMetric, Evaluator
from fairseq_headprune.parts import Mask
from fairseq_headprune.studies.folder import StudyFolder
from fairseq_headprune.studies.results import finished_cells
from fairseq_headprune.studies.study import UNPRUNED


class ScoredSplit:
    """One split of a study, whose outputs are scored: evaluator and metric, statistics, and which masks are evaluated.

    Attributes:
        statistics: id of a cell -> its sentence statistics (sentences, stats), of all cells scored or read here.
    """

    def __init__(self, folder: StudyFolder, evaluator: Evaluator, comparison: Any) -> None:
        self.folder, self.evaluator = folder, evaluator
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
