"""Are the tickets winning? Scores after pruning and after retraining them (Prasanna et al. 2020, §4.2, §4.3)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from fairseq_headprune.files import sha256
from fairseq_headprune.parts import FFN, HEADS, Mask
from fairseq_headprune.report.document import Document
from fairseq_headprune.report.marks import Family
from fairseq_headprune.report.tables import Marked, Table
from fairseq_headprune.studies.fine_tuning import FineTuning
from fairseq_headprune.studies.mask_study import Comparison, MaskStudy, model_settings
from fairseq_headprune.studies.results import with_delta, with_holm
from fairseq_headprune.studies.study import UNPRUNED, Cell, Done

#: the full model, retrained in the same way as the tickets
FULL = "full"

#: setting in which a ticket is scored -> column title
HOW = {"pruned": "After pruning", "retrained": "Trained again", "fresh": "From random weights"}


class LotteryRetrain(MaskStudy):
    """Score the tickets of one model as they are, and retrained from its initial weights or from random ones.

    Attributes:
        generate: data folder and flags of fairseq-generate, used to run the trained models.
        begin: checkpoint that trainings start from; None: flags and seed determine the initial weights.
    """

    name = "lottery-retrain"
    generate: Sequence[str] = ()
    begin: str | None = None

    @classmethod
    def of(
        cls,
        session: Any,
        split: str,
        tickets: Mapping[str, Mask],
        how: FineTuning,
        seed: int,
        begin: str | None,
        fresh: Mapping[str, Any] | None,
        comparison: Comparison,
    ) -> "LotteryRetrain":
        """Make the study of a loaded model.

        Args:
            tickets: name -> mask.
            seed: seed of the trainings; the model's own, so that its task layer, or all of it, is initialised alike.
            begin: see :attr:`begin`.
            fresh: ``seed`` and ``flags`` of the trainings from random weights; None: no such trainings.
        """
        settings = {
            "tickets": {name: mask.rows for name, mask in tickets.items()},
            "fine_tuning": asdict(how),
            "training_seed": seed,
            "begin": begin and sha256(begin),
            "fresh": fresh and dict(fresh),
            "majority": _majority(session, split, comparison),
        }
        study = cls({**model_settings(session, cls.name, split), **settings, **vars(comparison)}, session)
        study.begin = begin
        study.sources = {name: mask.source for name, mask in tickets.items()}
        return study

    sources: Mapping[str, Mapping[str, Any]] = {}

    @property
    def tickets(self) -> dict[str, Mask]:
        """The tickets by name."""
        return {name: Mask(rows) for name, rows in self.settings["tickets"].items()}

    @property
    def settings_of(self) -> list[str]:
        """The settings in which each ticket is scored."""
        return [how for how in HOW if how != "fresh" or self.settings["fresh"]]

    def check(self) -> None:
        """Check that the tickets are of this model."""
        for name, ticket in self.tickets.items():
            ticket.check_shape(self.start.shape, str(self.session.path))
            made_for = self.sources[name].get("checkpoints")
            if made_for and self.settings["checkpoint"] not in made_for:
                raise ValueError(f"the ticket {name} was found in another checkpoint than {self.session.path}")
        super().check()

    def plan(self) -> list[Cell]:
        """The model, each ticket in each setting, and the full model retrained."""
        found = [self.unpruned(ticket=FULL, how="pruned", kept=_sizes(self.start))]
        for name, mask in {FULL: self.start, **{n: self.start & mask for n, mask in self.tickets.items()}}.items():
            for how in self.settings_of:
                if (name, how) != (FULL, "pruned"):
                    facts = {"ticket": name, "how": how, "kept": _sizes(mask)}
                    found.append(Cell(f"{how}-{name}", Mask(mask.rows), facts, job=self._job(how, name, mask)))
        return found

    def _job(self, how: str, name: str, mask: Mask) -> Any:
        """The training of a cell; for a stored study, which has no session, only a placeholder."""
        if how == "pruned" or self.session is None:
            return None
        tuning = FineTuning(**self.settings["fine_tuning"])
        used = None if mask == Mask.full(mask.shape) else mask
        if how == "retrained":
            return tuning.job(self, f"{how}-{name}", used, self.settings["training_seed"], self.begin)
        fresh = self.settings["fresh"]
        return tuning.job(self, f"{how}-{name}", used, fresh["seed"], None, fresh["flags"])

    def planned(self) -> int:
        """One cell for each ticket, and for the full model, in each setting."""
        return (1 + len(self.settings["tickets"])) * len(self.settings_of)

    def result(self, cells: Mapping[str, Done]) -> Document:
        """Report the score of each ticket in each setting."""
        full, family = cells.get(UNPRUNED), self.family(self.planned() - 1)
        done = f"{len(cells)} of {self.planned()} cells are done: run headprune lottery retrain again with its settings"
        missing = [done] if len(cells) < self.planned() else []
        document = self.document(f"Lottery tickets, trained alone, on {self.split}", full, missing, family.count)
        document.state["done"] = len(cells)
        if full is None:
            return document
        names = [cell.id for cell in self.plan() if cell.id in cells and cell.id != UNPRUNED]
        others = [with_delta(cells[name], full) for name in names]
        tested = [{**cell, "p_holm": None} for cell in others] if missing else with_holm(others)
        document.tables = [self._table(full, tested, family)]
        document.findings = [] if missing else [self._found(tested)]
        fine, begin = self.settings["fine_tuning"], self.settings["begin"]
        start = f"the checkpoint {begin[:12]}" if begin else "the weights that its flags and seed give"
        document.notes = [
            family.legend(),
            f"trained with {' '.join(fine['limit'])} from {start}, seed {self.settings['training_seed']}; "
            f"{full['signature']}",
        ]
        document.data = {
            "baseline": {**full, "delta": 0.0},
            "cells": tested,
            "majority": self.settings["majority"],
            **document.data,
        }
        return document

    def _found(self, tested: Sequence[Done]) -> str:
        """Say how the best ticket that was trained again compares with the full model trained again."""
        again = {cell["ticket"]: cell["score"] for cell in tested if cell["how"] == "retrained"}
        whole = again.pop(FULL)
        best = max(again, key=lambda name: again[name])
        return (
            f"best ticket trained again: {best}, {self.measure} {again[best]:.2f}, {again[best] - whole:+.2f} from the "
            f"full model trained again ({whole:.2f}; one seed: no test, see headprune lottery table)"
        )

    def _table(self, full: Done, tested: Sequence[Done], family: Family) -> Table:
        """One row per ticket, one column per setting."""
        found = {(cell["ticket"], cell["how"]): cell for cell in tested}
        text = {place: Marked(f"{cell['score']:.2f}", family.mark(cell)) for place, cell in found.items()}
        text[FULL, "pruned"] = f"{full['score']:.2f}"  # type: ignore[assignment]
        rows = []
        for name, mask in {FULL: self.start, **self.tickets}.items():
            sizes = _sizes(self.start & mask)
            rows.append([name, *sizes.values(), *(text.get((name, how)) for how in self.settings_of)])
        if majority := self.settings["majority"]:
            rows.append(["most frequent label", None, None, f"{majority['score']:.2f}", *[None] * (len(rows[0]) - 4)])
        header = ["Ticket", "Heads", "Blocks", *(HOW[how] for how in self.settings_of)]
        return Table(header, rows, caption=f"{self.measure} on {self.split} of each ticket")


def _sizes(mask: Mask) -> dict[str, int]:
    """Numbers of heads and blocks that a mask keeps."""
    return {"heads": len(mask.kept(HEADS)), "blocks": len(mask.kept(FFN))}


def _majority(session: Any, split: str, comparison: Comparison) -> dict[str, Any] | None:
    """The most frequent label of train and the score of always predicting it; None for translation."""
    if session.task.translates:
        return None
    counts = Counter(session.evaluator("train").references)
    label = min(counts, key=lambda name: (-counts[name], name))
    evaluator = session.evaluator(split)
    metric = evaluator.metric(comparison)
    statistics = metric.extract([label] * len(evaluator.references))
    return {"label": label, "score": float(metric.score(np.asarray(statistics).sum(axis=0)))}
