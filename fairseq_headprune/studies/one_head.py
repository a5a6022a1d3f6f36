"""Common code of studies of single heads: one cell per head, score differences, and the map of the heads."""

from collections.abc import Iterable, Mapping
from typing import Any

from fairseq_headprune.evaluation.evaluator import BESIDE
from fairseq_headprune.files import PathLike
from fairseq_headprune.parts import Mask, Part
from fairseq_headprune.report.document import HeadMap, map_components
from fairseq_headprune.report.marks import Family
from fairseq_headprune.studies.folder import StudyFolder
from fairseq_headprune.studies.mask_study import MaskStudy
from fairseq_headprune.studies.results import with_delta, with_holm
from fairseq_headprune.studies.study import UNPRUNED, Cell, Done

_NO_HEAD: dict[str, Any] = {"component": None, "layer": None, "head": None}
_VALUES = ("id", "score", "delta", *(f"delta_{name}" for name in BESIDE), "p", "p_holm", "ci")


def cell_id(head: Part) -> str:
    """Return the id of the cell of a head."""
    return "-".join(map(str, head))


class OneHeadStudy(MaskStudy):
    """A study with one cell per head of the ``components`` in its settings."""

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
