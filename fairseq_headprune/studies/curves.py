"""Reading finished pruning studies: cells as curves, and the curves of one epoch of a sweep."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_headprune.parts.scores import Scores
from fairseq_headprune.pruning import curves
from fairseq_headprune.studies.folder import StudyFolder
from fairseq_headprune.studies.rankings import evolution
from fairseq_headprune.studies.results import UNPRUNED, mean_curves, with_holm

#: Share of the unpruned BLEU that counts as kept in the summary (Michel et al. 2019, §6, speak of 85 to 90%).
KEPT = 0.9


def summary(cells: list[dict], plan: dict, alpha: float) -> dict[str, Any]:
    """Arrange cells, the unpruned one first, as curves and add Holm's correction over all pruned cells.

    Curves of several random orders have their ``means``, too.
    """
    unpruned, others = cells[0], cells[1:]
    curves: dict[str, list[dict]] = {label: [{**unpruned, "p_holm": 1.0}] for label in plan}
    for cell in with_holm(others):
        curves[cell["curve"]].append(cell)
    value = {"baseline": unpruned, "curves": curves, "alpha": alpha, "signature": unpruned["signature"]}
    means = mean_curves(curves)
    return value | ({"means": means} if means else {})


def epoch_row(folder: StudyFolder, epoch: dict, labels: list[str], alpha: float) -> dict[str, Any]:
    """Return the curves of one epoch with ``relative``, each score's share of the epoch's unpruned score.

    Args:
        folder: the pruning study of that epoch, finished.
        epoch: its cell in the sweep.
        labels: names of the curves.
    """
    cells = folder.cells()
    unpruned = cells.pop(UNPRUNED)
    # A killed run lists the cells it did in the order of its curves; the steps are in order within each.
    found = summary([unpruned, *sorted(cells.values(), key=lambda cell: cell["step"])], dict.fromkeys(labels), alpha)
    for points in found["curves"].values():
        for point in points:
            point["relative"] = point["score"] / unpruned["score"] if unpruned["score"] else None
    return {
        "epoch": epoch["epoch"],
        "checkpoint": epoch["checkpoint"],
        "study": str(folder.path),
        "baseline": found["baseline"],
        "curves": found["curves"],
    }


def kept_within(row: dict, label: str) -> float | None:
    """The largest share of heads, in percent, up to which every step of an epoch keeps 90% of its unpruned BLEU."""
    best = None
    for point in row["curves"][label]:
        if point["relative"] is None or point["relative"] < KEPT:
            break
        best = point["percent"]
    return best


def read_sweep(folder: StudyFolder, epochs: list[dict], keep: Sequence[int] = ()) -> dict[str, Any]:
    """Collect the finished epochs of a sweep.

    Args:
        epochs: their cells, in ascending order.
        keep: sizes of the sets of most important heads (default: a quarter, half and three quarters of the heads).

    Returns:
        ``epochs``: a row each, see :func:`epoch_row`; ``ranking``: curve -> its evolution, see
        :func:`~fairseq_headprune.studies.rankings.evolution`; ``kept_within``: curve -> epoch -> :func:`kept_within`.
    """
    studies = {epoch["epoch"]: StudyFolder(epoch_path(folder.path, epoch["epoch"])) for epoch in epochs}
    scores = {number: Scores.load(study.path / "scores.json") for number, study in studies.items()}
    parts = curves(folder.settings["components"], list(next(iter(scores.values())).shape))
    alpha = folder.settings["alpha"]
    rows = [epoch_row(studies[epoch["epoch"]], epoch, list(parts), alpha) for epoch in epochs]
    ranking = {}
    for label, components in parts.items():
        heads = len(next(iter(scores.values())).pruning_order(components))
        sizes = keep or sorted({max(1, round(heads * share)) for share in (0.25, 0.5, 0.75)})
        ranking[label] = evolution(scores, components, [size for size in sizes if size < heads])
    return {
        "epochs": rows,
        "ranking": ranking,
        "kept_within": {label: {str(row["epoch"]): kept_within(row, label) for row in rows} for label in parts},
    }


def epoch_path(sweep: Path, epoch: int) -> Path:
    """Return the folder of an epoch's pruning study in the folder of a sweep."""
    return sweep / "epochs" / f"{epoch:03d}"
