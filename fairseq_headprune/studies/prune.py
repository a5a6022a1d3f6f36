"""The pruning study: prune in steps, translate, score and test each step (Michel et al. 2019, Figures 3 and 4)."""

import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from tqdm import tqdm

from fairseq_headprune.evaluation.significance import SystemResult, bootstrap_statistics
from fairseq_headprune.evaluation.statistics import Metric, corpus_metric
from fairseq_headprune.evaluation.translate import Translator
from fairseq_headprune.files import read_lines
from fairseq_headprune.heads import HeadMask
from fairseq_headprune.importance.estimate import ScoreSettings, estimate
from fairseq_headprune.importance.scores import HeadScores
from fairseq_headprune.modules.connected import check_connected
from fairseq_headprune.pruning import Step, curves, next_heads, steps
from fairseq_headprune.session import Session, sample_indices
from fairseq_headprune.studies.folder import StudyFolder

UNPRUNED = "unpruned"


@dataclass(frozen=True)
class PruneSettings:
    """What is pruned in which order, and how the steps are scored and compared.

    Attributes:
        components: see :func:`fairseq_headprune.pruning.curves`.
        step: share of the heads in play pruned at each step.
        reestimate: estimate importance again after every step, on the pruned model.
        score: how importance is estimated (``order`` "random" uses its seed only).
        order: ``scores``, ``random`` or ``file``.
        tokenize: sacrebleu's tokeniser, or ``tok`` (tokenised BLEU).
        resamples, seed, alpha: of the paired bootstrap.
    """

    components: str = "all"
    step: Fraction = Fraction(1, 10)
    reestimate: bool = False
    order: str = "scores"
    score: ScoreSettings = field(default_factory=ScoreSettings)
    tokenize: str = "13a"
    resamples: int = 1000
    seed: int = 12345
    alpha: float = 0.01

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain JSON values."""
        return {**asdict(self), "step": str(self.step), "score": self.score.relevant()}


class PruneStudy:
    """Runs the cells that are missing in a study folder.

    Args:
        session: the loaded model.
        split: where the steps are scored (importance comes from ``settings.score.subset``).
        scores: a ready ranking (``order`` "file"), else None.
    """

    def __init__(
        self, session: Session, folder: StudyFolder, settings: PruneSettings, split: str, scores: HeadScores | None
    ) -> None:
        self.session, self.folder, self.settings, self.split = session, folder, settings, split
        self.start = session.gates.mask()
        self.curves = curves(settings.components, list(session.gates.shape))
        self.plan = {label: steps(len(self.start.kept(parts)), settings.step) for label, parts in self.curves.items()}
        self._given = scores
        self._done = folder.cells()
        self._translator: Translator | None = None
        self._metric: Metric | None = None
        self._baseline: np.ndarray | None = None

    def __len__(self) -> int:
        """Number of cells, the unpruned model's among them."""
        return 1 + sum(len(points) - 1 for points in self.plan.values())

    def run(self) -> Iterator[dict[str, Any]]:
        """Yield every cell, computing those that are missing; each is saved before it is yielded."""
        yield self._cell(UNPRUNED, None, Step(0, 0.0, 0), self.start)
        scores = self._first_scores()
        for label, components in self.curves.items():
            mask = self.start
            for step in self.plan[label][1:]:
                cell_id = f"{label}-{step.number:02d}"
                if cell_id in self._done:
                    mask = HeadMask.load(self.folder.mask_path(cell_id))
                else:
                    if self.settings.reestimate and step.number > 1:
                        scores = self._estimate(mask)
                        self._save_scores(cell_id, scores)
                    mask = mask.without(next_heads(mask, scores, components, self.start, step.pruned))
                yield self._cell(cell_id, label, step, mask)
            if self.settings.reestimate:
                scores = self._first_scores()

    def _first_scores(self) -> HeadScores:
        """The scores of the model as it came: given, stored by an earlier run, or estimated now."""
        path = self.folder.path / "scores.json"
        if path.exists():
            return HeadScores.load(path)
        scores = self._given or self._estimate(self.start)
        scores.save(path)
        return scores

    def _save_scores(self, cell_id: str, scores: HeadScores) -> None:
        """Keep the scores that a re-estimated cell was made from, in ``scores/ID.json``."""
        path = self.folder.path / "scores" / f"{cell_id}.json"
        path.parent.mkdir(exist_ok=True)
        scores.save(path)

    def _estimate(self, mask: HeadMask) -> HeadScores:
        with self.session.gates.masked(mask):
            return estimate_scores(self.session, self.settings.score)

    def _cell(self, cell_id: str, label: str | None, step: Step, mask: HeadMask) -> dict[str, Any]:
        if cell_id in self._done:
            return self._done[cell_id]
        began = time.perf_counter()
        hypotheses = self._translate(mask)
        result = self._compare(hypotheses)
        mask.source = {"study": "prune", "cell": cell_id, "checkpoint": self.session.checkpoint}
        self.folder.write_mask(cell_id, mask.to_dict())
        self.folder.write_hypotheses(cell_id, hypotheses)
        cell = {
            "id": cell_id,
            "curve": label,
            "step": step.number,
            "percent": step.percent,
            "pruned": step.pruned,
            "kept": {c: n["kept"] for c, n in mask.counts().items()},
            **_statistics(result),
            "signature": self._bound().signature,
            "seconds": round(time.perf_counter() - began, 3),
        }
        self.folder.append(cell)
        self._done[cell_id] = cell
        return cell

    def _translate(self, mask: HeadMask) -> list[str]:
        for cell_id in self._done:
            # Rounding makes steps of small models coincide: the same mask is not translated twice.
            if HeadMask.load(self.folder.mask_path(cell_id)) == mask:
                return read_lines(self.folder.hyp_path(cell_id))
        with self.session.gates.masked(mask):
            return self._translation().translate()

    def _compare(self, hypotheses: list[str]) -> SystemResult:
        """Test a system against the unpruned model (the first system that is compared is that model)."""
        metric = self._bound()
        statistics = metric.extract(hypotheses)
        if self._baseline is None:
            done = UNPRUNED in self._done
            self._baseline = metric.extract(read_lines(self.folder.hyp_path(UNPRUNED))) if done else statistics
        settings = self.settings
        systems = {UNPRUNED: self._baseline, "system": statistics}
        return bootstrap_statistics(metric.score, systems, settings.resamples, settings.seed)[1]

    def _translation(self) -> Translator:
        if self._translator is None:
            self._translator = Translator(self.session, self.split)
        return self._translator

    def _bound(self) -> Metric:
        if self._metric is None:
            self._metric = corpus_metric("bleu", self._translation().references, self.settings.tokenize)
        return self._metric


def check_study(session: Session, settings: PruneSettings, split: str, scores: HeadScores | None) -> None:
    """Refuse what would stop the study later, before anything is written.

    Raises:
        ValueError, KeyError, FileNotFoundError: components, splits or a ready ranking that do not fit the model or
            the data; fewer than two sentences to compare on.
        RuntimeError: gates that have no effect on the output.
    """
    start = session.gates.mask()
    if scores is not None and scores.shape != session.gates.shape:
        raise ValueError(f"the scores rank heads of shape {scores.shape}, the model has {session.gates.shape}")
    for components in curves(settings.components, list(session.gates.shape)).values():
        last = steps(len(start.kept(components)), settings.step)[-1]
        if scores is not None:
            next_heads(start, scores, components, start, last.pruned)
    if scores is None and settings.score.needs_data:
        session.dataset(settings.score.subset)
    sentences = len(Translator(session, split).references)
    if sentences < 2:
        raise ValueError(f"{split} has {sentences} sentence; the paired bootstrap needs at least 2")
    sample = next(iter(session.batches(split)))
    full = session.gates.full()
    for component in session.gates.shape:
        # One component at a time: without any encoder-decoder head the encoder has no effect, rightly.
        with session.gates.masked(full.without(full.kept([component]))):
            check_connected(session.model, sample["net_input"])


def _statistics(result: SystemResult) -> dict[str, Any]:
    """The part of a comparison that a cell keeps; Holm's correction needs all cells and is made by the reader."""
    found = asdict(result)
    return {name: found[name] for name in ("score", "ci", "wins", "losses", "ties", "p")}


def estimate_scores(session: Session, settings: ScoreSettings) -> HeadScores:
    """Estimate importance on a seeded subset of a split, under the mask in force, with provenance.

    Raises:
        ValueError, FileNotFoundError: no such split, no sentences, or values that are not finite.
    """
    data: dict[str, Any] = {}
    batches: Any = []
    if settings.needs_data:
        total = len(session.dataset(settings.subset))
        indices = sample_indices(total, settings.sentences, settings.seed)
        batches = session.batches(settings.subset, indices)
        batches = tqdm(
            batches, "importance", unit="batch", leave=False, file=sys.stderr, disable=session.args.quiet or None
        )
        data = {"path": session.args.data, "of": total, "seed": settings.seed, **session.data(settings.subset)}
    dictionary = session.task.target_dictionary
    scores = estimate(session.model, session.gates, batches, settings, dictionary.pad(), dictionary.eos())
    scores.data, scores.checkpoint = data, session.checkpoint
    return scores
