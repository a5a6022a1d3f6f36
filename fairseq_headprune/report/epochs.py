"""The figure of a sweep over epochs: Michel et al. (2019), Figure 5."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator, PercentFormatter

from fairseq_headprune import files
from fairseq_headprune.report.drawing import LOOKS, panels, paper_width, save, style

_MARKERS = ("o", "s", "^", "D", "v", "p", "<", "h", ">", "X", "*")

#: Minimum distance between two labels on the epoch axis, as a share of its length.
_APART = 0.1


def epoch_figure(
    epochs: Mapping[int, Sequence[Mapping[str, Any]]],
    chosen: Sequence[int],
    path_stem: files.PathLike,
    title: str = "",
    measure: str = "BLEU",
) -> list[Path]:
    """Draw scores relative to the unpruned model's, by epoch (left) and by share of pruned heads (right).

    Args:
        epochs: epoch -> points ``{"percent": 0 to 100, "score": …, "relative": share of the unpruned score or None}``,
            the unpruned model first. Epochs without a relative score are left out.
        chosen: epochs shown in the right panel.
        measure: name of the score.
        path_stem: the figure is written to ``path_stem.png`` and ``path_stem.svg``.

    Raises:
        ValueError: no epoch has a relative score.
        FileNotFoundError: the folder does not exist.
    """
    shown = {epoch: list(points) for epoch, points in sorted(epochs.items()) if points[0]["relative"] is not None}
    if not shown:
        raise ValueError("nothing to draw: the unpruned score is 0 in every epoch")
    with style():
        figure, (left, right) = panels(9.6, 4.6, width_ratios=(3, 2), sharey=True)
        _by_epoch(left, shown, measure)
        _by_share(right, {epoch: shown[epoch] for epoch in chosen if epoch in shown})
        if title:
            figure.suptitle(title, fontsize=12)
        return save(figure, path_stem)


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
