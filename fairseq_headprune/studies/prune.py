"""The pruning study: prune in steps, and score and test each step (Michel et al. 2019, Figures 3 and 4)."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from typing import Any

from fairseq_headprune.importance.normalize import concerns, concerns_of_files
from fairseq_headprune.importance.settings import ScoreSettings
from fairseq_headprune.parts import HEADS, Mask
from fairseq_headprune.parts.scores import Scores
from fairseq_headprune.pruning import Step, curves, next_heads, steps
from fairseq_headprune.report.document import Document, HeadMap, number_components
from fairseq_headprune.studies.curves import (
    curve_found,
    curve_seed,
    curve_table,
    in_curves,
    mean_curves,
    order_name,
    orders_told,
    seeded_curves,
    share_chart,
)
from fairseq_headprune.studies.mask_study import Comparison, MaskStudy, model_settings
from fairseq_headprune.studies.results import beside_text
from fairseq_headprune.studies.study import UNPRUNED, Cell, Done


@dataclass(frozen=True)
class PruneSettings(Comparison):
    """What is pruned, in which order, and how the steps are scored and compared.

    Attributes:
        components: see :func:`fairseq_headprune.pruning.curves`.
        step: share of the prunable heads that is pruned at each step.
        reestimate: estimate importance again after every step, on the pruned model.
        score: how importance is estimated (``order`` "random" uses only its seed).
        order: ``scores``, ``random``, ``file`` or ``oracle`` (an ablation study).
        seeds: seeds of several random orders, one curve each; empty: a single order with ``score.seed``.
    """

    components: str = "all"
    step: Fraction = Fraction(1, 10)
    reestimate: bool = False
    order: str = "scores"
    score: ScoreSettings = field(default_factory=ScoreSettings)
    seeds: tuple[int, ...] = ()

    @property
    def estimates(self) -> bool:
        """Whether the study estimates importance on sentences."""
        return self.order in ("scores", "random") and self.score.needs_data

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain JSON values."""
        values = {**asdict(self), "step": str(self.step), "score": self.score.relevant()}
        seeds = values.pop("seeds")
        return {**values, "seeds": list(seeds)} if seeds else values


class Prune(MaskStudy):
    """Prune heads step by step, lowest importance first; one or several curves, each with its own prunable heads.

    Attributes:
        how: how importance is estimated; only set to run the study.
        given: an existing ranking (``order`` "file" or "oracle"), else None.
    """

    name = "prune"
    how: PruneSettings
    given: Scores | None = None

    @classmethod
    def of(cls, session: Any, split: str, how: PruneSettings, given: Scores | None, order_file: str | None) -> "Prune":
        """Make the study of a loaded model.

        Args:
            given: an existing ranking.
            order_file: hash of the score file for ``order`` "file".
        """
        oracle = given is not None and how.order == "oracle"
        study = cls(
            {
                **model_settings(session, cls.name, split),
                "score_data": session.data(how.score.subset) if how.estimates else None,
                "order_file": given.details["cells"] if oracle and given else order_file,
                **how.to_dict(),
            },
            session,
        )
        study.how, study.given = how, given
        return study

    @property
    def curves(self) -> dict[str, list[str]]:
        """Name of each curve -> the components whose heads it prunes."""
        found = curves(self.settings["components"], list(self.start.shape))
        return seeded_curves(found, self.settings.get("seeds", []))

    @property
    def steps(self) -> dict[str, list[Step]]:
        """The points of each curve; the first is the unpruned model."""
        share, start = Fraction(self.settings["step"]), self.start
        return {label: steps(len(start.kept(parts)), share) for label, parts in self.curves.items()}

    def check(self) -> None:
        """Check that a given ranking is of this model and complete, besides the checks of every study of masks."""
        given, start, shape = self.given, self.start, self.session.gates.shape
        measured, here = given.checkpoint.get("sha256") if given else None, self.settings["checkpoint"]
        if given is not None and self.how.order == "oracle" and measured != here:
            raise ValueError(
                f"the ablation study {given.details['study']} is of another checkpoint ({measured}; "
                f"{self.session.path} is {here}); run headprune ablate on this one"
            )
        if given is not None and given.only(shape).shape != shape:
            raise ValueError(f"the scores rank heads of shape {given.shape}, the model has {shape}")
        for parts, points in zip(self.curves.values(), self.steps.values(), strict=True):
            if given is not None:
                next_heads(start, given, parts, start, points[-1].pruned)
        if given is None and self.how.score.needs_data:
            self.session.dataset(self.how.score.subset)
        super().check()

    def warnings(self) -> list[str]:
        """Warn if heads are ranked on the split on which results are reported, and of what a given order hides."""
        given, how = self.given, self.how
        found = concerns(given) if given else []
        ranked_on = given.data.get("split") if given else how.score.subset if how.estimates else None
        if ranked_on != self.split:
            return found
        way_out = "ablate on another --gen-subset" if how.order == "oracle" else "choose another --score-subset"
        return [*found, f"importance and results both come from {self.split}; the curve is optimistic ({way_out})"]

    def planned(self) -> int:
        """All steps, and the unpruned model."""
        return 1 + sum(len(points) - 1 for points in self.steps.values())

    def plan(self) -> list[Cell]:
        """The unpruned model, and all steps if their order is known in advance."""
        first = self.unpruned(**_facts(None, Step(0, 0.0, 0), self.start))
        if self.settings["reestimate"]:
            return [first]
        found, scores = [first], self._first_scores()
        for label, components in self.curves.items():
            mask, order = self.start, self._order(label) or scores
            for step in self.steps[label][1:]:
                mask = mask.without(next_heads(mask, order, components, self.start, step.pruned))
                found.append(Cell(_cell_id(label, step), mask, _facts(label, step, mask)))
        return found

    @property
    def stepwise(self) -> bool:
        """Whether importance is estimated again before each step."""
        return bool(self.settings["reestimate"])

    def next(self, done: Mapping[str, Done]) -> list[Cell]:
        """The next step, if importance is estimated again on each pruned model."""
        if not self.settings["reestimate"]:
            return []
        for label, components in self.curves.items():
            for before, step in zip(self.steps[label], self.steps[label][1:], strict=False):
                if _cell_id(label, step) not in done:
                    return [self._reestimated(label, components, before, step)]
        return []

    def result(self, cells: Mapping[str, Done]) -> Document:
        """Report how the score drops."""
        labels, settings, measure = list(self.curves), self.settings, self.measure
        unpruned, family = cells.get(UNPRUNED), self.family(self.planned() - 1)
        done = [cell for name, cell in cells.items() if name != UNPRUNED]
        missing = self.unfinished(len(cells), "steps", "; p is corrected when all are")
        order, path = order_name(settings), self.folder.path / "scores.json"
        title = f"Pruning step by step, on {self.split} (order: {order})"
        document = self.document(title, unpruned, missing, family.count, len(cells))
        document.state["order"] = order
        scores = Scores.load(path) if path.is_file() else None
        # No map for several random orders: each has its own scores.
        document.maps = [importance_map(scores.to_dict())] if scores and not settings.get("seeds") else []
        if not unpruned:
            return document
        found = in_curves(unpruned, done, labels, bool(missing))
        means = {} if missing else mean_curves(found)
        document.charts = [share_chart(measure, self.split, means or found, self.alpha)]
        caption = f"{measure} by share of heads pruned; each column prunes its own heads and leaves the others"
        caption += f"; {told}" if (told := orders_told(means)) else ""
        document.tables = [curve_table(found | means, family, caption)]
        used = _used(scores) if scores else {}
        how = f"{unpruned['signature']}{beside_text(unpruned)}; order: {settings['order']}; importance from "
        how += _source(used)
        scored = sorted((self.folder.path / "scores").glob("*.json"))
        document.notes = [family.legend(), how, *concerns_of_files([path, *scored])]
        document.findings = [] if missing else [curve_found(*curve, family, measure) for curve in found.items()]
        document.data = {
            "baseline": unpruned,
            "curves": found,
            **({"means": means} if means else {}),
            **document.data,
            "score_data": used,
        }
        return document

    def _reestimated(self, label: str, components: list[str], before: Step, step: Step) -> Cell:
        """One step whose order is estimated on the model of the previous step."""
        if before.number:
            mask = self.folder.read_mask(_cell_id(label, before))
            with self.session.gates.masked(mask):
                scores = self._estimate(self.how.score, self._first_scores())
            path = self.folder.path / "scores" / f"{_cell_id(label, step)}.json"
            path.parent.mkdir(exist_ok=True)
            scores.save(path)
        else:
            mask, scores = self.start, self._first_scores()
        mask = mask.without(next_heads(mask, scores, components, self.start, step.pruned))
        return Cell(_cell_id(label, step), mask, _facts(label, step, mask))

    def _estimate(self, settings: ScoreSettings, first: Scores | None = None) -> Scores:
        from fairseq_headprune.studies.estimates import estimate_scores  # torch: a finished study is read without it

        return estimate_scores(self.session, settings, first)

    def _order(self, label: str) -> Scores | None:
        """The random order of a curve with its own seed."""
        seed = curve_seed(label)
        return None if seed is None else self._estimate(replace(self.how.score, seed=seed))

    def _first_scores(self) -> Scores:
        """The scores of the unpruned model: given, stored by an earlier run, or estimated now by one process."""
        path = self.folder.path / "scores.json"

        def make() -> None:
            with self.session.gates.masked(self.start):
                (self.given or self._estimate(self.how.score)).save(path)

        self.folder.claims.once("scores", path.exists, make)
        return Scores.load(path)


def _cell_id(label: str, step: Step) -> str:
    return f"{label}-{step.number:02d}"


def _facts(label: str | None, step: Step, mask: Mask) -> dict[str, Any]:
    """Facts about a step that are stored with its cell."""
    return {
        "curve": label,
        "step": step.number,
        "percent": step.percent,
        "pruned": step.pruned,
        "kept": {c: n["kept"] for c, n in mask.counts().items()},
    }


def importance_map(scores: Mapping[str, Any]) -> HeadMap:
    """Return the map of the heads' importance, from the JSON of ``headprune score``."""
    rows = {component: layers for component, layers in scores["scores"].items() if component in HEADS}
    how = scores["estimator"]
    if scores.get("normalize", "none") != "none":
        how += f", normalised by {scores['normalize']}"
    caption, label = f"Importance of heads ({how})", "importance, the lowest pruned first"
    return HeadMap(caption, "importance", number_components(rows, "importance"), label, "scores")


def _used(scores: Scores) -> dict[str, Any]:
    """Data and number of sentences on which the ranking was estimated; empty if it needs none."""
    data = {name: scores.data[name] for name in ("split", "of") if name in scores.data}
    return {**data, "sentences": scores.sentences} if data.get("split") else {}


def _source(data: dict[str, Any]) -> str:
    if not data.get("split"):
        return "no data"
    count, total = data["sentences"] or "all", data.get("of")
    return f"{data['split']} ({count}{f' of {total}' if total else ''} sentences)"
