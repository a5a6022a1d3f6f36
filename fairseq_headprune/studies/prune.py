"""The pruning study: prune in steps, translate, score and test each step (Michel et al. 2019, Figures 3 and 4)."""

import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import Any

from tqdm import tqdm

from fairseq_headprune.heads import HeadMask
from fairseq_headprune.importance.estimate import ScoreSettings, estimate
from fairseq_headprune.importance.scores import HeadScores
from fairseq_headprune.pruning import Step, curves, next_heads, steps
from fairseq_headprune.session import Session, sample_indices
from fairseq_headprune.studies.folder import StudyFolder
from fairseq_headprune.studies.masked import Comparison, MaskedCells, PlannedCell, check_split


@dataclass(frozen=True)
class PruneSettings(Comparison):
    """What is pruned in which order, and how the steps are scored and compared.

    Attributes:
        components: see :func:`fairseq_headprune.pruning.curves`.
        step: share of the heads in play pruned at each step.
        reestimate: estimate importance again after every step, on the pruned model.
        score: how importance is estimated (``order`` "random" uses its seed only).
        order: ``scores``, ``random``, ``file`` or ``oracle`` (an ablation study).
    """

    components: str = "all"
    step: Fraction = Fraction(1, 10)
    reestimate: bool = False
    order: str = "scores"
    score: ScoreSettings = field(default_factory=ScoreSettings)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain JSON values."""
        return {**asdict(self), "step": str(self.step), "score": self.score.relevant()}


class PruneStudy:
    """Runs the cells that are missing in a study folder.

    Args:
        session: the loaded model.
        split: where the steps are scored (importance comes from ``settings.score.subset``).
        scores: a ready ranking (``order`` "file" or "oracle"), else None.
    """

    def __init__(
        self, session: Session, folder: StudyFolder, settings: PruneSettings, split: str, scores: HeadScores | None
    ) -> None:
        self.session, self.folder, self.settings = session, folder, settings
        self.start = session.gates.mask()
        self.curves = curves(settings.components, list(session.gates.shape))
        self.plan = {label: steps(len(self.start.kept(parts)), settings.step) for label, parts in self.curves.items()}
        self._given = scores
        self._cells = MaskedCells(session, folder, "prune", split, settings)

    def __len__(self) -> int:
        """Number of cells, the unpruned model's among them."""
        return 1 + sum(len(points) - 1 for points in self.plan.values())

    def run(self) -> Iterator[dict[str, Any]]:
        """Yield every cell, computing those that are missing; each is saved before it is yielded."""
        yield self._cells.unpruned(**_facts(None, Step(0, 0.0, 0), self.start))
        scores = self._first_scores()
        if not self.settings.reestimate:
            yield from self._cells.run(list(self._plan(scores)))
            return
        for label in self.curves:
            mask = self.start
            for step in self.plan[label][1:]:
                cell_id = _cell_id(label, step)
                if step.number > 1 and cell_id not in self._cells:
                    scores = self._estimate(mask)
                    self._save_scores(cell_id, scores)
                mask = self._next_mask(label, step, mask, scores)
                yield self._cells.cell(PlannedCell(cell_id, mask, _facts(label, step, mask)))
            scores = self._first_scores()

    def _plan(self, scores: HeadScores) -> Iterator[PlannedCell]:
        """The cells of an order that is known from the start."""
        for label in self.curves:
            mask = self.start
            for step in self.plan[label][1:]:
                mask = self._next_mask(label, step, mask, scores)
                yield PlannedCell(_cell_id(label, step), mask, _facts(label, step, mask))

    def _next_mask(self, label: str, step: Step, mask: HeadMask, scores: HeadScores) -> HeadMask:
        """The mask of a step that follows ``mask``: as it was saved, or by these scores."""
        if _cell_id(label, step) in self._cells:
            return HeadMask.load(self.folder.mask_path(_cell_id(label, step)))
        return mask.without(next_heads(mask, scores, self.curves[label], self.start, step.pruned))

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


def _cell_id(label: str, step: Step) -> str:
    return f"{label}-{step.number:02d}"


def _facts(label: str | None, step: Step, mask: HeadMask) -> dict[str, Any]:
    """What the list of cells says of a step."""
    return {
        "curve": label,
        "step": step.number,
        "percent": step.percent,
        "pruned": step.pruned,
        "kept": {c: n["kept"] for c, n in mask.counts().items()},
    }


def check_study(session: Session, settings: PruneSettings, split: str, scores: HeadScores | None) -> None:
    """Refuse what would stop the study later, before anything is written.

    Raises:
        ValueError, KeyError, FileNotFoundError: components, splits or a ready ranking that do not fit the model or
            the data; fewer than two sentences to compare on.
        RuntimeError: gates that have no effect on the output.
    """
    start = session.gates.mask()
    if settings.order == "oracle" and scores is not None:
        measured, here = scores.checkpoint["sha256"], session.checkpoint["sha256"]
        if measured != here:
            raise ValueError(
                f"the ablation study {scores.details['study']} is of another checkpoint ({measured}; "
                f"{session.path} is {here}); run headprune ablate on this one"
            )
    if scores is not None and scores.shape != session.gates.shape:
        raise ValueError(f"the scores rank heads of shape {scores.shape}, the model has {session.gates.shape}")
    for components in curves(settings.components, list(session.gates.shape)).values():
        last = steps(len(start.kept(components)), settings.step)[-1]
        if scores is not None:
            next_heads(start, scores, components, start, last.pruned)
    if scores is None and settings.score.needs_data:
        session.dataset(settings.score.subset)
    check_split(session, split)


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
