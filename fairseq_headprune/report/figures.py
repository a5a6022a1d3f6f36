"""The papers' pruning curves, as byte-identical PNG and SVG."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from fairseq_headprune import files
from fairseq_headprune.parts import PAPER_NAMES
from fairseq_headprune.report.drawing import LOOKS, finish, legend, save, spare_looks, style

Curves = Mapping[str, Sequence[Mapping[str, Any]]]


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
    finish(axes)
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
    legend(figure, handles=handles, ncols=3, columnspacing=1.6)
