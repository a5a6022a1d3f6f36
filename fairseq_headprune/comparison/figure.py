"""Figures 3b and 3d of Li et al. 2021: BLEU against the number of heads kept, a line for each method."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from fairseq_headprune import files
from fairseq_headprune.comparison.methods import NAMES
from fairseq_headprune.report import drawing

#: method -> colour (Okabe and Ito), marker, dashes
_LOOKS = {
    "michel": ("#0072B2", "o", "-"),
    "michel-signed": ("#56B4E9", "v", (0, (6, 2))),
    "pipelined-dsp": ("#E69F00", "s", (0, (6, 2, 1.2, 2))),
    "l0": ("#009E73", "D", (0, (1.2, 1.4))),
    "ste": ("#CC79A7", "^", (0, (6, 2))),
    "joint-dsp": ("#D55E00", "P", "-"),
    "random-after": ("#999999", "x", (0, (1.2, 1.4))),
    "random-start": ("#000000", "*", (0, (3, 1.5))),
}


def comparison_figure(points: Sequence[Mapping[str, Any]], stem: files.PathLike, few: float = 1 / 3) -> list:
    """Draw all numbers of heads on the left, and the smallest (up to the share ``few``) on the right.

    Args:
        points: what :func:`~.results.summary` returns.

    Returns:
        the paths written, PNG and SVG.
    """
    with drawing.style():
        figure = Figure(figsize=(10.5, 4.2), layout="constrained")
        axes = figure.subplots(1, 2)
        most = max(point["heads"] or 0 for point in points)
        for place, limit in ((0, most), (1, most * few)):
            _draw(axes[place], points, limit)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right center")
        return drawing.save(figure, stem)


def _draw(axes: Any, points: Sequence[Mapping[str, Any]], limit: float) -> None:
    for method, (colour, marker, dashes) in _LOOKS.items():
        mine = sorted((p["heads"], p["bleu"], p["deviation"] or 0) for p in points if p["method"] == method)
        mine = [point for point in mine if point[0] <= limit]
        if mine:
            heads, bleu, deviation = zip(*mine, strict=True)
            axes.errorbar(
                heads, bleu, deviation, color=colour, marker=marker, ls=dashes, ms=4, capsize=2, label=NAMES[method]
            )
    unpruned = [point for point in points if point["method"] == "unpruned"]
    if unpruned:
        axes.axhline(unpruned[0]["bleu"], color="#444444", lw=1, ls=":", label="Unpruned")
    axes.set_xlabel("heads kept")
    axes.set_ylabel("BLEU")
    axes.grid(alpha=0.25)
