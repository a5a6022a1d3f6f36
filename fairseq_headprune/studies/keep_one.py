"""The study of ``headprune keep-one``: is one head of a layer enough? (Michel et al. 2019, §3.3)."""

from collections.abc import Mapping
from typing import Any

from fairseq_headprune.parts import COMPONENTS, PAPER_NAMES, Mask, Part, by_layer
from fairseq_headprune.pruning import one_kept, passed_over
from fairseq_headprune.report.document import Document
from fairseq_headprune.report.marks import Family
from fairseq_headprune.report.tables import Marked, Table
from fairseq_headprune.studies.ablate import OneHeadStudy, entries, values_of
from fairseq_headprune.studies.study import UNPRUNED, Cell, Done


class KeepOne(OneHeadStudy):
    """Find for each layer the head that scores best as the layer's only head on one split, and test it on another.

    If both splits are the same, p is corrected over all heads tried, since the best were selected among them; otherwise
    over the layers.
    """

    name = "keep-one"

    @property
    def splits(self) -> list[str]:
        """The splits that the model is run on."""
        return list(dict.fromkeys([self.select, self.split]))

    @property
    def masks(self) -> dict[Part, Mask]:
        """The mask of each candidate head; raises ValueError if no layer has more than one."""
        layers = one_kept(self.start, self.components)
        return {head: mask for candidates in layers.values() for head, mask in candidates.items()}

    def check(self) -> None:
        """Check that the study can run to its end, and that the two splits do not hold the same examples."""
        if self.select != self.split and not self.reports:
            raise ValueError(
                f"{self.select} and {self.split} are the same examples: select on others (--select-subset train, or "
                "valid with --holdout N)"
            )
        super().check()

    def plan(self) -> list[Cell]:
        """The unpruned model and all candidate heads, on the split that heads are chosen on."""
        return self.cells_of(self.masks, self.select)

    def next(self, done: Mapping[str, Done]) -> list[Cell]:
        """The best head of each layer on the other split."""
        if self.select == self.split:
            return []
        masks = self.masks
        best = self._best(self.compared(done, list(masks), self.select)[1])
        cells = self.cells_of({head: masks[head] for head in best}, self.split)
        return [] if all(cell.id in done for cell in cells) else cells

    @property
    def tests(self) -> int:
        """The candidates; the reported heads are fewer."""
        return len(self.masks)

    def planned(self) -> int:
        """Heads, layers, and the unpruned model on each split."""
        return 1 + len(self.masks) + (0 if self.select == self.split else 1 + self._layers())

    def result(self, cells: Mapping[str, Done]) -> Document:
        """Report in which layers one head is enough."""
        heads, both = list(self.masks), self.select != self.split
        first, tried, missing = self.compared(cells, heads, self.select)
        baseline, chosen = (None, {}) if missing or both else (first, {h: tried[h] for h in self._best(tried)})
        if both and not missing:
            baseline, chosen, missing = self.compared(cells, self._best(tried), self.split)
        tests = self.family(self._layers() if both else len(heads))
        title = f"One head kept in a layer, on {self.split}" + (f" (chosen on {self.select})" if both else "")
        done = len(tried) + bool(first) + (len(chosen) + bool(baseline) if both else 0)
        document = self.document(title, baseline or first, missing, len(heads), done)
        document.state["comparisons_reported"] = tests.count
        head_map = self.head_map(
            tried,
            self.family(len(heads)),
            f"Difference in {self.measure} on {self.select} when a layer keeps one head only",
            masked="With this head only in its layer",
            split=self.select,
            against=f"{self.select}@{UNPRUNED}",
        )
        for head, entry in entries(head_map):
            if head in chosen:
                entry["reported"] = {"split": self.split, **values_of(chosen[head])}
        document.maps = [head_map]
        if baseline and chosen:
            document.tables = [self._table(list(chosen.values()), tests)]
            document.notes = self._notes(baseline, tests, len(heads))
        if baseline and not missing:
            reported = [{**cell, "select_delta": tried[head]["delta"]} for head, cell in chosen.items()]
            document.data = {
                "baseline": baseline,
                "cells": reported,
                "select_baseline": first,
                "candidates": list(tried.values()),
                "passed_over": passed_over(self.start, self.components),
                **document.data,
                "select_data": self.settings["select_data"],
            }
            document.findings = [_sentence(reported, self.measure, tests)]
        return document

    def _layers(self) -> int:
        return len(one_kept(self.start, self.components))

    @staticmethod
    def _best(tried: Mapping[Part, Done]) -> list[Part]:
        return best_of_layers({head: cell["score"] for head, cell in tried.items()})

    def _table(self, cells: list[Done], tests: Family) -> Table:
        skipped, first = passed_over(self.start, self.components), self.first
        caption = (
            f"Difference in {self.measure} on {self.split} when a layer keeps one head only (in brackets; the best on "
            f"{self.select}); layers and heads from {first}"
        )
        return layer_table(cells, skipped, tests, first, caption)

    def _notes(self, baseline: Done, tests: Family, tried: int) -> list[str]:
        notes = [
            f"{self.measure} of the unpruned model on {self.split}: {baseline['score']:.2f}",
            tests.legend(),
            *(self._passed(layer) for layer in passed_over(self.start, self.components)),
        ]
        if self.select == self.split:
            notes.append(
                "Heads are chosen on the split they are reported on, so the differences are optimistic; Holm's "
                f"correction is over all {tried} heads that were tried"
            )
        return [*notes, baseline["signature"]]

    def _passed(self, layer: dict[str, Any]) -> str:
        where = f"{PAPER_NAMES[layer['component']]} layer {layer['layer'] + self.first}"
        return f"{where} was passed over: it has {'one head' if layer['heads'] else 'no head'} anyway (difference 0)"


def best_of_layers(scores: Mapping[Part, float]) -> list[Part]:
    """Return the head with the highest score in each layer; the first one on ties."""
    return [max(heads, key=scores.__getitem__) for heads in by_layer(scores).values()]


def layer_table(cells: list[Done], skipped: list[dict], tests: Family, first: int = 1, caption: str = "") -> Table:
    """Tabulate differences as Michel et al. (2019), Tables 2 and 5: layers down, components across, heads in brackets.

    Layers and heads count from ``first``. A layer with only one head shows +0.00, one without heads ``-``.
    """
    shown: dict[tuple[str, int], Any] = {}
    for cell in cells:
        text = f"{cell['delta']:+.2f} ({cell['head'] + first})"
        shown[cell["component"], cell["layer"]] = Marked(text, tests.mark(cell))
    for layer in skipped:
        heads = layer["heads"]
        shown[layer["component"], layer["layer"]] = f"{0:+.2f} ({heads[0] + first})" if heads else None
    components = [c for c in COMPONENTS if any(component == c for component, _ in shown)]
    layers = range(1 + max(layer for _, layer in shown))
    rows = [[str(layer + first), *(shown.get((c, layer), "") for c in components)] for layer in layers]
    return Table(["Layer", *(PAPER_NAMES[c] for c in components)], rows, caption=caption)


def _sentence(cells: list[Done], measure: str, tests: Family) -> str:
    worse = [cell for cell in cells if cell["delta"] < 0]
    sure, raw = sum(map(tests.nominal, worse)), sum(map(tests.raw, worse))
    return (
        f"one head is enough in {len(cells) - sure} of {len(cells)} layers; {sure} lose {measure} significantly "
        f"(without Holm's correction: {raw}){tests.too_few if sure else ''}"
    )
