"""Figures of Michel et al. (2019): pruning curves, and scores when single heads are masked, as PNG and SVG."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

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
        figure = _pruning_curve(ordered, ylabel, baseline, alpha)
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


def _pruning_curve(curves: Curves, ylabel: str, baseline: float | None, alpha: float) -> Figure:
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


def score_histogram(scores: Sequence[float], baseline: float, name: str, path_stem: files.PathLike) -> list[Path]:
    """Draw a histogram (20 bars) of the scores with one head masked, with the unpruned model's score as a line.

    Args:
        scores: one per head.
        name: name of the score (BLEU).
        path_stem: the figure is written to ``path_stem.png`` and ``path_stem.svg``.

    Raises:
        ValueError: no scores, or one that is NaN or infinite.
        FileNotFoundError: the folder does not exist.
    """
    if not len(scores):
        raise ValueError("no scores to draw")
    if not all(map(math.isfinite, [*scores, baseline])):
        raise ValueError("a score is no finite number; the histogram cannot be drawn")
    with style():
        figure = Figure(figsize=(5.6, 3.8), layout="constrained")
        axes = figure.add_subplot()
        # White edges separate the bars.
        axes.hist(scores, bins=20, color="#0072B2", edgecolor="white", linewidth=0.8, gid="heads")
        axes.axvline(
            baseline, color="#D55E00", linestyle=(0, (6, 2)), linewidth=1.8, gid="baseline",
            label=f"Baseline {name} ({baseline:.2f})",
        )  # fmt: skip
        axes.set(xlabel=name, ylabel="Number of heads")
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        finish(axes, "y")
        legend(figure)
        return save(figure, path_stem)


def ablation_scatter(
    points: Mapping[str, Sequence[tuple[float, float]]],
    baseline: tuple[float, float],
    names: tuple[str, str],
    caption: str,
    path_stem: files.PathLike,
) -> list[Path]:
    """Draw each head's scores on two test sets as a point, with the unpruned model's scores as two lines.

    Args:
        points: component -> (score on the first set, score on the second) of each of its heads.
        baseline: the unpruned model's two scores.
        names: labels of the axes.
        caption: text above the plot (Pearson r = …).
        path_stem: the figure is written to ``path_stem.png`` and ``path_stem.svg``.

    Raises:
        ValueError: no points, or a number that is NaN or infinite.
        FileNotFoundError: the folder does not exist.
    """
    numbers = [number for pairs in points.values() for pair in pairs for number in pair]
    if not numbers:
        raise ValueError("no heads to draw")
    if not all(map(math.isfinite, [*numbers, *baseline])):
        raise ValueError("a score is no finite number; the scatter plot cannot be drawn")
    with style():
        figure = Figure(figsize=(5.2, 4.8), layout="constrained")
        axes = figure.add_subplot()
        line: dict[str, Any] = {"color": "#666666", "linewidth": 1, "linestyle": ":", "zorder": 1}
        axes.axvline(baseline[0], gid="baseline-x", label="Original scores", **line)
        axes.axhline(baseline[1], gid="baseline-y", **line)
        _draw_heads(axes, points)
        axes.set(xlabel=names[0], ylabel=names[1], title=caption)
        finish(axes)
        legend(figure, ncols=4, columnspacing=1.4, handlelength=None)
        return save(figure, path_stem)


def _draw_heads(axes: Axes, points: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    for component, pairs in points.items():
        name = PAPER_NAMES.get(component, component)
        colour, marker, _ = LOOKS.get(name, LOOKS["All"])
        x, y = zip(*pairs, strict=True)
        axes.plot(
            x, y, linestyle="none", marker=marker, markersize=6, color=colour, markeredgecolor="white",
            markeredgewidth=0.5, label=name, gid=f"heads-{component}",
        )  # fmt: skip
