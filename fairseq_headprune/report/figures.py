"""The papers' figures: heat maps of head scores and pruning curves, as byte-identical PNG and SVG."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib import cm, colors
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from fairseq_headprune import files
from fairseq_headprune.parts import PAPER_NAMES
from fairseq_headprune.report.drawing import LOOKS, save, spare_looks, style

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
Curves = Mapping[str, Sequence[Mapping[str, Any]]]


def head_map(
    scores: Scores,
    title: str,
    path_stem: files.PathLike,
    kind: str = "importance",
    label: str | None = None,
    marks: Mapping[str, Sequence[Sequence[str]]] | None = None,
    alpha: float = 0.01,
) -> list[Path]:
    """Draw one heat map per component side by side: layers down, heads across, both from 1 as in the papers.

    Args:
        scores: component -> one list per layer -> one number per head; ``None`` is a pruned head. Pruned heads, and
            positions that a layer with fewer heads lacks, are hatched grey. All components share one colour scale.
        title: text above the maps.
        path_stem: the figure is written to ``path_stem.png`` and ``path_stem.svg``.
        kind: ``importance`` (sequential colours, from the lowest value to the highest) or ``delta`` (diverging, 0 in
            the middle).
        label: label of the colour bar (default: the kind).
        marks: same shape as the scores; ``"holm"`` or ``"raw"`` frames a head as significant at alpha.

    Raises:
        ValueError: no heads, a number that is NaN or infinite, or an unknown kind.
        FileNotFoundError: the folder does not exist.
    """
    shown = {component: layers for component, layers in scores.items() if any(len(layer) for layer in layers)}
    if kind not in MAPS:
        raise ValueError(f"unknown kind {kind!r} of head map; kinds are {', '.join(MAPS)}")
    if not shown:
        raise ValueError("no heads to draw: every component is empty")
    norm = _norm(_finite(shown), kind)
    with style():
        label = label or kind
        if marks is not None:
            label += f"\nframed: p < {alpha:g} after Holm's correction; dashed: only before it"
        figure = _head_map(shown, title, cm.ScalarMappable(norm, matplotlib.colormaps[MAPS[kind]]), label)
        for axes in figure.axes if marks else []:
            _draw_frames(axes, (marks or {}).get((axes.get_gid() or "").removeprefix("map-"), []))
        return save(figure, path_stem)


def pruning_curve(
    curves: Curves,
    ylabel: str,
    baseline: float | None,
    path_stem: files.PathLike,
    alpha: float = 0.01,
    title: str | None = None,
) -> list[Path]:
    """Draw scores against the percentage of pruned heads, as in Michel et al. (2019), Figures 3 and 4.

    Filled markers do not differ significantly from the unpruned model (p >= alpha, before Holm's correction), hollow
    ones do, small ones were not tested (no ``p``, unless it is the unpruned model at 0%). If nothing was tested, all
    markers are filled. The band is the 95% interval (``ci``).

    Args:
        curves: label -> points ``{"percent": 0 to 100, "score": …, "p": float or None, "ci": [lo, hi] or None}``.
            Component names are shown as in the papers, ``all`` and ``joint`` as "All".
        ylabel: name of the score (BLEU).
        baseline: score of the unpruned model, drawn as a dotted line; ``None`` for no line.
        path_stem: the figure is written to ``path_stem.png`` and ``path_stem.svg``.
        alpha: level of significance.
        title: text above the plot.

    Raises:
        ValueError: no points, a number that is NaN or infinite, or a percentage outside 0 to 100.
        FileNotFoundError: the folder does not exist.
    """
    ordered = {_paper_name(label): _checked(label, points) for label, points in curves.items()}
    if len(ordered) < len(curves):
        raise ValueError(f"two curves have the same name in the legend: {', '.join(curves)}")
    if not ordered:
        raise ValueError("no curves to draw")
    with style():
        figure = _pruning_curve(ordered, ylabel, baseline, alpha, title)
        return save(figure, path_stem)


def _finite(scores: Scores) -> list[float]:
    values = []
    for component, layers in scores.items():
        for layer, heads in enumerate(layers):
            for head, value in enumerate(heads):
                if value is not None and not math.isfinite(value):
                    raise ValueError(f"{component} layer {layer} head {head}: the score is {value}, no finite number")
                values += [] if value is None else [float(value)]
    return values


def _norm(values: Sequence[float], kind: str) -> colors.Normalize:
    if kind == "delta":
        reach = max(map(abs, values), default=0.0) or 1.0
        return colors.Normalize(-reach, reach)
    # The scale starts at the lowest value, not at 0, so that similar scores can be told apart.
    low, high = min(values, default=0.0), max(values, default=1.0)
    return colors.Normalize(low, high if high > low else low + 1.0)


def _head_map(scores: Scores, title: str, mappable: cm.ScalarMappable, label: str) -> Figure:
    """Lay out the maps by hand, in inches, so that all heads have the same size and the maps align at the top."""
    heads = {component: max(len(layer) for layer in layers) for component, layers in scores.items()}
    large = max(heads.values()) <= 8
    cell = 0.46 if large else 0.23
    # Print numbers only if two decimals are informative and fit into a cell.
    low, high = mappable.get_clim()
    numbers = large and 0.1 <= max(abs(low or 0.0), abs(high or 0.0)) < 100
    gone = any(len(layer) < heads[c] or None in layer for c, layers in scores.items() for layer in layers)
    first, *more = label.split("\n")
    lines = [first + (" (hatched: pruned or absent)" if gone else ""), *more]
    left, gap, top, bottom, bar = 0.6, 0.45, 0.68, 1.25 + 0.2 * len(more), 0.13
    maps = {component: max(count * cell, 0.7) for component, count in heads.items()}
    body = left + sum(maps.values()) + gap * (len(maps) - 1) + 0.25
    width = max(3.0, body, 0.11 * len(title) + 0.3, 0.09 * max(map(len, lines)) + 0.3)
    height = top + max(map(len, scores.values())) * cell + bottom
    figure = Figure(figsize=(width, height))
    x = (width - body) / 2 + left
    for place, (component, layers) in enumerate(scores.items()):
        size = (maps[component], len(layers) * cell)
        axes = figure.add_axes(_inches(figure, x, height - top - size[1], *size), gid=f"map-{component}")
        _draw_component(axes, layers, heads[component], mappable, numbers)
        axes.tick_params(length=0, labelsize=9 if large else 7.5)
        axes.set(title=_paper_name(component), xlabel="Head", ylabel="" if place else "Layer")
        x += maps[component] + gap
    length = min(4.0, width - 0.6)
    axes = figure.add_axes(_inches(figure, (width - length) / 2, bottom - 0.75, length, bar))
    figure.colorbar(mappable, cax=axes, label="\n".join(lines), orientation="horizontal").outline.set_visible(False)
    figure.text(0.5, 1 - 0.12 / height, title, ha="center", va="top", fontsize=12)
    return figure


def _inches(figure: Figure, x: float, y: float, width: float, height: float) -> tuple[float, float, float, float]:
    across, down = figure.get_size_inches()
    return x / across, y / down, width / across, height / down


def _draw_component(
    axes: Axes, layers: Sequence[Sequence[float | None]], width: int, mappable: cm.ScalarMappable, numbers: bool
) -> None:
    """Draw one component, one rectangle per head (not an image: sharp in SVG, and layers may differ in length)."""
    for y, heads in enumerate(layers, 1):
        for x in range(1, width + 1):
            value = heads[x - 1] if x <= len(heads) else None
            fill = None if value is None else mappable.to_rgba(np.asarray(value))
            look = _GONE if fill is None else {"facecolor": fill, "linewidth": 0}
            axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, **look))
            if numbers and fill is not None:
                dark = sum(w * c for w, c in zip((0.30, 0.59, 0.11), fill[:3], strict=True)) < 0.45
                colour = "white" if dark else "black"
                axes.text(x, y, f"{value:.2f}", ha="center", va="center", fontsize=7.5, color=colour)
    axes.set(xlim=(0.5, width + 0.5), ylim=(len(layers) + 0.5, 0.5), aspect="equal", anchor="N")
    axes.set(xticks=_ticks(width), yticks=_ticks(len(layers)))
    # White lines separate the heads.
    axes.vlines([x + 0.5 for x in range(1, width)], 0.5, len(layers) + 0.5, colors="white", linewidth=1)
    axes.hlines([y + 0.5 for y in range(1, len(layers))], 0.5, width + 0.5, colors="white", linewidth=1)
    axes.spines[:].set_color("#9a9a9a")


def _draw_frames(axes: Axes, marks: Sequence[Sequence[str]]) -> None:
    for y, layer in enumerate(marks, 1):
        for x, mark in enumerate(layer, 1):
            if mark:
                frame = Rectangle((x - 0.42, y - 0.42), 0.84, 0.84, fill=False, edgecolor="black", **_FRAMES[mark])
                frame.set_gid(f"{mark}-{y}-{x}")
                axes.add_patch(frame)


def _ticks(count: int) -> range:
    return range(1, count + 1, 1 if count <= 24 else math.ceil(count / 12))


def _paper_name(label: str) -> str:
    return "All" if label.lower() in ("all", "joint") else PAPER_NAMES.get(label, label)


def _checked(label: str, points: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    if not points:
        raise ValueError(f"curve {label!r} has no points")
    for point in points:
        numbers = [point["percent"], point["score"], *(point.get("ci") or [])]
        if not all(math.isfinite(number) for number in numbers):
            raise ValueError(f"curve {label!r} has a point with a number that is not finite: {dict(point)}")
        if not 0 <= point["percent"] <= 100:
            raise ValueError(f"curve {label!r} has a point at {point['percent']}%; percentages go from 0 to 100")
    return sorted(points, key=lambda point: point["percent"])


def _pruning_curve(curves: Curves, ylabel: str, baseline: float | None, alpha: float, title: str | None) -> Figure:
    figure = Figure(figsize=(5.6, 4.3), layout="constrained")
    axes = figure.add_subplot()
    spare = spare_looks()
    tested = any(point.get("p") is not None for points in curves.values() for point in points)
    handles: list[Artist] = []
    states: set[str] = set()
    for label, points in curves.items():
        look = LOOKS.get(label) or next(spare)
        states |= _draw_curve(axes, label, points, look, alpha if tested else None)
        handles.append(Line2D([], [], color=look[0], marker=look[1], linestyle=look[2], label=label, linewidth=1.6))
    if baseline is not None:
        axes.axhline(baseline, color="#666666", linewidth=1, linestyle=":", zorder=1, gid="baseline")
        handles.append(Line2D([], [], color="#666666", linewidth=1, linestyle=":", label=f"Unpruned ({baseline:.2f})"))
    if any(point.get("ci") for points in curves.values() for point in points):
        handles.append(Patch(color="#444444", alpha=0.15, linewidth=0, label="95% interval"))
    every = [v for points in curves.values() for p in points for v in (p["score"], *(p.get("ci") or []))]
    every += [] if baseline is None else [baseline]
    axes.set(xlim=(-2, 102), ylim=(min(0.0, *every), 1.06 * max(*every, 0.0) or 1.0))
    axes.set(xlabel="Percentage pruned", ylabel=ylabel, xticks=range(0, 101, 20))
    axes.set_xticks(range(0, 101, 10), minor=True)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:.0f}%")
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if title:
        axes.set_title(title)
    _legend(figure, handles, states, alpha)
    return figure


def _state(point: Mapping[str, Any], alpha: float | None) -> str:
    p = point.get("p")
    if alpha is None:
        return "same"
    if p is None:
        return "same" if point["percent"] == 0 else "untested"
    return "differs" if p < alpha else "same"


def _draw_curve(
    axes: Axes, label: str, points: Sequence[Mapping[str, Any]], look: tuple, alpha: float | None
) -> set[str]:
    """Draw the line, band and markers of one curve and return the states of its points."""
    colour, marker, dashes = look
    x = [point["percent"] for point in points]
    low, high = zip(*(point.get("ci") or (math.nan, math.nan) for point in points), strict=True)
    axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0, zorder=2)
    axes.plot(x, [point["score"] for point in points], color=colour, linestyle=dashes, linewidth=1.6, zorder=3)
    states = [_state(point, alpha) for point in points]
    for state in dict.fromkeys(states):
        chosen = [point for point, its in zip(points, states, strict=True) if its == state]
        axes.plot(
            [point["percent"] for point in chosen], [point["score"] for point in chosen], linestyle="none",
            clip_on=False, zorder=4, gid=f"{label}:{state}", **_marker(state, marker, colour),
        )  # fmt: skip
    return set(states)


def _marker(state: str, marker: str, colour: str) -> dict[str, Any]:
    face = "white" if state == "differs" else colour
    size = 3.0 if state == "untested" else 6.5
    return {"marker": marker, "color": colour, "markerfacecolor": face, "markersize": size, "markeredgewidth": 1.4}


def _legend(figure: Figure, handles: list[Artist], states: set[str], alpha: float) -> None:
    """Put the legend under the plot, where it hides no curve; explain only the markers that occur."""
    texts = {"same": f"p ≥ {alpha:g}", "differs": f"p < {alpha:g} before Holm's correction", "untested": "not tested"}
    if states != {"same"}:
        for state in (state for state in texts if state in states):
            handles.append(Line2D([], [], linestyle="none", label=texts[state], **_marker(state, "o", "#444444")))
    figure.legend(
        handles=handles, loc="outside lower center", ncols=3, frameon=False, handlelength=3.2, columnspacing=1.6
    )
