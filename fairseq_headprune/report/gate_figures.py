"""Figures of trainings with learned gates (Li et al. 2021).

For one training: curves by update (Figures 7 and 8). For several: number of heads against lambda (Figure 2), and kept
heads by layer (Figure 6).
"""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fairseq_headprune.parts import PAPER_NAMES
from fairseq_headprune.report.drawing import finish, legend, paper_width
from fairseq_headprune.report.pictures import GateCurves, HeadsByLayer, HeadsByPenalty, Points

# The paper's orange and purple in colour-blind safe shades; markers and dashes for grey print.
_SCORE: dict[str, Any] = {"color": "#D55E00", "marker": "o", "markersize": 4, "linewidth": 1.6}
_OVERLAP: dict[str, Any] = {"color": "#7A4A9E", "linestyle": (0, (6, 2)), "linewidth": 1.6}
_SAMPLED: dict[str, Any] = {"color": "#0072B2", "linestyle": (0, (1.2, 1.4)), "linewidth": 1.6}
_KEPT: dict[str, Any] = {"color": "#444444", "linewidth": 1.2}

_WIDTH, _LABEL = 4.6, 0.42  # inches: width of the plot, height of a label above it
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def by_update(panel: GateCurves) -> Figure:
    """Draw by update the score with the current set of heads, and in percent what the set has become.

    Raises:
        ValueError: no points, or a number that is NaN or infinite.
    """
    if not panel.overlap:
        raise ValueError("no updates to draw")
    drawn = [*panel.overlap, *panel.score, *panel.temperature, *panel.kept, *panel.sampled]
    if not all(math.isfinite(value) for _, value in drawn):
        raise ValueError("a number is not finite; the training cannot be drawn")
    end = max(update for update, _ in [*panel.overlap, *panel.score])
    figure = Figure(figsize=(5.8, 4.2), layout="constrained")
    axes = figure.add_subplot()
    axes.set(xlim=(0, end), xlabel="Updates", title=panel.caption)
    percentages = axes if not panel.score else axes.twinx()
    side = " (right)" if panel.score else ""
    if panel.score:
        axes.plot(*zip(*panel.score, strict=True), label=f"{panel.measure} on valid (left)", gid="score", **_SCORE)
        axes.set_ylabel(panel.measure)
    changes = panel.kept if len({share for _, share in panel.kept}) > 1 else ()
    shares = {
        "overlap": (f"selected heads that are kept in the end{side}", panel.overlap, _OVERLAP),
        "sampled": (f"updates after cooling that sampled the learned set{side}", panel.sampled, _SAMPLED),
        "kept": (f"heads selected, of those with a gate{side}", changes, _KEPT),
    }
    for name, (label, points, look) in shares.items():
        if points:
            percentages.plot(*zip(*points, strict=True), label=label, gid=name, **look)
    ylabel = "Selected heads kept in the end (%)" if not (panel.sampled or changes) else "Percent"
    percentages.set(ylim=(-2, 104), ylabel=ylabel, yticks=range(0, 101, 20))
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    if panel.temperature:
        _temperature_axis(axes, panel.temperature, end)
    legend(figure, ncols=2)
    return figure


def _temperature_axis(axes: Axes, temperature: Points, end: int) -> None:
    first, last = temperature[0][0], next(u for u, tau in temperature if tau == temperature[-1][1])
    width = 0.6 * paper if (paper := paper_width()) else _WIDTH
    ticks = temperature_ticks(temperature, 1 + int((last - first) / end * width / _LABEL))
    above = axes.secondary_xaxis("top")
    above.set_xticks([update for update, _ in ticks], [label for _, label in ticks])
    above.set_xlabel("Temperature")


def temperature_ticks(temperature: Points, most: int) -> list[tuple[float, str]]:
    """Return (update, label) of the powers of ten that a falling temperature passes, at most ``most`` of them.

    Between two points the temperature falls log-linearly (eq. 24). The lowest power is always included. If no power of
    ten is passed, the last temperature is labelled at the update that first reaches it.
    """
    logs = [math.log10(tau) for _, tau in temperature]
    lowest, highest = math.ceil(round(logs[-1], 9)), math.floor(round(logs[0], 9))
    if lowest > highest:
        place = next(update for (update, _), log in zip(temperature, logs, strict=True) if log == logs[-1])
        return [(place, f"{temperature[-1][1]:.2g}")]
    step = math.ceil((highest - lowest + 1) / max(1, most))
    return [
        (_reached(temperature, logs, power), "10" + str(power).translate(_RAISED))
        for power in range(highest - (highest - lowest) % step, lowest - 1, -step)
    ]


def _reached(temperature: Points, logs: list[float], power: int) -> float:
    """Return the update at which the temperature falls to a power of ten."""
    after = bisect_left(logs, -power - 1e-9, key=lambda log: -log)
    if after == 0:
        return temperature[0][0]
    (left, _), (right, _) = temperature[after - 1 : after + 1]
    share = (logs[after - 1] - power) / (logs[after - 1] - logs[after])
    return left + min(share, 1.0) * (right - left)


_BLUE = "#0072B2"


def by_penalty(panel: HeadsByPenalty) -> Figure:
    """Draw the number of heads that L0 kept against lambda; a line joins the mean at each lambda.

    Raises:
        ValueError: no points.
    """
    if not panel.points:
        raise ValueError("no trainings with an L0 penalty to draw")
    groups: dict[float, list[float]] = {}
    for penalty, kept in sorted(panel.points):
        groups.setdefault(penalty, []).append(kept)
    positive = [penalty for penalty in groups if penalty > 0]
    figure = Figure(figsize=(5.6, 4.0), layout="constrained")
    axes = figure.add_subplot()
    means = [sum(kept) / len(kept) for kept in groups.values()]
    axes.plot(list(groups), means, color=_BLUE, linewidth=1.4, gid="means")
    look: dict[str, Any] = {
        "linestyle": "none",
        "marker": "o",
        "markersize": 6,
        "markeredgecolor": "white",
        "markeredgewidth": 0.5,
    }
    axes.plot(*zip(*panel.points, strict=True), color=_BLUE, gid="runs", **look)
    axes.axhline(
        panel.total, color="#666666", linewidth=1, linestyle=":", gid="total", label=f"All heads ({panel.total})"
    )
    if positive and len(positive) == len(groups):
        axes.set_xscale("log")
    elif positive:  # a logarithmic axis cannot show a lambda of 0
        axes.set_xscale("symlog", linthresh=min(positive))
    # matplotlib labels powers of ten with maths text, which our style does not render.
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set(xlabel="λ (nats a head)", ylabel="Heads kept", ylim=(0, 1.06 * panel.total))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    finish(axes)
    legend(figure)
    return figure


def by_layer(panel: HeadsByLayer) -> Figure:
    """Draw one heat map per component: layers down from 1, number of kept heads across.

    Raises:
        ValueError: no trainings.
    """
    if not panel.counts:
        raise ValueError("no trainings to draw")
    layers = {component: len(column) for component, column in next(iter(panel.counts.values())).items()}
    highest = max(value for kept in panel.counts.values() for column in kept.values() for value in column)
    size = (max(4.4, 1.6 + 0.36 * len(panel.counts)), 1.2 + sum(0.3 * n + 0.4 for n in layers.values()))
    figure = Figure(figsize=size, layout="constrained")
    stack = figure.subplots(len(layers), squeeze=False, sharex=True, height_ratios=list(layers.values()))[:, 0]
    norm = Normalize(0, highest or 1)
    for axes, component in zip(stack, layers, strict=True):
        image = _draw_component(axes, {kept: rows[component] for kept, rows in panel.counts.items()}, norm)
        image.set_gid(f"map-{component}")
        axes.set(title=PAPER_NAMES[component], ylabel="Layer")
    stack[-1].set_xlabel("Heads kept")
    figure.suptitle(panel.caption, fontsize=12)
    bar = figure.colorbar(image, ax=list(stack), label="Heads kept in the layer", aspect=40)
    bar.outline.set_visible(False)
    return figure


def _draw_component(axes: Axes, by_kept: Mapping[int, Sequence[float]], norm: Normalize) -> QuadMesh:
    """Draw one component's map, darker for more heads as in the paper, with the number in each cell."""
    values = list(zip(*by_kept.values(), strict=True))
    image = axes.pcolormesh(values, cmap=matplotlib.colormaps["Blues"], norm=norm, edgecolors="white", linewidth=1)
    for layer, row in enumerate(values):
        for column, value in enumerate(row):
            colour = "white" if norm(value) > 0.6 else "black"
            text = f"{value:.0f}" if value == int(value) else f"{value:.1f}"
            axes.text(column + 0.5, layer + 0.5, text, ha="center", va="center", fontsize=7.5, color=colour)
    axes.set_xticks([column + 0.5 for column in range(len(by_kept))], [str(kept) for kept in by_kept])
    axes.set_yticks([layer + 0.5 for layer in range(len(values))], [str(layer + 1) for layer in range(len(values))])
    axes.tick_params(length=0)
    axes.invert_yaxis()
    axes.spines[:].set_visible(False)
    return image
