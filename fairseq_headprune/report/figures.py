"""Figures of Michel et al. (2019): pruning curves (3, 4), by epoch (5), and scores of heads masked alone (1, 2)."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator, PercentFormatter

from fairseq_headprune.parts import PAPER_NAMES
from fairseq_headprune.report.document import Curves, EpochCurves, Histogram, Scatter
from fairseq_headprune.report.drawing import LOOKS, finish, legend, panels, paper_width, spare_looks

_MARKERS = ("o", "s", "^", "D", "v", "p", "<", "h", ">", "X", "*")

#: Minimum distance between two labels on the epoch axis, as a share of its length.
_APART = 0.1


def pruning_curve(chart: Curves) -> Figure:
    """Draw scores against the percentage of pruned heads, as in Michel et al. (2019), Figures 3 and 4.

    Filled markers do not differ significantly from the unpruned model (p >= alpha, before Holm's correction), hollow
    ones do, small ones were not tested (no ``p``, unless it is the unpruned model at 0%). If nothing was tested, all
    markers are filled.
    """
    figure = Figure(figsize=(5.6, 4.3), layout="constrained")
    axes = figure.add_subplot()
    spare, every = spare_looks(), [point for curve in chart.curves for point in curve["points"]]
    tested = any(point.get("p") is not None for point in every)
    handles: list[Artist] = []
    states: set[str] = set()
    for curve in chart.curves:
        label, points = curve["name"], sorted(curve["points"], key=lambda point: point["percent"])
        look = LOOKS.get(label) or next(spare)
        states |= _draw_curve(axes, label, points, look, chart.alpha if tested else None)
        handles.append(Line2D([], [], color=look[0], marker=look[1], linestyle=look[2], label=label, linewidth=1.6))
    axes.axhline(chart.baseline, color="#666666", linewidth=1, linestyle=":", zorder=1, gid="baseline")
    unpruned = f"Unpruned ({chart.baseline:.2f})"
    handles.append(Line2D([], [], color="#666666", linewidth=1, linestyle=":", label=unpruned))
    if any(point.get("ci") for point in every):
        handles.append(Patch(color="#444444", alpha=0.15, linewidth=0, label="95% interval"))
    shown = [chart.baseline, *(v for point in every for v in (point["score"], *(point.get("ci") or [])))]
    axes.set(xlim=(-2, 102), ylim=(min(0.0, *shown), 1.06 * max(*shown, 0.0) or 1.0))
    axes.set(xlabel="Percentage pruned", ylabel=chart.measure, xticks=range(0, 101, 20))
    axes.set_xticks(range(0, 101, 10), minor=True)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:.0f}%")
    finish(axes)
    _legend(figure, handles, states, chart.alpha)
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


def score_histogram(histogram: Histogram) -> Figure:
    """Draw a histogram of 20 bars, with the unpruned model's score as a line (Michel et al. 2019, Figure 1)."""
    figure = Figure(figsize=(5.6, 3.8), layout="constrained")
    axes = figure.add_subplot()
    # White edges separate the bars.
    axes.hist(histogram.scores, bins=20, color="#0072B2", edgecolor="white", linewidth=0.8, gid="heads")
    axes.axvline(
        histogram.baseline, color="#D55E00", linestyle=(0, (6, 2)), linewidth=1.8, gid="baseline",
        label=f"Baseline {histogram.measure} ({histogram.baseline:.2f})",
    )  # fmt: skip
    axes.set(xlabel=histogram.measure, ylabel="Number of heads")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    finish(axes, "y")
    legend(figure)
    return figure


def ablation_scatter(plot: Scatter) -> Figure:
    """Draw each head as a point, and the unpruned model's scores as two lines (Michel et al. 2019, Figure 2)."""
    figure = Figure(figsize=(5.2, 4.8), layout="constrained")
    axes = figure.add_subplot()
    line: dict[str, Any] = {"color": "#666666", "linewidth": 1, "linestyle": ":", "zorder": 1}
    axes.axvline(plot.baselines[0], gid="baseline-x", label="Original scores", **line)
    axes.axhline(plot.baselines[1], gid="baseline-y", **line)
    for component, pairs in plot.points.items():
        name = PAPER_NAMES[component]
        colour, marker, _ = LOOKS.get(name, LOOKS["All"])
        x, y = zip(*pairs, strict=True)
        axes.plot(
            x, y, linestyle="none", marker=marker, markersize=6, color=colour, markeredgecolor="white",
            markeredgewidth=0.5, label=name, gid=f"heads-{component}",
        )  # fmt: skip
    axes.set(xlabel=plot.labels[0], ylabel=plot.labels[1], title=plot.caption)
    finish(axes)
    legend(figure, ncols=4, columnspacing=1.4, handlelength=None)
    return figure


def epoch_figure(chart: EpochCurves) -> Figure:
    """Draw scores relative to the unpruned model's, by epoch (left) and by share of pruned heads (right).

    Epochs without a relative score are left out.

    Raises:
        ValueError: no epoch has a relative score.
    """
    if not chart.drawable:
        raise ValueError("nothing to draw: the unpruned score is 0 in every epoch")
    epochs = {row["epoch"]: row["points"] for row in chart.epochs}
    shown = {epoch: points for epoch, points in sorted(epochs.items()) if points[0]["relative"] is not None}
    figure, (left, right) = panels(9.6, 4.6, width_ratios=(3, 2), sharey=True)
    _by_epoch(left, shown, chart.measure)
    _by_share(right, {epoch: shown[epoch] for epoch in chart.panel if epoch in shown})
    figure.suptitle(chart.title, fontsize=12)
    return figure


def _by_epoch(axes: Axes, epochs: Mapping[int, list], measure: str) -> None:
    percents = [point["percent"] for point in next(iter(epochs.values()))]
    # Without heads no epoch has a score; the paper's figure ends at 90% as well.
    drawn = [place for place, percent in enumerate(percents) if percent < 100]
    colours = matplotlib.colormaps["viridis"]
    for number, place in enumerate(drawn):
        axes.plot(
            list(epochs), [points[place]["relative"] for points in epochs.values()], linewidth=1.4, clip_on=False,
            color=colours(0.92 * number / max(1, len(drawn) - 1)), marker=_MARKERS[number % len(_MARKERS)],
            markersize=5, label=f"{percents[place]:.0f}%", gid=f"pruned-{percents[place]:g}",
        )  # fmt: skip
    axes.set_xscale("log")
    ticks = _spread(list(epochs))
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([f"{epoch}\n[{epochs[epoch][0]['score']:.1f}]" for epoch in ticks])
    axes.set(
        xlabel=f"Epoch, on a logarithmic axis\n[unpruned {measure}]",
        ylabel=f"Percentage of unpruned {measure}",
        ylim=(0, None),
    )
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(title="Pruned", loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)


def _by_share(axes: Axes, epochs: Mapping[int, list]) -> None:
    for number, (epoch, points) in enumerate(epochs.items()):
        colour, marker, dashes = list(LOOKS.values())[number % len(LOOKS)]
        axes.plot(
            [point["percent"] / 100 for point in points], [point["relative"] for point in points], color=colour,
            marker=marker, linestyle=dashes, linewidth=1.6, markersize=5, clip_on=False, label=f"Epoch {epoch}",
            gid=f"epoch-{epoch}",
        )  # fmt: skip
    axes.set(xlabel="Percentage pruned", xlim=(0, 1))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    # Sharing the axes hides the tick labels of the second panel.
    axes.tick_params(labelleft=True)
    axes.spines[["top", "right"]].set_visible(False)
    if epochs:
        axes.legend(frameon=False)


def _spread(epochs: list[int]) -> list[int]:
    """Choose epochs whose labels do not overlap on a logarithmic axis, always including the last one."""
    ticks = [epochs[-1]]
    # In a paper a label takes about half an inch of an axis of 0.6 of the width.
    apart = 0.8 / width if (width := paper_width()) else _APART
    length = math.log(epochs[-1] / epochs[0])
    for epoch in reversed(epochs[:-1]):
        if math.log(ticks[0] / epoch) >= apart * length:
            ticks.insert(0, epoch)
    return ticks
