"""Figures of a comparison (Li et al. 2021): score by heads kept (3b, 3d), heads by layer (6), heads by lambda (2)."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fairseq_headprune import files
from fairseq_headprune.gates.log import mean_counts
from fairseq_headprune.jobs.methods import base, in_order, learns, title
from fairseq_headprune.report import drawing
from fairseq_headprune.report.drawings import draw_figure
from fairseq_headprune.report.pictures import HeadsByLayer, HeadsByPenalty

#: method -> colour (Okabe and Ito), marker, dashes
_LOOKS = {
    "michel": ("#0072B2", "o", "-"),
    "michel-signed": ("#56B4E9", "v", (0, (6, 2))),
    "pipelined-dsp": ("#E69F00", "s", (0, (6, 2, 1.2, 2))),
    "l0": ("#009E73", "D", (0, (1.2, 1.4))),
    "ste": ("#CC79A7", "^", (0, (6, 2))),
    "joint-dsp": ("#D55E00", "P", "-"),
    "joint-dsp-constant": ("#D55E00", "X", (0, (1.2, 1.4))),
    "random-after": ("#7F7F7F", "<", (0, (1.2, 1.4))),
    "random-start": ("#000000", "*", (0, (3, 1.5))),
}


def comparison_figure(
    points: Sequence[Mapping[str, Any]], stem: files.PathLike, total: int, measure: str
) -> list[Path]:
    """Draw scores for all head counts on the left (Fig. 3b), and for up to a third of the heads on the right (Fig. 3d).

    Error bars are the standard deviation over seeds; a point of one training has none. Where points have different
    numbers of trainings, the legend has the fewest and the most of each method.

    Args:
        points: see :func:`~fairseq_headprune.studies.pruners.points.summarise`.
        stem: the figure is written to ``stem.png`` and ``stem.svg``.
        total: heads of the unpruned model.
        measure: name of the score.
    """
    with drawing.style():
        figure, axes = drawing.panels(10.5, 4.2)
        for panel, limit in zip(axes, (total, total / 3), strict=True):
            _draw(panel, points, limit, measure)
        handles, labels = axes[0].get_legend_handles_labels()
        drawing.legend(figure, handles, labels, loc="outside right center")
        return drawing.save(figure, stem)


def set_figures(rows: Sequence[Mapping[str, Any]], stem: files.PathLike, total: int) -> list[Path]:
    """Draw for each learning method the kept heads by layer (Fig. 6), and the number of heads against lambda (Fig. 2).

    Args:
        rows: dicts with ``method``, ``count``, ``kept``; for ``l0-lambda`` also ``penalty`` and ``learned``.
        stem: figures are ``stem-layers-METHOD`` and ``stem-lambda``, ``.png`` and ``.svg``.
        total: heads of the unpruned model.
    """
    written = []
    for method in filter(learns, in_order(row["method"] for row in rows)):
        mine = [row for row in rows if row["method"] == method]
        if not mine:
            continue
        if method == "l0-lambda":
            points = [(row["penalty"], row["learned"]) for row in mine]
            written += draw_figure(HeadsByPenalty("lambda", title(method), points, total), f"{stem}-lambda")
        else:
            by_layer = HeadsByLayer(f"layers-{method}", title(method), layer_counts(mine))
            written += draw_figure(by_layer, f"{stem}-{by_layer.name}")
    return written


def layer_counts(rows: Sequence[Mapping[str, Any]]) -> dict[int, dict[str, list[float]]]:
    """Return number of heads kept -> component -> mean number of heads in each layer, over seeds."""
    return mean_counts(
        (row["count"], {component: [layer.count("1") for layer in layers] for component, layers in row["kept"].items()})
        for row in rows
    )


def _draw(axes: Any, points: Sequence[Mapping[str, Any]], limit: float, measure: str) -> None:
    others = (method for method in in_order(point["method"] for point in points) if method not in _LOOKS)
    # Variants of a method share its marker; colours and, in grey, dashes tell them apart.
    spare = {m: (f"C{n % 10}", _LOOKS.get(base(m), ("", "."))[1], drawing.DASHES[n % 3]) for n, m in enumerate(others)}
    looks = _LOOKS | spare
    for method, (colour, marker, dashes) in looks.items():
        found = [point for point in points if point["method"] == method and point["heads"] is not None]
        mine = sorted((p["heads"], p["score"], p["sd"] or math.nan) for p in found if p["heads"] <= limit)
        if mine:
            heads, scores, deviation = zip(*mine, strict=True)
            axes.errorbar(
                heads, scores, deviation, color=colour, marker=marker, linestyle=dashes, linewidth=1.4, markersize=4.5,
                capsize=2, label=title(method) + _trainings(found, points),
            )  # fmt: skip
    # Methods that prune nothing: the unpruned model, also tuned or trained for longer.
    whole = {p["method"]: p for p in points if p["heads"] is None and base(p["method"]) == "unpruned"}
    for method in in_order(whole):
        score, number = whole[method]["score"], _trainings([whole[method]], points)
        label, dots = f"{title(method)} ({score:.2f}){number}", ":" if method == "unpruned" else "-."
        axes.axhline(score, color="#666666", linewidth=1, linestyle=dots, zorder=1, label=label)
    axes.set(xlabel="Unpruned heads", ylabel=measure, xlim=(-0.02 * limit, 1.03 * limit))
    axes.set_ylim(bottom=0)
    drawing.finish(axes)


def _trainings(mine: Sequence[Mapping[str, Any]], points: Sequence[Mapping[str, Any]]) -> str:
    """Return the numbers of trainings of a method's points, for the legend; empty if all points have the same."""
    if len({len(point["seeds"]) for point in points}) == 1:
        return ""
    numbers = [len(point["seeds"]) for point in mine]
    return f", n = {min(numbers)}" + ("" if min(numbers) == max(numbers) else f" to {max(numbers)}")
