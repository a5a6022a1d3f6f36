"""The pruning study: prune in steps, translate, score and test each step (Michel et al. 2019, Figures 3 and 4)."""

import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from typing import Any

from tqdm import tqdm

from fairseq_headprune.batches import sample_indices
from fairseq_headprune.importance.estimate import ScoreSettings, estimate
from fairseq_headprune.importance.ranks import own_share
from fairseq_headprune.parts import Mask
from fairseq_headprune.parts.scores import Scores
from fairseq_headprune.pruning import Step, curves, next_heads, steps
from fairseq_headprune.session import Session
from fairseq_headprune.studies.finished import read_mask
from fairseq_headprune.studies.folder import StudyFolder
from fairseq_headprune.studies.masked import Comparison, MaskedCells, check_split, model_settings
from fairseq_headprune.studies.results import curve_seed, seeded_curves
from fairseq_headprune.studies.study import Cell


@dataclass(frozen=True)
class PruneSettings(Comparison):
    """What is pruned in which order, and how the steps are scored and compared.

    Attributes:
        components: see :func:`fairseq_headprune.pruning.curves`.
        step: share of the heads in play pruned at each step.
        reestimate: estimate importance again after every step, on the pruned model.
        score: how importance is estimated (``order`` "random" uses its seed only).
        order: ``scores``, ``random``, ``file`` or ``oracle`` (an ablation study).
        seeds: of several random orders, one curve each; empty: one order, of ``score.seed``.
    """

    components: str = "all"
    step: Fraction = Fraction(1, 10)
    reestimate: bool = False
    order: str = "scores"
    score: ScoreSettings = field(default_factory=ScoreSettings)
    seeds: tuple[int, ...] = ()

    @property
    def estimates(self) -> bool:
        """Whether the study looks at sentences to rank heads."""
        return self.order in ("scores", "random") and self.score.needs_data

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain JSON values."""
        values = {**asdict(self), "step": str(self.step), "score": self.score.relevant()}
        seeds = values.pop("seeds")
        return {**values, "seeds": list(seeds)} if seeds else values


class PruneStudy:
    """Runs the cells that are missing in a study folder.

    Args:
        session: the loaded model.
        split: where the steps are scored (importance comes from ``settings.score.subset``).
        scores: a ready ranking (``order`` "file" or "oracle"), else None.
    """

    def __init__(
        self, session: Session, folder: StudyFolder, settings: PruneSettings, split: str, scores: Scores | None
    ) -> None:
        self.session, self.folder, self.settings = session, folder, settings
        self.start = session.gates.mask()
        self.curves = seeded_curves(curves(settings.components, list(session.gates.shape)), settings.seeds)
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
        if self.settings.reestimate:
            yield from self._reestimated(scores)
        else:
            yield from self._cells.run(self._known(scores))

    def _known(self, scores: Scores) -> Iterator[Cell]:
        """All cells of an order that is known before the first of them is computed."""
        for label, components in self.curves.items():
            mask, order = self.start, self._order(label) or scores
            for step in self.plan[label][1:]:
                mask = mask.without(next_heads(mask, order, components, self.start, step.pruned))
                yield Cell(_cell_id(label, step), mask, _facts(label, step, mask))

    def _reestimated(self, first: Scores) -> Iterator[dict[str, Any]]:
        """The cells of an order in which each step depends on the one before."""
        for label, components in self.curves.items():
            mask, scores = self.start, first
            for step in self.plan[label][1:]:
                cell_id = _cell_id(label, step)
                if cell_id in self._cells:
                    mask = read_mask(self.folder, cell_id)
                else:
                    if step.number > 1:
                        scores = self._estimate(mask)
                        self._save_scores(cell_id, scores)
                    mask = mask.without(next_heads(mask, scores, components, self.start, step.pruned))
                yield self._cells.cell(Cell(cell_id, mask, _facts(label, step, mask)))

    def _order(self, label: str) -> Scores | None:
        """The random order of a curve that has a seed of its own."""
        seed = curve_seed(label)
        return None if seed is None else estimate_scores(self.session, replace(self.settings.score, seed=seed))

    def _first_scores(self) -> Scores:
        """The scores of the model as it came: given, stored by an earlier run, or estimated now."""
        path = self.folder.path / "scores.json"
        self.folder.claims.once("scores", path.exists, lambda: (self._given or self._estimate(self.start)).save(path))
        return Scores.load(path)

    def _save_scores(self, cell_id: str, scores: Scores) -> None:
        """Keep the scores that a re-estimated cell was made from, in ``scores/ID.json``."""
        path = self.folder.path / "scores" / f"{cell_id}.json"
        path.parent.mkdir(exist_ok=True)
        scores.save(path)

    def _estimate(self, mask: Mask) -> Scores:
        with self.session.gates.masked(mask):
            return estimate_scores(self.session, self.settings.score)


def _cell_id(label: str, step: Step) -> str:
    return f"{label}-{step.number:02d}"


def _facts(label: str | None, step: Step, mask: Mask) -> dict[str, Any]:
    """What the list of cells says of a step."""
    return {
        "curve": label,
        "step": step.number,
        "percent": step.percent,
        "pruned": step.pruned,
        "kept": {c: n["kept"] for c, n in mask.counts().items()},
    }


def study_settings(
    session: Session, settings: PruneSettings, split: str, scores: Scores | None, order_file: str | None
) -> dict[str, Any]:
    """Return all settings of a pruning study, as they are kept in its folder.

    Args:
        order_file: hash of the score file, for ``order`` "file".
    """
    return {
        **model_settings(session, "prune", split),
        "score_data": session.data(settings.score.subset) if settings.estimates else None,
        "order_file": scores.details["cells"] if scores is not None and settings.order == "oracle" else order_file,
        **settings.to_dict(),
    }


def check_study(session: Session, settings: PruneSettings, split: str, scores: Scores | None) -> None:
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
    if scores is not None and scores.only(session.gates.shape).shape != session.gates.shape:
        raise ValueError(f"the scores rank heads of shape {scores.shape}, the model has {session.gates.shape}")
    for components in curves(settings.components, list(session.gates.shape)).values():
        last = steps(len(start.kept(components)), settings.step)[-1]
        if scores is not None:
            next_heads(start, scores, components, start, last.pruned)
    if scores is None and settings.score.needs_data:
        session.dataset(settings.score.subset)
    check_split(session, split)


def scoring_batches(session: Session, settings: ScoreSettings, shared: bool = False) -> Any:
    """Return the batches that importance is estimated on, with a progress bar; ``shared``: this rank's part of them."""
    indices = sample_indices(len(session.dataset(settings.subset)), settings.sentences, settings.seed)
    batches = session.batches(settings.subset, indices)
    if shared:
        batches.groups = own_share(batches.groups)
    return tqdm(batches, "importance", unit="batch", leave=False, file=sys.stderr, disable=session.args.quiet or None)


def estimate_scores(session: Session, settings: ScoreSettings) -> Scores:
    """Estimate importance on a seeded subset of a split, under the mask in force, with provenance.

    Raises:
        ValueError, FileNotFoundError: no such split, no sentences, or values that are not finite.
    """
    data: dict[str, Any] = {}
    batches: Any = []
    if settings.needs_data:
        total = len(session.dataset(settings.subset))
        batches = scoring_batches(session, settings, shared=True)
        data = {"path": session.args.data, "of": total, "seed": settings.seed, **session.data(settings.subset)}
    scores = estimate(session.model, session.gates, batches, settings, session.task)
    scores.data, scores.checkpoint, scores.precision = data, session.checkpoint, session.precision
    return scores
