"""Reading finished studies of masks: differences, Holm's correction, and what an ablation says of every head."""

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from fairseq_headprune.evaluation.holm import holm
from fairseq_headprune.files import PathLike, sha256
from fairseq_headprune.parts import HEADS, KEYS, Mask, Part
from fairseq_headprune.parts.scores import Scores
from fairseq_headprune.studies.finished import finished_cells, way_out
from fairseq_headprune.studies.folder import StudyFolder
from fairseq_headprune.studies.study import UNPRUNED

#: Stands between the name of a curve and the seed of its random order.
SEED = "-seed"


def with_holm(cells: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return copies of cells with ``p_holm``: Holm's correction over just these cells."""
    corrected = holm([cell["p"] for cell in cells])
    return [{**cell, "p_holm": p} for cell, p in zip(cells, corrected, strict=True)]


def with_delta(cell: dict[str, Any], baseline: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a cell with ``delta``, its score minus the unpruned model's."""
    return {**cell, "delta": cell["score"] - baseline["score"]}


def mean_curves(curves: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """Average the curves of several random orders, step by step; empty where no curve has a seed.

    Returns:
        The name without seed -> points with ``percent``, ``pruned``, the mean ``score``, its standard deviation ``sd``
        (n - 1; 0 for one seed), ``ci`` (mean - sd, mean + sd) and the ``seeds``.
    """
    seeded: dict[str, dict[int, list[dict[str, Any]]]] = {}
    for label, points in curves.items():
        seed = curve_seed(label)
        if seed is not None:
            seeded.setdefault(label.removesuffix(f"{SEED}{seed}"), {})[seed] = points
    means = {}
    for label, of_seed in seeded.items():
        means[label] = []
        for points in zip(*of_seed.values(), strict=True):
            scores = [point["score"] for point in points]
            mean, sd = statistics.mean(scores), statistics.stdev(scores) if len(scores) > 1 else 0.0
            same = {name: points[0][name] for name in ("step", "percent", "pruned")}
            means[label].append({**same, "score": mean, "sd": sd, "ci": [mean - sd, mean + sd], "seeds": list(of_seed)})
    return means


def seeded_curves(found: dict[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """Repeat every curve for each seed, as ``LABEL-seedS``; without seeds they stay as they are."""
    if not seeds:
        return found
    return {f"{label}{SEED}{seed}": value for label, value in found.items() for seed in seeds}


def curve_seed(label: str) -> int | None:
    """Return the seed in the name of a curve of :func:`seeded_curves`, None for others."""
    _, found, seed = label.rpartition(SEED)
    return int(seed) if found else None


def cell_head(cell: dict[str, Any]) -> Part:
    """Return the head that a cell is about."""
    return Part(cell["component"], cell["layer"], cell["head"])


def best_of_layers(cells: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the cell of the highest score of each layer; of equal scores the first one."""
    best: dict[tuple[str, int], dict[str, Any]] = {}
    for cell in cells:
        layer = (cell["component"], cell["layer"])
        if layer not in best or cell["score"] > best[layer]["score"]:
            best[layer] = cell
    return list(best.values())


def found(cells: list[dict], alpha: float) -> dict[str, int]:
    """Count the heads, those that change BLEU significantly, and those of them that improve it without the head."""
    holm = [cell for cell in cells if cell["p_holm"] < alpha]
    raw = [cell for cell in cells if cell["p"] < alpha]
    return {
        "heads": len(cells),
        "significant": len(holm),
        "improve": sum(cell["delta"] > 0 for cell in holm),
        "significant_raw": len(raw),
        "improve_raw": sum(cell["delta"] > 0 for cell in raw),
    }


class Ablation:
    """A finished study of ``headprune ablate``.

    Attributes:
        path, settings: of the study folder.
        baseline: the unpruned cell.
        cells: head -> its cell with ``delta``, in the fixed order of heads.
    """

    def __init__(self, path: PathLike) -> None:
        """Read the folder.

        Raises:
            FileNotFoundError: it holds no study.
            ValueError: it is another kind of study, or not finished.
        """
        folder = StudyFolder(path)
        kind = folder.settings.get("study")
        if kind != "ablate":
            raise ValueError(f"{path} is a study of headprune {kind}; a study of headprune ablate is needed")
        self.path, self.settings = folder.path, folder.settings
        absent = [name for name in ("start", "components", "data", "checkpoint") if name not in folder.settings]
        if absent:
            raise ValueError(f"{path} is damaged: there is no {absent[0]!r} in its study.json; make the study again")
        self.start = Mask(folder.settings["start"])
        found = finished_cells(folder)
        heads = self.start.kept(folder.settings["components"])
        lost = [name for name, cell in found.items() if not all(part in cell for part in KEYS)]
        if lost:
            raise ValueError(f"a cell is damaged: {way_out(folder, lost[0])}")
        done = {cell_head(cell): cell for name, cell in found.items() if name != UNPRUNED}
        missing = [head for head in heads if head not in done]
        if missing or UNPRUNED not in found:
            done_heads = f"{len(heads) - len(missing)} of {len(heads)} heads are done"
            what = done_heads if missing else "the unpruned model is not done"
            raise ValueError(f"{path} is not finished ({what}); run headprune ablate again with its settings")
        self.baseline = found[UNPRUNED]
        self.cells = {head: with_delta(done[head], self.baseline) for head in heads}

    def oracle(self) -> Scores:
        """Return the order of Michel et al. (2019), §4.2: the head whose removal hurts least has the lowest score.

        A head's score is minus its difference in BLEU; heads the study did not remove have none.
        """
        shape = self.start.shape
        scores = {
            c: [[self._loss(Part(c, layer, head)) for head in range(n)] for layer, n in enumerate(shape[c])]
            for c in HEADS
            if c in shape
        }
        return Scores(
            scores,
            estimator="oracle",
            data=self.settings["data"],
            checkpoint={"sha256": self.settings["checkpoint"]},
            details={
                "study": str(self.path),
                "cells": sha256(self.path / "cells.jsonl"),
                "signature": self.baseline["signature"],
                **{name: self.settings[name] for name in ("generation", "metric") if name in self.settings},
            },
        )

    def _loss(self, head: Part) -> float | None:
        return -self.cells[head]["delta"] if head in self.cells else None
