"""The papers' head maps: one number per head as a heat map per component."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib import cm, colors
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from fairseq_headprune.parts import PAPER_NAMES
from fairseq_headprune.report.document import HeadMap
from fairseq_headprune.report.drawing import folded, paper_width

#: Colour-blind safe colour maps: perceptually uniform for importance, diverging for differences.
MAPS = {"importance": "viridis", "delta": "PuOr"}

# A head that is pruned or does not exist.
_GONE: dict[str, Any] = {"facecolor": "#e6e6e6", "edgecolor": "#9a9a9a", "hatch": "////", "linewidth": 0}

# Frames of significant heads: after Holm's correction, and only before it.
_FRAMES: dict[str, dict[str, Any]] = {
    "holm": {"linewidth": 2.0, "linestyle": "-"},
    "raw": {"linewidth": 1.4, "linestyle": (0, (2, 1.2))},
}

Scores = Mapping[str, Sequence[Sequence[float | None]]]
Box = tuple[float, float, float, float]

#: Smallest side of a head, in inches, at which a paper's maps stand beside each other.
_SMALLEST = 0.07


def head_map(entry: HeadMap) -> Figure:
    """Draw one heat map per component side by side: layers down, heads across, both from 1 as in the papers.

    Pruned heads, and positions that a layer with fewer heads lacks, are hatched grey. All components share one colour
    scale: for ``importance`` from the lowest value to the highest, for ``delta`` with 0 in the middle. Significant
    heads are framed.

    Raises:
        ValueError: no heads.
    """
    layers = {part["component"]: part["layers"] for part in entry.components if any(map(len, part["layers"]))}
    if not layers:
        raise ValueError("no heads to draw: every component is empty")
    scores = {c: [[cell.get(entry.scale) for cell in row] for row in rows] for c, rows in layers.items()}
    norm = _norm([value for rows in scores.values() for row in rows for value in row if value is not None], entry.scale)
    label = entry.label or entry.scale
    if entry.alpha is not None:
        label += f"\nframed: p < {entry.alpha:g} after Holm's correction; dashed: only before it"
    mappable = cm.ScalarMappable(norm, matplotlib.colormaps[MAPS[entry.scale]])
    figure = _head_map(scores, entry.caption, mappable, label, entry.scale == "delta")
    for axes in figure.axes if entry.alpha is not None else []:
        _draw_frames(axes, layers.get((axes.get_gid() or "").removeprefix("map-"), []))
    return figure


def _norm(values: Sequence[float], kind: str) -> colors.Normalize:
    if kind == "delta":
        reach = max(map(abs, values), default=0.0) or 1.0
        return colors.Normalize(-reach, reach)
    # The scale starts at the lowest value, not at 0, so that similar scores can be told apart.
    low, high = min(values, default=0.0), max(values, default=1.0)
    return colors.Normalize(low, high if high > low else low + 1.0)


@dataclass(frozen=True)
class _Layout:
    """Places in inches; heads have one size in all maps.

    Attributes:
        size: width and height of the figure.
        cell: side of a head.
        maps: component -> left, top, width and height of its map; the top is measured from above.
        bar: the same of the colour bar.
        title, label: texts, in lines that fit.
        points: size of the title's type, and of the tick labels'.
    """

    size: tuple[float, float]
    cell: float
    maps: dict[str, Box]
    bar: Box
    title: str
    label: str
    points: tuple[float, float]


def _screen_layout(scores: Scores, heads: Mapping[str, int], title: str, label: str) -> _Layout:
    """Maps beside each other, aligned at the top; the figure is as wide as they need."""
    large = max(heads.values()) <= 8
    cell, lines = 0.46 if large else 0.23, label.split("\n")
    left, gap, top, bottom = 0.6, 0.45, 0.68, 1.05 + 0.2 * len(lines)
    widths = {component: max(count * cell, 0.7) for component, count in heads.items()}
    body = left + sum(widths.values()) + gap * (len(widths) - 1) + 0.25
    width = max(3.0, body, 0.11 * len(title) + 0.3, 0.09 * max(map(len, lines)) + 0.3)
    height = top + max(map(len, scores.values())) * cell + bottom
    x, maps = (width - body) / 2 + left, {}
    for component, layers in scores.items():
        maps[component] = x, top, widths[component], len(layers) * cell
        x += widths[component] + gap
    length = min(4.0, width - 0.6)
    bar = (width - length) / 2, height - bottom + 0.62, length, 0.13
    return _Layout((width, height), cell, maps, bar, title, label, (12, 9 if large else 7.5))


def _paper_layout(scores: Scores, heads: Mapping[str, int], title: str, label: str, width: float) -> _Layout:
    """Maps beside each other if heads are large enough then, or else below each other, in a given width."""
    title, label = folded(title, width, 9), folded(label, width, 8)
    left, right, gap, below = 0.42, 0.1, 0.3, 0.55
    cell = (width - left - right - gap * (len(heads) - 1)) / sum(heads.values())
    beside = cell >= _SMALLEST
    cell = min(cell, 0.36) if beside else min((width - left - right) / max(heads.values()), 0.2)
    body = cell * sum(heads.values()) + gap * (len(heads) - 1) if beside else cell * max(heads.values())
    x, y, maps = left + (width - left - right - body) / 2, 0.5 + 0.14 * title.count("\n"), {}
    for component, layers in scores.items():
        maps[component] = x, y, heads[component] * cell, len(layers) * cell
        x, y = (x + heads[component] * cell + gap, y) if beside else (x, y + len(layers) * cell + below)
    end = max(top + down for _, top, _, down in maps.values())
    bar = 0.3, end + 0.42, width - 0.6, 0.09
    return _Layout((width, end + 0.9 + 0.14 * label.count("\n")), cell, maps, bar, title, label, (9, 6))


def _head_map(scores: Scores, title: str, mappable: cm.ScalarMappable, label: str, signed: bool) -> Figure:
    """Draw the maps, the colour bar below them, and the title."""
    heads = {component: max(len(layer) for layer in layers) for component, layers in scores.items()}
    gone = any(len(layer) < heads[c] or None in layer for c, layers in scores.items() for layer in layers)
    first, *more = label.split("\n")
    width = paper_width()
    notes = ["hatched: pruned or absent"] if gone else []
    notes += ["−: below 0"] if signed and (width or max(heads.values()) > 8) else []
    label = "\n".join([first + (f" ({'; '.join(notes)})" if notes else ""), *more])
    layout = _paper_layout(scores, heads, title, label, width) if width else _screen_layout(scores, heads, title, label)
    figure = Figure(figsize=layout.size)
    shown = _shown(mappable, layout.cell, signed)
    for component, box in layout.maps.items():
        axes = figure.add_axes(_shares(box, layout.size), gid=f"map-{component}")
        _draw_component(axes, scores[component], heads[component], mappable, shown)
        axes.set(xticks=_ticks(heads[component], layout.cell), yticks=_ticks(len(scores[component]), layout.cell))
        axes.tick_params(length=0, labelsize=layout.points[1])
        leftmost = box[0] == min(left for left, *_ in layout.maps.values())
        axes.set(title=PAPER_NAMES.get(component, component), xlabel="Head", ylabel="Layer" if leftmost else "")
    bar = figure.add_axes(_shares(layout.bar, layout.size))
    figure.colorbar(mappable, cax=bar, label=layout.label, orientation="horizontal").outline.set_visible(False)
    top = 1 - 0.12 / layout.size[1]
    figure.text(0.5, top, layout.title, ha="center", va="top", fontsize=layout.points[0])
    return figure


def _shares(box: Box, size: tuple[float, float]) -> Box:
    """Return a place as shares of the figure, from the bottom as matplotlib counts."""
    left, top, across, down = box
    return left / size[0], (size[1] - top - down) / size[1], across / size[0], down / size[1]


def _shown(mappable: cm.ScalarMappable, cell: float, signed: bool) -> Callable[[float], str]:
    """Return what is written into a head: its number if two decimals tell something and fit, or only its sign.

    A diverging colour map is as dark for losses as for gains when it is printed in grey.
    """
    low, high = mappable.get_clim()
    if cell >= 0.3 and 0.1 <= max(abs(low or 0.0), abs(high or 0.0)) < 100:
        return lambda value: f"{value:.2f}"
    return lambda value: "−" if signed and value < 0 and cell >= 0.1 else ""


def _ticks(count: int, cell: float) -> range:
    """Return the layers or heads with a label: as many as fit, at most 24."""
    apart = math.ceil((0.05 * len(str(count)) + 0.02) / cell)
    return range(1, count + 1, max(apart, 1 if count <= 24 else math.ceil(count / 12)))


def _draw_component(
    axes: Axes,
    layers: Sequence[Sequence[float | None]],
    width: int,
    mappable: cm.ScalarMappable,
    shown: Callable[[float], str],
) -> None:
    """Draw one component, one rectangle per head (not an image: sharp in SVG, and layers may differ in length)."""
    for y, heads in enumerate(layers, 1):
        for x in range(1, width + 1):
            value = heads[x - 1] if x <= len(heads) else None
            fill = None if value is None else mappable.to_rgba(np.asarray(value))
            look = _GONE if fill is None else {"facecolor": fill, "linewidth": 0}
            axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, **look))
            if value is not None and fill is not None and (text := shown(value)):
                dark = sum(w * c for w, c in zip((0.30, 0.59, 0.11), fill[:3], strict=True)) < 0.45
                colour, size = "white" if dark else "black", 6 if paper_width() else 7.5
                axes.text(x, y, text, ha="center", va="center", fontsize=size, color=colour)
    axes.set(xlim=(0.5, width + 0.5), ylim=(len(layers) + 0.5, 0.5), aspect="equal", anchor="N")
    # White lines separate the heads.
    line: dict[str, Any] = {"colors": "white", "linewidth": 0.5 if paper_width() else 1}
    axes.vlines([x + 0.5 for x in range(1, width)], 0.5, len(layers) + 0.5, **line)
    axes.hlines([y + 0.5 for y in range(1, len(layers))], 0.5, width + 0.5, **line)
    axes.spines[:].set_color("#9a9a9a")


def _draw_frames(axes: Axes, layers: Sequence[Sequence[Mapping[str, Any]]]) -> None:
    for y, layer in enumerate(layers, 1):
        for x, cell in enumerate(layer, 1):
            if mark := cell.get("mark"):
                frame = Rectangle((x - 0.42, y - 0.42), 0.84, 0.84, fill=False, edgecolor="black", **_FRAMES[mark])
                frame.set_gid(f"{mark}-{y}-{x}")
                axes.add_patch(frame)
