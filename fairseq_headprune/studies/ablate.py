"""Studies of single heads, one cell a head; and that of ``headprune ablate`` (Michel et al. 2019, §3.2)."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any, Self

from fairseq_headprune.evaluation.evaluator import BESIDE
from fairseq_headprune.files import PathLike
from fairseq_headprune.parts import PAPER_NAMES, Mask, Part
from fairseq_headprune.pruning import chosen_components, one_removed
from fairseq_headprune.report.described import Column, Described, Row
from fairseq_headprune.report.document import Document, HeadMap, Histogram, map_components
from fairseq_headprune.report.marks import Family
from fairseq_headprune.report.tables import Marked, Table, paper_head_table
from fairseq_headprune.studies.folder import StudyFolder
from fairseq_headprune.studies.mask_study import MaskStudy, model_settings
from fairseq_headprune.studies.results import beside_text, with_delta, with_holm
from fairseq_headprune.studies.study import UNPRUNED, Cell, Done

_NO_HEAD: dict[str, Any] = {"component": None, "layer": None, "head": None}
_VALUES = ("id", "score", "delta", *(f"delta_{name}" for name in BESIDE), "p", "p_holm", "ci")


def cell_id(head: Part) -> str:
    """Return the id of the cell of a head."""
    return "-".join(map(str, head))


class OneHeadStudy(MaskStudy):
    """A study with one cell per head of the ``components`` in its settings."""

    @classmethod
    def of(cls, session: Any, split: str, components: str, comparison: Any, select: str | None = None) -> Self:
        """Make the study of a loaded model.

        Args:
            split: the split that results are reported on.
            components: ``all``, or a list separated by commas.
            select: the split that heads are chosen on, in studies that choose some.
        """
        chosen = chosen_components(components, list(session.gates.shape))
        settings = {**model_settings(session, cls.name, split), "components": chosen, **asdict(comparison)}
        return cls(settings | ({"select_data": session.data(select)} if select else {}), session)

    def check(self) -> None:
        """Check that there are such heads, besides the checks of every study of masks."""
        self.plan()
        super().check()

    @property
    def components(self) -> list[str]:
        """Components whose heads are studied."""
        return self.settings["components"]

    def open(self, path: PathLike, environment: Mapping[str, Any] | None = None) -> StudyFolder:
        """Open the folder, and store the sentences of the splits there for the report page."""
        folder = super().open(path, environment)
        for split in self.splits:
            evaluator = self.session.evaluator(split)
            folder.write_texts(split, evaluator.sources, evaluator.references)
        return folder

    def cells_of(self, masks: Mapping[Part, Mask], split: str | None = None) -> list[Cell]:
        """Return the unpruned cell and a cell for each mask; ``split``, if given, is part of their ids."""
        prefix = f"{split}@" if split else ""
        against = prefix + UNPRUNED
        found = [Cell(against, self.start, _NO_HEAD, split, against)]
        return found + [
            Cell(prefix + cell_id(head), mask, head.facts(), split, against) for head, mask in masks.items()
        ]

    def compared(
        self, done: Mapping[str, Done], heads: list[Part], split: str | None = None
    ) -> tuple[Done | None, dict[Part, Done], list[str]]:
        """Return the unpruned cell, the finished cells of these heads, and what is missing.

        The cells have ``delta`` and ``p_holm`` (corrected over these heads; None until all are finished).
        """
        prefix = f"{split}@" if split else ""
        baseline = done.get(prefix + UNPRUNED)
        names = {head: prefix + cell_id(head) for head in heads}
        cells = {head: with_delta(done[name], baseline) for head, name in names.items() if baseline and name in done}
        finished = baseline is not None and len(cells) == len(heads)
        tested = dict(zip(cells, with_holm(list(cells.values()), finished), strict=True))
        count = f"{len(cells)} of {len(heads)} masks are done on {split or self.split}"
        return baseline, tested, [] if finished else [f"{count}; p is corrected when all are: {self.again}"]

    def head_map(self, cells: Mapping[Part, Done], tests: Family, caption: str, **more: Any) -> HeadMap:
        """Arrange cells by component, layer and head; heads without a cell were pruned before, or are missing."""

        def values(head: Part) -> dict[str, Any]:
            if head in cells:
                return {**values_of(cells[head]), "mark": tests.mark(cells[head])}
            return {"state": "missing" if self.start[head] else "pruned"}

        shape = {component: self.start.shape[component] for component in self.components}
        return HeadMap(caption, "delta", map_components(shape, values), alpha=self.alpha, **more)


def values_of(cell: Done) -> dict[str, Any]:
    """Return the values of a cell that the report page shows."""
    return {name: cell[name] for name in _VALUES if name in cell}


def entries(head_map: HeadMap) -> Iterable[tuple[Part, dict[str, Any]]]:
    """Iterate over the heads of a map with their cells."""
    for drawn in head_map.components:
        for layer in drawn["layers"]:
            for entry in layer:
                yield Part(drawn["component"], entry["layer"], entry["head"]), entry


class Ablate(OneHeadStudy):
    """Mask every head alone, and test each mask against the unpruned model."""

    name = "ablate"

    @property
    def masks(self) -> dict[Part, Mask]:
        """The mask of each head; it raises ValueError where there is none."""
        return one_removed(self.start, self.components)

    def plan(self) -> list[Cell]:
        """The unpruned model, and one mask per head."""
        return self.cells_of(self.masks)

    def result(self, cells: Mapping[str, Done]) -> Document:
        """Report what each head contributes."""
        heads, measure = list(self.masks), self.measure
        baseline, found, missing = self.compared(cells, heads)
        tests = self.family(len(heads))
        caption = f"Difference in {measure} on {self.split} when one head is masked"
        head_map = self.head_map(
            found,
            tests,
            caption,
            label=f"difference in {measure}",
            name="deltas",
            masked="Without the head",
            split=self.split,
            against=UNPRUNED,
        )
        title, done = f"Every head masked alone, on {self.split}", len(found) + bool(baseline)
        document = self.document(title, baseline, missing, len(heads), done)
        document.maps = [head_map]
        if baseline and found:
            document.tables = [self._table(part, measure) for part in head_map.components]
            listed = {"cells": list(found.values()), "tests": tests, "first": self.first}
            caption = f"Heads that change {measure} when masked alone, layers and heads from {self.first}"
            document.tables.append(replace(BY_COMPONENT.table({"": listed}), caption=caption))
            for name in (name for name in BESIDE if name in baseline):
                tables = [self._table(part, BESIDE[name], f"delta_{name}") for part in head_map.components]
                document.tables += tables
            document.notes = [
                f"{measure} of the unpruned model on {self.split}: {baseline['score']:.2f}{beside_text(baseline)}",
                tests.legend(),
                baseline["signature"],
            ]
            scores = [cell["score"] for cell in found.values()]
            document.histograms = [Histogram("histogram", measure, scores, baseline["score"])]
        if baseline and not missing:
            document.data = {
                "baseline": baseline,
                "cells": [{**baseline, "delta": 0.0, "p_holm": 1.0}, *found.values()],
                **document.data,
                "found": count(list(found.values()), tests),
            }
            document.findings = [_sentence(document.data["found"], measure, tests)]
        return document

    def _table(self, drawn: dict[str, Any], measure: str, value: str = "delta") -> Table:
        """Table 1 of Michel et al. (2019) for one component of the map; only differences of the score are marked."""
        rows = drawn["layers"]
        return paper_head_table(
            [[cell.get(value) for cell in row] for row in rows],
            [[cell.get("mark", "") for cell in row] for row in rows] if value == "delta" else None,
            caption=f"{PAPER_NAMES[drawn['component']]} ({drawn['component']}): difference in {measure} without each "
            f"head, counted from {self.first}",
            first=self.first,
        )


def _worst(rows: list[Row]) -> Row:
    return min(rows, key=lambda row: row["delta"])


def _changed(rows: list[Row], sign: int) -> int:
    return sum(row["tests"].raw(row) and sign * row["delta"] > 0 for row in rows)


def _loss(rows: list[Row]) -> Marked:
    worst = _worst(rows)
    return Marked(f"{worst['delta']:+.2f}", worst["tests"].mark(worst))


def _where(rows: list[Row]) -> str:
    worst = _worst(rows)
    return f"layer {worst['layer'] + worst['first']}, head {worst['head'] + worst['first']}"


#: How many heads matter, by component, from documents with ``cells``, their family of ``tests``, and ``first``, the
#: number from which layers and heads count.
BY_COMPONENT = Described(
    [
        Column("Component", "component", PAPER_NAMES.get),
        Column("Heads", form=len, over=True),
        Column("Lose", form=lambda rows: _changed(rows, -1), over=True),
        Column("Gain", form=lambda rows: _changed(rows, 1), over=True),
        Column("Largest loss", form=_loss, over=True),
        Column("Where", form=_where, over=True),
    ],
    rows="cells",
    only=lambda row: row["component"] is not None,
    align="lrrrrl",
    note="lose, gain: by its own test, before Holm's correction",
)


def count(cells: list[Done], tests: Family) -> dict[str, int]:
    """Count the heads, those whose removal changes the score significantly, and those whose removal raises it."""
    holm, raw = [cell for cell in cells if tests.significant(cell)], [cell for cell in cells if tests.raw(cell)]
    return {
        "heads": len(cells),
        "significant": len(holm),
        "improve": sum(cell["delta"] > 0 for cell in holm),
        "significant_raw": len(raw),
        "improve_raw": sum(cell["delta"] > 0 for cell in raw),
    }


def _sentence(found: dict[str, int], measure: str, tests: Family) -> str:
    improve = f"{found['improve']} {'improves' if found['improve'] == 1 else 'improve'} it"
    return (
        f"{found['significant']} of {found['heads']} heads change {measure} significantly; {improve} "
        f"(without Holm's correction: {found['significant_raw']}; {found['improve_raw']}){tests.too_few}"
    )
