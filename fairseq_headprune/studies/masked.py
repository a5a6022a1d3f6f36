"""What studies of masks share: cells that are a mask, its translations, and their test against the unpruned model."""

import json
import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from fairseq_headprune.cli.comparison_flags import MASKS_AT_ONCE
from fairseq_headprune.evaluation.evaluator import AnswerMetric, Evaluator
from fairseq_headprune.evaluation.significance import SystemResult, bootstrap_statistics
from fairseq_headprune.importance.head_weights import heads_with_broken_weights
from fairseq_headprune.modules.connected import check_connected
from fairseq_headprune.parts import Mask
from fairseq_headprune.session import Session
from fairseq_headprune.studies.finished import finished_cells, read_hypotheses, read_mask
from fairseq_headprune.studies.folder import StudyFolder
from fairseq_headprune.studies.results import UNPRUNED

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Comparison:
    """How translations, or predictions, are scored and compared.

    Attributes:
        tokenize: sacrebleu's tokeniser, or ``tok`` (tokenised BLEU); of no meaning for predictions.
        resamples, seed, alpha: of the paired bootstrap.
    """

    tokenize: str = "13a"
    resamples: int = 1000
    seed: int = 12345
    alpha: float = 0.01


@dataclass(frozen=True)
class PlannedCell:
    """One cell that can be computed without any other: its id, its mask, and what the list of cells says of it."""

    id: str
    mask: Mask
    facts: dict[str, Any] = field(default_factory=dict)


class MaskedCells:
    """Computes cells of one split and keeps them in a study folder; a cell that is there already is just returned.

    The cells of a plan (:meth:`run`) are translated in packs, and saved when their pack is done.

    Args:
        session: the loaded model; its present mask is the unpruned model of the study. ``--masks-at-once`` is in its
            arguments.
        folder: the study.
        study: name of the study, noted in the masks.
        split: what is translated.
        comparison: how it is scored and compared.
        prefix: of the ids of this split's cells, for a study of several splits.
    """

    def __init__(
        self, session: Session, folder: StudyFolder, study: str, split: str, comparison: Comparison, prefix: str = ""
    ) -> None:
        self.session, self.folder, self.study, self.split = session, folder, study, split
        self.comparison = comparison
        self.start = session.gates.mask()
        self._prefix = prefix
        self._done = {name: cell for name, cell in finished_cells(folder).items() if name.startswith(prefix)}
        self._together: list[PlannedCell] = []
        self._warned = False
        self._translated: dict[str, str] | None = None
        self._evaluator: Evaluator | None = None
        self._metric: AnswerMetric | None = None
        self._baseline: np.ndarray | None = None

    def __contains__(self, cell_id: str) -> bool:
        return self._prefix + cell_id in self._done

    def unpruned(self, **facts: Any) -> dict[str, Any]:
        """Return the cell of the unpruned model, with which all others are compared: it is computed first."""
        [cell] = self.run([PlannedCell(UNPRUNED, self.start, facts)])
        return cell

    def run(self, plan: Iterable[PlannedCell]) -> Iterator[dict[str, Any]]:
        """Yield the cells of a plan in its order; each is saved before it is yielded.

        Processes that run the same plan divide its cells among themselves, a pack at a time.
        """
        planned = {self._prefix + cell.id: cell for cell in plan}
        size = self._masks_at_once() if planned.keys() - self._done.keys() else 1
        for cell in self.folder.shared(
            list(planned), lambda pack: self._compute([planned[name] for name in pack]), size
        ):
            self._done[cell["id"]] = cell
            yield cell

    def _compute(self, pack: list[PlannedCell]) -> None:
        """Compute and save the cells of one pack."""
        self._together = pack
        for planned in pack:
            self.cell(planned)

    def cell(self, planned: PlannedCell) -> dict[str, Any]:
        """Return a finished cell, or translate, compare with the unpruned model, and save."""
        cell_id = self._prefix + planned.id
        if cell_id not in self._done:
            began = time.perf_counter()
            # Rounding makes steps of small models coincide: the same mask is not translated twice.
            same = self._seen().get(_key(planned.mask))
            if same is not None:
                self._save(planned, self._answers(same), time.perf_counter() - began)
            else:
                pack = self._pack(planned)
                translated = self._translate([cell.mask for cell in pack])
                seconds = (time.perf_counter() - began) / len(pack)
                for cell, hypotheses in zip(pack, translated, strict=True):
                    self._save(cell, hypotheses, seconds)
        return self._done[cell_id]

    def _pack(self, first: PlannedCell) -> list[PlannedCell]:
        """The cells to translate together: this one, and those of its pack that are missing, each mask once."""
        pack = {_key(first.mask): first}
        size = self._masks_at_once()
        for planned in self._together:
            key = _key(planned.mask)
            if len(pack) < size and planned.id not in self and key not in pack and key not in self._seen():
                pack[key] = planned
        return list(pack.values())

    def _save(self, planned: PlannedCell, hypotheses: list[str], seconds: float) -> None:
        """Compare translations with the unpruned model's and keep the cell; ``seconds`` were spent on it before."""
        began, cell_id = time.perf_counter(), self._prefix + planned.id
        result = self._compare(hypotheses)
        mask = planned.mask
        mask.source = {"study": self.study, "cell": cell_id, "checkpoint": self.session.checkpoint}
        self.folder.write_mask(cell_id, mask.to_dict())
        self.folder.write_hypotheses(cell_id, hypotheses)
        cell = {
            "id": cell_id,
            **planned.facts,
            **_statistics(result),
            "signature": self._bound().signature,
            "seconds": round(seconds + time.perf_counter() - began, 3),
        }
        self.folder.append(cell)
        self._done[cell_id] = cell
        self._seen()[_key(mask)] = cell_id

    def _seen(self) -> dict[str, str]:
        if self._translated is None:
            self._translated = {_key(read_mask(self.folder, name)): name for name in self._done}
        return self._translated

    def _masks_at_once(self) -> int:
        """How many masks are translated in one batch; 1 where model or settings do not allow more."""
        asked = getattr(self.session.args, "masks_at_once", 0)
        obstacle = self._evaluation().obstacle
        if obstacle and asked > 1 and not self._warned:
            logger.warning(f"--masks-at-once {asked}: one by one instead, since {obstacle}")
            self._warned = True
        return 1 if obstacle else asked or MASKS_AT_ONCE.get(self.session.device.type, 1)

    def _translate(self, masks: list[Mask]) -> list[list[str]]:
        if self._masks_at_once() > 1:
            return self._evaluation().answers_of(masks)
        found = []
        for mask in masks:
            with self.session.gates.masked(mask):
                found.append(self._evaluation().answers())
        return found

    def _compare(self, hypotheses: list[str]) -> SystemResult:
        """Test a system against the unpruned model (the first system that is compared is that model)."""
        metric = self._bound()
        statistics = metric.extract(hypotheses)
        if self._baseline is None:
            unpruned = self._prefix + UNPRUNED
            done = unpruned in self._done
            self._baseline = metric.extract(self._answers(unpruned)) if done else statistics
        how = self.comparison
        systems = {UNPRUNED: self._baseline, "system": statistics}
        return bootstrap_statistics(metric.score, systems, how.resamples, how.seed)[1]

    def _answers(self, cell_id: str) -> list[str]:
        """The answers of a finished cell."""
        return read_hypotheses(self.folder, cell_id, len(self._evaluation().references))

    def _evaluation(self) -> Evaluator:
        if self._evaluator is None:
            self._evaluator = self.session.evaluator(self.split)
        return self._evaluator

    def _bound(self) -> AnswerMetric:
        if self._metric is None:
            self._metric = self._evaluation().metric(self.comparison)
        return self._metric


def check_split(session: Session, split: str) -> Evaluator:
    """Refuse a split that masks cannot be compared on, before anything is written; return its evaluator.

    Raises:
        ValueError, FileNotFoundError: no such split, settings that have no place here, fewer than two sentences, heads
            whose weights are not finite.
        RuntimeError: gates that have no effect on the output.
    """
    evaluator = session.evaluator(split)
    sentences = len(evaluator.references)
    if sentences < 2:
        raise ValueError(
            f"{split} has {sentences} sentence; the paired bootstrap needs at least 2: p is not defined for one"
        )
    kept = set(session.gates.mask().kept())
    broken = [head for head in heads_with_broken_weights(session.gates) if head in kept]
    if broken:
        raise ValueError(
            f"{session.path}: NaN or infinity in the weights of {', '.join(map(str, broken))}: take an earlier "
            "checkpoint"
        )
    sample = next(iter(session.batches(split)))
    full = session.gates.full()
    for component in session.gates.shape:
        # One component at a time: without any encoder-decoder head the encoder has no effect, rightly.
        with session.gates.masked(full.without(full.kept([component]))):
            check_connected(session.model, sample["net_input"])
    return evaluator


def model_settings(session: Session, study: str, split: str) -> dict[str, Any]:
    """Return the settings that every study of masks has: model, start, data, and how it is answered."""
    return {
        "study": study,
        "checkpoint": session.checkpoint["sha256"],
        "model_overrides": session.overrides,
        "precision": session.precision,
        "start": session.gates.mask().rows,
        "data": session.data(split),
        **session.answering(),
    }


def _statistics(result: SystemResult) -> dict[str, Any]:
    """The part of a comparison that a cell keeps; Holm's correction needs all cells and is made by the reader."""
    found = asdict(result)
    return {name: found[name] for name in ("score", "ci", "wins", "losses", "ties", "p")}


def _key(mask: Mask) -> str:
    return json.dumps([mask.rows, mask.ffn], sort_keys=True)
