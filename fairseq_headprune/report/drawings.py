"""Drawing the figures of a document, and its pictures: attention maps, divided bars, tickets, learned gates, …."""

import base64
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fairseq_headprune.files import PathLike
from fairseq_headprune.report import gate_figures
from fairseq_headprune.report.document import Curves, Document, EpochCurves, HeadMap, Histogram, Scatter
from fairseq_headprune.report.drawing import encoded, in_column, legend, save, style
from fairseq_headprune.report.figures import ablation_scatter, epoch_figure, pruning_curve, score_histogram
from fairseq_headprune.report.head_maps import head_map
from fairseq_headprune.report.pictures import (
    AttentionMaps,
    Distribution,
    GateCurves,
    HeadsByLayer,
    HeadsByPenalty,
    Picture,
    Shares,
    TicketScores,
)

#: colours of the parts of a bar, distinct in grey print as well (Okabe and Ito)
_COLOURS = ("#0072B2", "#E69F00", "#56B4E9", "#F0E442", "#444444", "#CC79A7")

_MARKERS = "osD^"

#: inches of a head's map, and up to how many tokens are written beside it
_MAP, _TOKENS = 0.9, 30


def draw(document: Document, stem: Callable[[str], Path]) -> list[Path]:
    """Draw every figure of a document that has a name and data, and return the files.

    Args:
        stem: maps a figure's name to its path without extension.
    """
    charts = [chart for chart in document.charts if isinstance(chart, Curves) or chart.drawable]
    figures = [*document.histograms, *document.scatters, *document.panels, *charts, *document.maps]
    return [path for figure in figures if figure.name for path in draw_figure(figure, stem(figure.name))]


def draw_figure(figure: Any, path_stem: PathLike) -> list[Path]:
    """Draw one figure of a document to ``path_stem.png`` and ``.svg``, byte-identical for equal data.

    Raises:
        ValueError: it has nothing to draw.
        FileNotFoundError: the folder does not exist.
    """
    with style():
        return save(_FIGURES[type(figure)](figure), path_stem)


def svg_of(panel: Picture) -> str:
    """Return a panel as SVG in base64."""
    with style():
        return base64.b64encode(encoded(_FIGURES[type(panel)](panel), "svg")).decode("ascii")


def _attention(panel: AttentionMaps) -> Figure:
    """Lay out layers down and heads across; the tokens are written at the first column and below the last row."""
    heads = max(map(len, panel.layers))
    labels = 0.09 * max(map(len, [*panel.queries, *panel.keys])) if _written(panel) else 0.0
    margin, top = 0.5 + labels, 0.75
    width, height = margin + heads * _MAP + 0.1, top + len(panel.layers) * _MAP + 0.4 + labels
    figure = Figure(figsize=(max(width, 0.085 * len(panel.caption) + 0.3), height))
    across = figure.get_size_inches()[0]
    margin += (across - width) / 2
    for layer, row in enumerate(panel.layers):
        for head in range(heads):
            x, y = margin + head * _MAP, height - top - (layer + 1) * _MAP
            size = 0.92 * _MAP
            axes = figure.add_axes((x / across, y / height, size / across, size / height), gid=f"head-{layer}-{head}")
            _one_head(axes, row[head] if head < len(row) else None, panel, head == 0, layer == len(panel.layers) - 1)
            if layer == 0:
                axes.set_title(str(head), fontsize=8)
            if head == 0:
                x = -(labels + 0.2) / size
                axes.text(x, 0.5, str(layer), transform=axes.transAxes, ha="right", va="center", fontsize=8)
    figure.text(0.5, 1 - 0.12 / height, panel.caption, ha="center", va="top", fontsize=10.5)
    figure.text(0.5, 1 - 0.36 / height, "layers down, heads across, from 0", ha="center", va="top", fontsize=8)
    return figure


def _written(panel: AttentionMaps) -> bool:
    return max(len(panel.queries), len(panel.keys)) <= _TOKENS


def _one_head(axes: Axes, map_: list[list[float]] | None, panel: AttentionMaps, first: bool, last: bool) -> None:
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_color("#9a9a9a")
    if map_ is None:
        axes.set_facecolor("#e6e6e6")
        axes.text(0.5, 0.5, "pruned", transform=axes.transAxes, ha="center", va="center", fontsize=7, color="#444444")
        return
    axes.imshow(np.asarray(map_), cmap="Blues", vmin=0, aspect="auto", interpolation="nearest")
    small: dict[str, Any] = {"fontsize": max(3.5, min(7.0, 60 * _MAP / max(len(panel.queries), len(panel.keys))))}
    axes.tick_params(length=0, pad=1)
    if first and _written(panel):
        axes.set_yticks(range(len(panel.queries)), panel.queries, **small)
    if last and _written(panel):
        axes.set_xticks(range(len(panel.keys)), panel.keys, rotation=90, **small)


def _shares(panel: Shares) -> Figure:
    figure = Figure(figsize=(6.4, 1.1 + 0.34 * len(panel.bars)), layout="constrained")
    axes = figure.add_subplot()
    start = np.zeros(len(panel.bars))
    for number, kind in enumerate(panel.kinds):
        values = np.array([shares[number] for shares in panel.bars.values()])
        axes.barh(
            list(panel.bars), values, left=start, color=_COLOURS[number % len(_COLOURS)], edgecolor="white", label=kind,
            linewidth=0.6, height=0.75,
        )  # fmt: skip
        start += values
    axes.invert_yaxis()
    axes.set(xlim=(0, 1), title=panel.caption)
    axes.xaxis.set_major_formatter(lambda x, _: f"{100 * x:.0f}%")
    axes.spines[["top", "right"]].set_visible(False)
    legend(figure, ncols=5, handlelength=1.2, columnspacing=1.2)
    return figure


def _tickets(panel: TicketScores) -> Figure:
    """Draw one plot per task: tickets across, a marker with one standard deviation for each setting."""
    columns = 1 if in_column() else min(3, len(panel.tasks))
    rows = -(-len(panel.tasks) // columns)
    widest = max(len({point["ticket"] for point in task["points"]}) for task in panel.tasks)
    size = (columns * max(2.6, 0.55 * widest + 0.9) + 0.3, rows * 3.0 + 0.6)
    figure = Figure(figsize=(max(size[0], 5.0), size[1]), layout="constrained")
    shown: dict[str, Any] = {}
    for place, task in enumerate(panel.tasks):
        axes = figure.add_subplot(rows, columns, place + 1)
        shown |= _one_task(axes, task)
    figure.suptitle(panel.caption, fontsize=11)
    legend(figure, list(shown.values()), list(shown), ncols=3)
    return figure


def _one_task(axes: Axes, task: Mapping[str, Any]) -> dict[str, Any]:
    names = list(dict.fromkeys(point["ticket"] for point in task["points"]))
    hows = list(dict.fromkeys(point["how"] for point in task["points"]))
    shown: dict[str, Any] = {}
    for number, how in enumerate(hows):
        points = [point for point in task["points"] if point["how"] == how]
        x = [names.index(point["ticket"]) + 0.14 * (number - (len(hows) - 1) / 2) for point in points]
        mean, sd = ([point[key] for point in points] for key in ("mean", "sd"))
        colour, face = _COLOURS[number], "white" if number == 0 else _COLOURS[number]
        shown[how] = axes.errorbar(
            x, mean, yerr=sd, linestyle="none", marker=_MARKERS[number], color=colour, markerfacecolor=face, capsize=2,
            markersize=5,
        )  # fmt: skip
    line = axes.axhline(task["line"], color="#666666", linewidth=1, linestyle="--", zorder=1, gid="line")
    shown["Full model trained again, minus one sd"] = line
    if task["baseline"] is not None:
        shown["Most frequent label"] = axes.axhline(
            task["baseline"], color="#666666", linewidth=1, linestyle=":", zorder=1
        )
    axes.set(title=task["task"], ylabel=task["measure"], xlim=(-0.5, len(names) - 0.5))
    axes.set_xticks(range(len(names)), names, rotation=35, ha="right", rotation_mode="anchor")
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    return shown


def _distribution(panel: Distribution) -> Figure:
    """Draw one histogram per group: the groups may be on different scales."""
    rows, columns = (len(panel.values), 1) if in_column() else (1, len(panel.values))
    figure = Figure(figsize=(0.4 + 3.2 * columns, 3.2 * rows), layout="constrained")
    for place, (name, values) in enumerate(panel.values.items()):
        axes = figure.add_subplot(rows, columns, place + 1)
        axes.hist(values, bins=20, color=_COLOURS[place], edgecolor="white", linewidth=0.8)
        axes.set(title=f"{name} ({len(values)})", xlabel=panel.label, ylabel="Number" if place % columns == 0 else "")
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(panel.caption, fontsize=11)
    return figure


_FIGURES: dict[type, Callable[[Any], Figure]] = {
    Histogram: score_histogram,
    Scatter: ablation_scatter,
    Curves: pruning_curve,
    EpochCurves: epoch_figure,
    HeadMap: head_map,
    AttentionMaps: _attention,
    Shares: _shares,
    TicketScores: _tickets,
    Distribution: _distribution,
    GateCurves: gate_figures.by_update,
    HeadsByPenalty: gate_figures.by_penalty,
    HeadsByLayer: gate_figures.by_layer,
}
