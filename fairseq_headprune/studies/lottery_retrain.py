"""Are the tickets winning? Scores after pruning and after retraining them (Prasanna et al. 2020, §4.2, §4.3)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_headprune.choosing.lottery import parts_kept
from fairseq_headprune.files import sha256
from fairseq_headprune.jobs.training import Run
from fairseq_headprune.parts import Mask
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
HOW = {
    "pruned": "After pruning",
    "retrained": "Trained again",
    "rewound": "Rewound",
    "fresh": "From random weights",
}

#: the training up to the update to which tickets are rewound, where there is no checkpoint of it
REWIND = "rewind"


@dataclass(frozen=True)
class WeightTicket:
    """A ticket of single weights, as ``headprune lottery tickets`` writes it; ``kept`` counts its weights."""

    path: str
    sha256: str
    kept: int
    source: Mapping[str, Any]


@dataclass(frozen=True)
class Retraining:
    """How tickets are trained.

    Attributes:
        tuning: flags of the trainings.
        seed: the model's own, so that its task layer, or all of it, is initialised alike.
        rewind: checkpoint, or update of the model's training, to which tickets are rewound; None: no such trainings.
        fresh: ``seed`` and ``flags`` of the trainings from random weights; None: no such trainings.
        embeddings: start from the trained model's embeddings (of BERT), not from the pretrained ones.
    """

    tuning: FineTuning
    seed: int
    rewind: str | int | None = None
    fresh: Mapping[str, Any] | None = None
    embeddings: bool = False


class LotteryRetrain(MaskStudy):
    """Score the tickets of one model as they are, and retrained from its initial weights or from random ones.

    Attributes:
        generate: data folder and flags of fairseq-generate, used to run the trained models.
        how: how tickets are trained; only set to run the study.
        given: the tickets; only set to run the study.
    """

    name = "lottery-retrain"
    generate: Sequence[str] = ()
    how: Retraining
    given: Mapping[str, Mask | WeightTicket]

    @classmethod
    def of(
        cls,
        session: Any,
        split: str,
        tickets: Mapping[str, Mask | WeightTicket],
        how: Retraining,
        comparison: Comparison,
    ) -> "LotteryRetrain":
        """Make the study of a loaded model and its tickets by name."""
        settings = {
            "tickets": {name: _content(ticket) for name, ticket in tickets.items()},
            "fine_tuning": asdict(how.tuning),
            "training_seed": how.seed,
            "begin": sha256(how.rewind) if isinstance(how.rewind, str) else how.rewind,
            "embeddings": how.embeddings,
            "fresh": how.fresh and dict(how.fresh),
            "majority": _majority(session, split, comparison),
        }
        study = cls({**model_settings(session, cls.name, split), **settings, **vars(comparison)}, session)
        study.how, study.given = how, tickets
        return study

    @property
    def tickets(self) -> dict[str, Mask]:
        """The tickets by name; one of single weights keeps all parts."""
        found = self.settings["tickets"]
        return {name: self.start if "weights" in kept else Mask(kept) for name, kept in found.items()}

    @property
    def settings_of(self) -> list[str]:
        """The settings in which each ticket is scored."""
        left_out = {"rewound": not self.settings["begin"], "fresh": not self.settings["fresh"]}
        return [how for how in HOW if not left_out.get(how)]

    def check(self) -> None:
        """Check that the tickets are of this model, and the flags of their trainings."""
        from fairseq_headprune.choosing.magnitude import check_weights, layer_matrices, load_weights

        FineTuning(**self.settings["fine_tuning"]).check_training(self.session)
        for name, ticket in self.given.items():
            if isinstance(ticket, Mask):
                ticket.check_shape(self.start.shape, str(self.session.path))
            else:
                check_weights(layer_matrices(self.session.model), load_weights(ticket.path)[0], name, self.session.path)
            made_for = (ticket.source or {}).get("checkpoints")
            if made_for and self.settings["checkpoint"] not in made_for:
                raise ValueError(f"the ticket {name} was found in another checkpoint than {self.session.path}")
        super().check()

    def notices(self) -> list[str]:
        """Say that the whole model is trained up to the update to rewind to."""
        begin = self.settings["begin"]
        told = f"there is no checkpoint of update {begin} beside {self.session.path}; the model is trained up to it"
        return [*super().notices(), *([told] if isinstance(begin, int) else [])]

    def plan(self) -> list[Cell]:
        """The model, each ticket in each setting, and the full model retrained."""
        found = [self.unpruned(ticket=FULL, how="pruned", kept=self._size(FULL))]
        for name, mask in {FULL: self.start, **{n: self.start & mask for n, mask in self.tickets.items()}}.items():
            for how in self.settings_of:
                if (name, how) != (FULL, "pruned"):
                    size = self._size(name)
                    facts: dict[str, Any] = {"ticket": name, "how": how, "kept": size}
                    facts |= {"weights": size["weights"]} if "weights" in size else {}
                    found.append(Cell(f"{how}-{name}", Mask(mask.rows), facts, job=self._job(how, name, mask)))
        return found

    def kept_weights(self, cell: Cell, matrices: Any) -> Any:
        """The weights that the ticket of a cell keeps."""
        from fairseq_headprune.choosing.magnitude import load_weights  # imports torch, which reports do not need

        return load_weights(self.given[cell.facts["ticket"]].path)[0]  # type: ignore[union-attr]

    def before(self) -> list[Any]:
        """The training up to the update to which tickets are rewound, where there is no checkpoint of it."""
        update = self.settings["begin"]
        if not isinstance(update, int):
            return []
        # The only validation is at the last update, so that its checkpoint is the best one.
        tuning = FineTuning(
            self.how.tuning.flags, ["--max-update", str(update), "--validate-after-updates", str(update)]
        )
        return [replace(tuning.job(self, REWIND, None, self.how.seed, None), split=None)]

    def _job(self, how: str, name: str, mask: Mask) -> Any:
        """The training of a cell; for a stored study, which has no session, only a placeholder."""
        if how == "pruned" or self.session is None:
            return None
        ticket, used = self.given.get(name), None if mask == Mask.full(mask.shape) else mask
        more = {"weights": str(Path(ticket.path).resolve())} if isinstance(ticket, WeightTicket) else {}
        tuning, seed = self.how.tuning, self.how.seed
        if how == "fresh":
            fresh = self.settings["fresh"]
            return tuning.job(self, f"{how}-{name}", used, fresh["seed"], None, fresh["flags"], **more)
        if how == "retrained":
            more |= {"embeddings": str(Path(self.session.path).resolve())} if self.how.embeddings else {}
            return tuning.job(self, f"{how}-{name}", used, seed, None, **more)
        if isinstance(self.how.rewind, str):
            return tuning.job(self, f"{how}-{name}", used, seed, self.how.rewind, **more)
        start = Run(self.folder.path, f"runs/{REWIND}").best
        return tuning.job(self, f"{how}-{name}", used, seed, str(start), after=REWIND, **more)

    def _size(self, name: str) -> dict[str, int]:
        """Numbers of heads and blocks, or of single weights, that a ticket keeps."""
        kept = self.settings["tickets"].get(name, {})
        if "weights" in kept:
            return {"weights": kept["kept"]}
        return parts_kept(self.start & self.tickets.get(name, self.start))

    def planned(self) -> int:
        """One cell for each ticket, and for the full model, in each setting."""
        return (1 + len(self.settings["tickets"])) * len(self.settings_of)

    def result(self, cells: Mapping[str, Done]) -> Document:
        """Report the score of each ticket in each setting."""
        full, family = cells.get(UNPRUNED), self.family(self.planned() - 1)
        missing = self.unfinished(len(cells))
        document = self.document(
            f"Lottery tickets, trained alone, on {self.split}", full, missing, family.count, len(cells)
        )
        if full is None:
            return document
        names = [cell.id for cell in self.plan() if cell.id in cells and cell.id != UNPRUNED]
        others = [with_delta(cells[name], full) for name in names]
        tested = with_holm(others, not missing)
        document.tables = [self._table(full, tested, family)]
        document.findings = [] if missing else [self._found(tested)]
        document.notes = [family.legend(), *self._told(full)]
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

    def _told(self, full: Done) -> list[str]:
        """Say what the trainings start from."""
        fine, begin = self.settings["fine_tuning"], self.settings["begin"]
        kept = ", with the embeddings of the trained model" if self.settings.get("embeddings") else ""
        notes = [
            f"trained with {' '.join(fine['limit'])} from the weights that its flags and seed give{kept}, seed "
            f"{self.settings['training_seed']}; {full['signature']}"
        ]
        if begin is not None:
            where = f"update {begin}, trained again up to it" if isinstance(begin, int) else f"checkpoint {begin[:12]}"
            notes.append(f"rewound: from the weights of {where}; the optimizer and its schedule begin anew")
        return notes

    def _table(self, full: Done, tested: Sequence[Done], family: Family) -> Table:
        """One row per ticket, one column per setting."""
        found = {(cell["ticket"], cell["how"]): cell for cell in tested}
        text = {place: Marked(f"{cell['score']:.2f}", family.mark(cell)) for place, cell in found.items()}
        text[FULL, "pruned"] = f"{full['score']:.2f}"  # type: ignore[assignment]
        sizes = {name: self._size(name) for name in (FULL, *self.tickets)}
        told = {what for name in self.tickets for what in sizes[name]}
        columns = [what for what in ("heads", "blocks", "weights") if what in told]
        rows = [
            [name, *(size.get(what) for what in columns), *(text.get((name, how)) for how in self.settings_of)]
            for name, size in sizes.items()
        ]
        if majority := self.settings["majority"]:
            scores = [f"{majority['score']:.2f}", *[None] * (len(self.settings_of) - 1)]
            rows.append(["most frequent label", *[None] * len(columns), *scores])
        header = ["Ticket", *(what.capitalize() for what in columns), *(HOW[how] for how in self.settings_of)]
        return Table(header, rows, caption=f"{self.measure} on {self.split} of each ticket")


def _content(ticket: Mask | WeightTicket) -> dict[str, Any]:
    """What the study's settings hold of a ticket."""
    return ticket.rows if isinstance(ticket, Mask) else {"weights": ticket.sha256, "kept": ticket.kept}


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
