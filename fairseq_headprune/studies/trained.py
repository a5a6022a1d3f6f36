"""Computing cells that train: run the job, then test the outputs of its best checkpoint."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from fairseq_headprune.files import read_lines
from fairseq_headprune.jobs.training import Run, run_trainings
from fairseq_headprune.studies.masked import MaskWork
from fairseq_headprune.studies.study import Cell


class TrainWork:
    """Computes the cells of a study that have a job (:class:`~fairseq_headprune.jobs.training.TrainingJob`).

    The best checkpoint is run on the study's split, and its outputs are tested against the cell that each cell names.
    Cells without a job are masks of the study's model, as for :class:`~fairseq_headprune.studies.masked.MaskWork`.

    Args:
        study: an opened study with its session; jobs have the names of their cells.
        at_once: how many trainings this process runs at the same time.
        masks: computes the cells without a job (default: a ``MaskWork``).
    """

    def __init__(self, study: Any, at_once: int, masks: MaskWork | None = None) -> None:
        self.study, self.at_once = study, at_once
        self._masks = masks or MaskWork(study)

    def size(self) -> int:
        """Return how many cells are claimed at first; another is claimed whenever one is finished."""
        return self.at_once

    def compute(self, cells: Sequence[Cell]) -> Iterator[None]:
        """Compute these cells, and of the plan's trainings all that no other process runs.

        Raises:
            RuntimeError: some trainings failed; raised after the others have ended.
        """
        masks = [cell for cell in cells if cell.job is None]
        if masks:
            yield from self._masks.compute(masks)
        if len(masks) < len(cells):
            yield from self._train()

    def _train(self) -> Iterator[None]:
        folder = self.study.folder
        done = folder.cells()
        waiting = {cell.id: cell for cell in self.study.plan() if cell.job is not None and cell.id not in done}
        jobs = [*self.study.before(), *(cell.job for cell in waiting.values())] if waiting else []
        for job, facts in run_trainings(jobs, folder.path, folder.claims, self.at_once, finished=folder.cells):
            if job.name not in waiting:
                continue  # what other trainings start from
            cell = waiting[job.name]
            tuned = {**facts, "checkpoint": f"runs/{job.name}/checkpoint_best.pt"}
            cell = replace(cell, facts={**cell.facts, "tuned": tuned})
            answers = read_lines(Run(folder.path, job.place).answers)
            self._masks.save(cell, answers, facts.get("seconds", 0.0), cell.mask.source)
            yield
