"""Draw the scores of single masks, side by side where they keep as many heads in every component."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

from matplotlib.axes import Axes
from shown_trainings import heads_by_component, unnumbered

from fairseq_headprune.jobs.methods import in_order, title
from fairseq_headprune.parts import PAPER_NAMES
from fairseq_headprune.report import drawing

#: Distance between the points of two methods, where that of two columns is 1.
_APART = 0.16


def mask_figure(rows: Sequence[Mapping[str, Any]], stem: str, measure: str) -> None:
    """Draw the scores of masks (option mask=N) at two numbers of heads, a point for each training; of others nothing.

    Args:
        rows: those of ``compare-pruners``.
        stem: the figure is written to ``stem.png`` and ``stem.svg``.
        measure: name of the score.
    """
    mine = [row for row in rows if unnumbered(row["method"]) != row["method"]]
    counts = sorted({row["count"] for row in mine})
    if len(counts) != 2:
        return
    with drawing.style():
        figure, axes = drawing.panels(10.5, 4.2, sharey=True)
        for panel, count in zip(axes, counts, strict=True):
            _draw(panel, [row for row in mine if row["count"] == count])
            panel.set(title=f"{count} heads")
        axes[0].set_ylabel(measure)
        drawing.legend(figure, *axes[0].get_legend_handles_labels(), ncols=2)
        drawing.save(figure, stem)


def _draw(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    columns = sorted({heads_by_component(row["kept"]) for row in rows})
    methods = in_order(unnumbered(row["method"]) for row in rows)
    for place, (method, (colour, marker, _)) in enumerate(zip(methods, cycle(drawing.LOOKS.values()), strict=False)):
        mine = [row for row in rows if unnumbered(row["method"]) == method]
        aside = _APART * (place - (len(methods) - 1) / 2)
        axes.plot(
            [columns.index(heads_by_component(row["kept"])) + aside for row in mine], [row["score"] for row in mine],
            linestyle="none", color=colour, marker=marker, markersize=5, alpha=0.8, markeredgecolor="white",
            markeredgewidth=0.5, label=title(method), gid=method,
        )  # fmt: skip
    axes.set_xticks(range(len(columns)), [", ".join(map(str, column)) for column in columns])
    axes.set_xlabel("Heads in " + ", ".join(PAPER_NAMES[name] for name in rows[0]["kept"]))
    drawing.finish(axes, "y")
