"""Computing cells: outputs under a mask, or of a training, and their test against the unpruned model."""

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fairseq_headprune.evaluation.evaluator import answers_under, masks_at_once
from fairseq_headprune.files import read_lines
from fairseq_headprune.jobs.training import Run, run_trainings
from fairseq_headprune.parts import Mask
from fairseq_headprune.studies.results import ScoredSplit, mask_key
from fairseq_headprune.studies.study import Cell

logger = logging.getLogger(__name__)


class MaskWork:
    """Computes cells that are a mask: the model's outputs under it, tested against the unpruned model's outputs.

    Several masks are evaluated in one batch (a pack) if model and settings allow, and saved when the pack is done.

    Args:
        study: an opened study with its session; ``--masks-at-once`` is in the session's arguments.
    """

    def __init__(self, study: Any) -> None:
        self.study, self.session, self.folder = study, study.session, study.folder
        self.split = study.split
        self._warned = False

    def size(self) -> int:
        """How many masks are evaluated in one batch; 1 if model or settings do not allow more."""
        asked, evaluator = getattr(self.session.args, "masks_at_once", 0), self._of(self.split).evaluator
        if evaluator.obstacle and asked > 1 and not self._warned:
            logger.warning(f"--masks-at-once {asked}: one by one instead, since {evaluator.obstacle}")
            self._warned = True
        return masks_at_once(self.session, evaluator)

    def compute(self, cells: Sequence[Cell]) -> Iterator[None]:
        """Run the model under each mask, compare with the cell that each cell names, and append."""
        waiting = {cell.id: cell for cell in cells}
        while waiting:
            began, first = time.perf_counter(), next(iter(waiting.values()))
            here = self._of(first.split)
            # In small models rounding can make steps coincide; the same mask is not evaluated twice.
            same = here.seen(first.against).get(mask_key(first.mask))
            pack = self._pack(first, waiting.values()) if same is None else [first]
            answers = [here.answers(same)] if same else self.answers([cell.mask for cell in pack], first.split)
            seconds = (time.perf_counter() - began) / len(pack)
            for cell, found in zip(pack, answers, strict=True):
                self.save(waiting.pop(cell.id), found, seconds)
            yield

    def _pack(self, first: Cell, cells: Iterable[Cell]) -> list[Cell]:
        """The cells to evaluate with the first one: those of its split not evaluated yet, each mask once."""
        pack, seen, size = {mask_key(first.mask): first}, self._of(first.split).seen(first.against), self.size()
        for cell in cells:
            key = mask_key(cell.mask)
            if len(pack) < size and cell.split == first.split and key not in pack and key not in seen:
                pack[key] = cell
        return list(pack.values())

    def answers(self, masks: Sequence[Mask], split: str | None) -> list[list[str]]:
        """Run the model under each mask; None: on the study's split."""
        return answers_under(self.session, self._of(split).evaluator, masks)

    def save(self, cell: Cell, answers: list[str], seconds: float, source: Mapping[str, Any] | None = None) -> None:
        """Test the outputs of a cell and store it.

        Args:
            seconds: time already spent on it.
            source: origin of the mask for its mask file, besides the study.
        """
        began, here = time.perf_counter(), self._of(cell.split)
        here.statistics[cell.id] = here.metric.extract(answers)
        tested = here.tested(cell.id, cell.against)
        here_from = {"study": self.study.name, "cell": cell.id, "checkpoint": self.session.checkpoint}
        cell.mask.source = {**(source or {}), **here_from}
        self.folder.write_mask(cell.id, cell.mask.to_dict())
        self.folder.write_hypotheses(cell.id, answers)
        found = {
            "id": cell.id,
            **cell.facts,
            **tested,
            "signature": here.metric.signature,
            **here.told_beside(answers),
            "seconds": round(seconds + time.perf_counter() - began, 3),
        }
        self.folder.append(found)
        if cell.job is None and "weights" not in cell.facts:
            here.seen(cell.against)[mask_key(cell.mask)] = cell.id

    def _of(self, split: str | None) -> ScoredSplit:
        return self.study.scored(split or self.split)


class WeightWork(MaskWork):
    """The same, where cells may also be the model without some of its weights.

    These cells have a fact ``weights``; the study's ``kept_weights(cell, matrices)`` says which weights remain.
    """

    def compute(self, cells: Sequence[Cell]) -> Iterator[None]:
        """Run the model under each mask or without the weights, compare, and append."""
        from fairseq_headprune.choosing.magnitude import layer_matrices, zeroed

        for cell in [cell for cell in cells if "weights" in cell.facts]:
            began, matrices = time.perf_counter(), layer_matrices(self.session.model)
            with zeroed(matrices, self.study.kept_weights(cell, matrices)):
                [answers] = self.answers([cell.mask], cell.split)
            self.save(cell, answers, time.perf_counter() - began)
            yield
        yield from super().compute([cell for cell in cells if "weights" not in cell.facts])


class TrainWork:
    """Computes the cells of a study that have a job (:class:`~fairseq_headprune.jobs.training.TrainingJob`).

    The best checkpoint is run on the study's split, and its outputs are tested against the cell that each cell names.
    Cells without a job are masks of the study's model, as for :class:`MaskWork`.

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
        for job, facts in run_trainings(jobs, folder.path, folder.claims, self.at_once, folder.cells):
            if job.name not in waiting:
                continue  # what other trainings start from
            cell = waiting[job.name]
            tuned = {**facts, "checkpoint": f"runs/{job.name}/checkpoint_best.pt"}
            cell = replace(cell, facts={**cell.facts, "tuned": tuned})
            answers = read_lines(Run(folder.path, job.place).answers)
            self._masks.save(cell, answers, facts.get("seconds", 0.0), cell.mask.source)
            yield
