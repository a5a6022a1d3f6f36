"""Scores when single heads are masked: histogram, and scatter of two test sets (Michel et al. 2019, Figures 1, 2)."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fairseq_headprune import files
from fairseq_headprune.parts import PAPER_NAMES
from fairseq_headprune.report.drawing import LOOKS, finish, legend, save, style


def score_histogram(
    scores: Sequence[float], baseline: float, name: str, path_stem: files.PathLike, bins: int = 20
) -> list[Path]:
    """Draw a histogram of the scores with one head masked, with the unpruned model's score as a line.

    Args:
        scores: one per head.
        name: name of the score (BLEU).
        path_stem: the figure is written to ``path_stem.png`` and ``path_stem.svg``.
        bins: number of equal intervals from the lowest score to the highest.

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
        axes.hist(scores, bins=bins, color="#0072B2", edgecolor="white", linewidth=0.8, gid="heads")
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
