"""The figure of a training with learned gates by update (Li et al. 2021, Figures 7 and 8)."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fairseq_headprune import files
from fairseq_headprune.report.drawing import save, style

Points = Sequence[tuple[int, float]]

# The paper's orange and purple, from the colours that colour-blind readers tell apart; marks and dashes for grey print.
_SCORE: dict[str, Any] = {"color": "#D55E00", "marker": "o", "markersize": 4, "linewidth": 1.6}
_OVERLAP: dict[str, Any] = {"color": "#7A4A9E", "linestyle": (0, (6, 2)), "linewidth": 1.6}

_WIDTH, _LABEL = 4.6, 0.42  # inches: of the plot, and of a label above it
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def dynamics_figure(
    overlap: Points, score: Points, temperature: Points, name: str, title: str, path_stem: files.PathLike
) -> list[Path]:
    """Draw the score under the present set, and how much of that set is in the final one, by update.

    Args:
        overlap: (update, percentage of the present set that is in the final one).
        score: (update, score of the validation); may be empty.
        temperature: (update, temperature), falling, for the axis above; empty for none.
        name: of the score (BLEU).
        title: above the plot.
        path_stem: the figure is written to ``path_stem.png`` and ``path_stem.svg``.

    Raises:
        ValueError: no points, or a number that is NaN or infinite.
        FileNotFoundError: the folder does not exist.
    """
    if not overlap:
        raise ValueError("no updates to draw")
    if not all(math.isfinite(value) for _, value in [*overlap, *score, *temperature]):
        raise ValueError("a number is not finite; the training cannot be drawn")
    end = max(update for update, _ in [*overlap, *score])
    with style():
        figure = Figure(figsize=(5.8, 4.2), layout="constrained")
        axes = figure.add_subplot()
        axes.set(xlim=(0, end), xlabel="Updates", title=title)
        percentages = axes if not score else axes.twinx()
        if score:
            axes.plot(*zip(*score, strict=True), label=f"{name} on valid (left)", gid="score", **_SCORE)
            axes.set_ylabel(name)
        label = "selected heads that are kept in the end" + (" (right)" if score else "")
        percentages.plot(*zip(*overlap, strict=True), label=label, gid="overlap", **_OVERLAP)
        percentages.set(ylim=(-2, 104), ylabel="Selected heads kept in the end (%)", yticks=range(0, 101, 20))
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        if temperature:
            _temperature_axis(axes, temperature, end)
        figure.legend(loc="outside lower center", ncols=2, frameon=False, handlelength=3.2)
        return save(figure, path_stem)


def _temperature_axis(axes: Axes, temperature: Points, end: int) -> None:
    first, last = temperature[0][0], next(u for u, tau in temperature if tau == temperature[-1][1])
    ticks = temperature_ticks(temperature, 1 + int((last - first) / end * _WIDTH / _LABEL))
    above = axes.secondary_xaxis("top")
    above.set_xticks([update for update, _ in ticks], [label for _, label in ticks])
    above.set_xlabel("Temperature")


def temperature_ticks(temperature: Points, most: int) -> list[tuple[float, str]]:
    """Return (update, label) of the powers of ten that a falling temperature passes, at most ``most`` of them.

    Between two points the temperature falls log-linearly, as eq. 24 has it. The lowest power is always there. Where no
    power is passed, the last temperature is named where it is reached first.
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
