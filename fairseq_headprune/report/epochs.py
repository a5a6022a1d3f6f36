"""The figure of a sweep over epochs: Michel et al. (2019), Figure 5."""

import math
from collections.abc import Mapping

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, PercentFormatter

from fairseq_headprune.report.document import EpochCurves
from fairseq_headprune.report.drawing import LOOKS, panels, paper_width

_MARKERS = ("o", "s", "^", "D", "v", "p", "<", "h", ">", "X", "*")

#: Minimum distance between two labels on the epoch axis, as a share of its length.
_APART = 0.1


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
