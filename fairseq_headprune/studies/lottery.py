"""The search for a winning ticket as a study: every attempted step is a cell (Prasanna et al. 2020, §3)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from itertools import count, islice, takewhile
from typing import Any

from fairseq_headprune.choosing.lottery import GROUPS, Move, StructuredSearch, parts_kept, weights_pruned
from fairseq_headprune.evaluation.p_values import p_text
from fairseq_headprune.importance.settings import MICHEL, PRESETS, ScoreSettings
from fairseq_headprune.parts import FFN, HEADS, Mask
from fairseq_headprune.parts.scores import Scores
from fairseq_headprune.report.document import Document
from fairseq_headprune.report.marks import SENTENCES, p_said
from fairseq_headprune.report.tables import Table
from fairseq_headprune.studies.mask_study import Comparison, MaskStudy, model_settings
from fairseq_headprune.studies.study import UNPRUNED, Cell, Done

TICKET = "ticket"


@dataclass(frozen=True)
class LotterySettings(Comparison):
    """How a ticket is searched for.

    Attributes:
        mode: ``heads``, ``blocks``, ``both``, or ``magnitude`` (single weights).
        threshold: share of the full model's score that must be kept on the split ``select``.
        step: share of the heads, or weights, pruned in one step.
        magnitude_of: ``original`` or ``remaining``: the weights of which ``step`` is a share.
        score: how importance is estimated; by default as in the paper, with heads normalised by layer.
    """

    mode: str = "both"
    threshold: Fraction = Fraction(9, 10)
    step: Fraction = Fraction(1, 10)
    select: str = "valid"
    magnitude_of: str = "remaining"
    score: ScoreSettings = field(default_factory=lambda: ScoreSettings(**PRESETS[MICHEL]))

    def to_dict(self) -> dict[str, Any]:
        """Return the settings that matter in this mode as JSON values; the split is recorded with the data."""
        values = {**asdict(self), "step": str(self.step), "threshold": str(self.threshold)}
        values["score"] = self.score.relevant()
        unused = {"select", "score" if self.mode == "magnitude" else "magnitude_of"}
        return {name: value for name, value in values.items() if name not in unused}


class LotteryFind(MaskStudy):
    """Prune while the score holds on one split; report the remaining parts (the ticket) on another one as well.

    Importance is always estimated under the last accepted mask. A rejected step is a cell as well.

    Attributes:
        how: settings of the search; only set to run the study.
    """

    name = "lottery-find"
    how: LotterySettings

    @classmethod
    def of(cls, session: Any, split: str, how: LotterySettings) -> "LotteryFind":
        """Make the study of a loaded model, whose gates include feed-forward blocks if the mode prunes them."""
        data = {"select_data": session.data(how.select)}
        if how.mode == "magnitude":
            from fairseq_headprune.choosing.magnitude import layer_matrices  # imports torch, which reports do not need

            data["weights"] = sum(matrix.numel() for matrix in layer_matrices(session.model).values())
        else:
            data["score_data"] = session.data(how.score.subset)
        study = cls({**model_settings(session, cls.name, split), **data, **how.to_dict()}, session)
        study.how = how
        return study

    @property
    def mode(self) -> str:
        """What is pruned."""
        return self.settings["mode"]

    @property
    def splits(self) -> list[str]:
        """The splits that the model is run on."""
        return [self.select, *([self.split] if self.reports else [])]

    def check(self) -> None:
        """Check that the model has the parts that the mode prunes, besides the checks of every study of masks."""
        for what, total in parts_kept(self.start).items():
            if self.mode in (what, "both") and not total:
                raise ValueError(f"--mode {self.mode}: {self.session.path} has no {what[:-1]} that is not pruned")
        super().check()

    def warnings(self) -> list[str]:
        """Warn where the ticket is chosen and reported on the same examples."""
        if self.reports:
            return []
        return [
            f"the ticket is chosen on {self.select}, whose examples are those of {self.split}: its score there is "
            "optimistic (the paper's setting; choose on a holdout of train, or on another split, with --select-on)"
        ]

    def planned(self) -> None:
        """None: the number of steps is not known in advance."""
        return None

    def at_most(self) -> tuple[int | None, str]:
        """Return the number of steps that prune everything, the rejected ones, and the cells of the reported split."""
        if self.settings.get("magnitude_of") == "remaining":
            return None, "the number of steps is not known: each prunes a share of what remains"
        steps = math.ceil(1 / Fraction(self.settings["step"])) + len(self.start.kept(FFN))
        return 1 + steps + 3 + 2 * self.reports, "at most: the search ends when the score falls below the threshold"

    @property
    def stepwise(self) -> bool:
        """True: each step is tried on the last accepted one."""
        return True

    def plan(self) -> list[Cell]:
        """The full model."""
        return [Cell(UNPRUNED, self.start, self._facts(0, self.start, {}), self.select)]

    def next(self, done: Mapping[str, Done]) -> list[Cell]:
        """The next step to try; at the end, the ticket on the reported split.

        Raises:
            ValueError: the full model itself misses the threshold.
        """
        full = done[UNPRUNED]["score"]
        if full < 0:
            raise ValueError(
                f"{self.measure} of the full model on {self.select} is {full:.2f}: it misses a threshold that is a "
                "share of that itself"
            )
        steps, tried = self.steps(done), self._move(done)
        if tried is not None:
            return [self._cell(len(steps) + 1, tried, self.ticket(done)["id"])]
        against, ticket = f"{self.split}@{UNPRUNED}", f"{self.split}@{TICKET}"
        if not self.reports or ticket in done:
            return []
        last = self.ticket(done)
        facts = {name: last[name] for name in self._facts(0, self.start, {})}
        cells = [
            Cell(against, self.start, self._facts(0, self.start, {}), self.split, against),
            Cell(ticket, self.folder.read_mask(last["id"]), facts, self.split, against),
        ]
        return [cell for cell in cells if cell.id not in done]

    def split_of(self, cell_id: str) -> str:
        """Return the split that a cell is on; the search is on ``select``."""
        return cell_id.rpartition("@")[0] or self.select

    def holds(self, cell: Done, full: Done) -> bool:
        """Whether a step keeps the required share of the full model's score."""
        return cell["score"] >= float(Fraction(self.settings["threshold"])) * full["score"]

    def steps(self, cells: Mapping[str, Done]) -> list[Done]:
        """The attempted steps in order, each with ``accepted``."""
        names = takewhile(cells.__contains__, (_step(number) for number in count(1)))
        return [{**cells[name], "accepted": self.holds(cells[name], cells[UNPRUNED])} for name in names]

    def ticket(self, cells: Mapping[str, Done]) -> Done:
        """Return the cell of the last accepted mask."""
        return [cells[UNPRUNED], *(cell for cell in self.steps(cells) if cell["accepted"])][-1]

    def ended(self, cells: Mapping[str, Done]) -> bool:
        """Whether the study is finished."""
        return self._move(cells) is None and (not self.reports or f"{self.split}@{TICKET}" in cells)

    def _move(self, done: Mapping[str, Done]) -> Move | int | None:
        """The next attempt: parts to prune, or the number of pruned weights; None if the search has ended."""
        share, accepted = Fraction(self.settings["step"]), [step["accepted"] for step in self.steps(done)]
        if self.mode == "magnitude":
            counts = weights_pruned(self.settings["weights"], share, self.settings["magnitude_of"])
            return next(islice(counts, len(accepted), None), None) if all(accepted) else None
        search = StructuredSearch(self.mode, **parts_kept(self.start), share=share)
        for held in accepted:
            search.tell(held)
        return search.move()

    def _cell(self, number: int, tried: Move | int, accepted: str) -> Cell:
        """The cell of an attempted step, which follows the last accepted one."""
        if isinstance(tried, int):
            return Cell(_step(number), self.start, {"step": number, "weights": tried}, self.select)
        scores, mask = self._scores(accepted), self.folder.read_mask(accepted)
        mask = mask.without([*scores.pruning_order(HEADS)[: tried.heads], *scores.pruning_order(FFN)[: tried.blocks]])
        facts = self._facts(number, mask, {"tried": asdict(tried), "after": accepted})
        return Cell(_step(number), mask, facts, self.select)

    def _scores(self, accepted: str) -> Scores:
        """Importance under an accepted mask, read if an earlier run stored it, otherwise estimated."""
        path = self.folder.path / "scores" / f"{accepted}.json"
        if not path.exists():
            from fairseq_headprune.studies.estimates import estimate_scores

            path.parent.mkdir(exist_ok=True)
            first = None if accepted == UNPRUNED else self._scores(UNPRUNED)
            with self.session.gates.masked(self.folder.read_mask(accepted)):
                estimate_scores(self.session, self.how.score, first).save(path)
        return Scores.load(path)

    def kept_weights(self, cell: Cell, matrices: Any) -> Any:
        """The weights that a step of magnitude pruning keeps."""
        from fairseq_headprune.choosing.magnitude import without_lowest

        return without_lowest(matrices, cell.facts["weights"])

    def _facts(self, number: int, mask: Mask, more: Mapping[str, Any]) -> dict[str, Any]:
        """Facts about a step that are stored with its cell."""
        if self.mode == "magnitude":
            return {"step": number, "weights": 0, **more}
        counts = {what: len(mask.dropped(group)) for what, group in GROUPS.items()}
        kept = {c: n["kept"] for c, n in mask.counts().items()}
        return {"step": number, "pruned": counts, "kept": kept, **more}

    def result(self, cells: Mapping[str, Done]) -> Document:
        """Report the ticket and its score."""
        full = cells.get(UNPRUNED)
        title = f"Lottery ticket ({self.mode}), chosen on {self.select}"
        told = cells.get(f"{self.split}@{TICKET}")
        ended = full is not None and self.ended(cells)
        missing = [] if ended else [f"the search has not ended: {self.again}"]
        document = self.document(title, full, missing, len(cells) - 1, len(cells))
        if full is None:
            return document
        steps = self.steps(cells)
        document.tables = [_steps_table(full, steps, self.measure, self.select)]
        threshold = float(Fraction(self.settings["threshold"]))
        document.notes = [
            f"a step is accepted if {self.measure} on {self.select} is at least {threshold:g} of the full model's "
            f"({threshold * full['score']:.2f}); {full['signature']}",
            *self.warnings(),
        ]
        ticket = self.ticket(cells)
        document.data = {"baseline": full, "steps": steps, "ticket": ticket, **document.data}
        if told:
            document.data["reported"] = {"baseline": cells[f"{self.split}@{UNPRUNED}"], "ticket": told}
            tests = self.family(1)
            document.notes.append(f"p: {SENTENCES}, {tests.resamples} resamples, seed {tests.seed}")
        if ended:
            document.findings = [self._found(ticket, full, told, cells)]
        return document

    def _found(self, ticket: Done, full: Done, told: Done | None, cells: Mapping[str, Done]) -> str:
        """Describe the ticket in a sentence."""
        if self.mode == "magnitude":
            left, total = self.settings["weights"] - ticket["weights"], self.settings["weights"]
            size, all_gone = f"{left:,} of {total:,} weights ({left / total:.1%})", left == 0
        else:
            total_of = {what: total for what, total in parts_kept(self.start).items() if self.mode in (what, "both")}
            left_of = {what: total - ticket["pruned"][what] for what, total in total_of.items()}
            size = " and ".join(f"{left_of[what]} of {total} {what}" for what, total in total_of.items())
            all_gone = not any(left_of.values())
        scores = f"{self.measure} {ticket['score']:.2f} on {self.select}, full model {full['score']:.2f}"
        found = f"The ticket keeps {size}: {scores}."
        if told:
            other = cells[f"{self.split}@{UNPRUNED}"]["score"]
            p = p_said(p_text(told["p"], self.settings["resamples"]))
            found += f" On {self.split}: {told['score']:.2f}, full model {other:.2f} ({p})."
        return found + (" Everything is pruned: what remains of the model answers as well." if all_gone else "")


def searches_document(studies: Sequence[LotteryFind]) -> Document:
    """Return the tickets of several searches in one document."""
    document = Document(f"Lottery tickets of {len(studies)} searches")
    document.data["searches"] = []
    for study in studies:
        found = study.result(study.cells())
        name = "/".join(study.folder.path.parts[-2:])
        document.missing += [f"{name}: {text}" for text in found.missing]
        document.findings += [f"{name}: {text}" for text in found.findings]
        kept = {key: found.data.get(key) for key in ("baseline", "ticket", "reported")}
        document.data["searches"].append({"study": str(study.folder.path), "mode": study.mode, **kept})
    return document


def _step(number: int) -> str:
    return f"step-{number:03d}"


def _steps_table(full: Done, steps: Sequence[Done], measure: str, split: str) -> Table:
    weights = "weights" in full
    header = [
        "Step",
        *(["Weights pruned"] if weights else ["Tried", "Heads pruned", "Blocks pruned"]),
        measure,
        "Accepted",
    ]
    rows = []
    for cell in [{**full, "accepted": None}, *steps]:
        tried = cell.get("tried")
        what = "-" if tried is None else "+".join(f"{tried[n]} {n}" for n in ("heads", "blocks") if tried[n])
        size = [f"{cell['weights']:,}"] if weights else [what, cell["pruned"]["heads"], cell["pruned"]["blocks"]]
        accepted = "-" if cell["accepted"] is None else "yes" if cell["accepted"] else "no"
        rows.append([cell["step"], *size, f"{cell['score']:.2f}", accepted])
    caption = f"Steps of the search, {measure} on {split}"
    return Table(header, rows, caption=caption)
