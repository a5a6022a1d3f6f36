"""The histogram of scores when single heads are masked (Michel et al. 2019, Figure 1)."""

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fairseq_headprune import files
from fairseq_headprune.report.drawing import save, style


def score_histogram(
    scores: Sequence[float], baseline: float, name: str, path_stem: files.PathLike, bins: int = 20
) -> list[Path]:
    """Draw how many heads lead to which score when they are masked, with the unpruned model's score as a line.

    Args:
        scores: one a head.
        name: of the score (BLEU).
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
        # White edges part the bars in print as well.
        axes.hist(scores, bins=bins, color="#0072B2", edgecolor="white", linewidth=0.8, gid="heads")
        axes.axvline(
            baseline, color="#D55E00", linestyle=(0, (6, 2)), linewidth=1.8, gid="baseline",
            label=f"Baseline {name} ({baseline:.2f})",
        )  # fmt: skip
        axes.set(xlabel=name, ylabel="Number of heads")
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(axis="y", color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside lower center", frameon=False, handlelength=3.2)
        return save(figure, path_stem)
