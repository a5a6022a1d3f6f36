"""The figures of many trainings with learned gates: heads against lambda, and where kept heads are (Li et al. 2021)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fairseq_headprune import files
from fairseq_headprune.parts import PAPER_NAMES
from fairseq_headprune.report.drawing import save, style

_BLUE = "#0072B2"


def heads_against_penalty(points: Sequence[tuple[float, float]], total: int, path_stem: files.PathLike) -> list[Path]:
    """Draw the number of heads that L0 left against lambda (Figure 2); a line joins the means of equal lambdas.

    Args:
        points: (lambda, heads kept), one a training.
        total: heads that have a gate, drawn as a dotted line.
        path_stem: the figure is written to ``path_stem.png`` and ``path_stem.svg``.

    Raises:
        ValueError: no points.
        FileNotFoundError: the folder does not exist.
    """
    if not points:
        raise ValueError("no trainings with an L0 penalty to draw")
    groups: dict[float, list[float]] = {}
    for penalty, kept in sorted(points):
        groups.setdefault(penalty, []).append(kept)
    positive = [penalty for penalty in groups if penalty > 0]
    with style():
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
        axes.plot(*zip(*points, strict=True), color=_BLUE, gid="runs", **look)
        axes.axhline(total, color="#666666", linewidth=1, linestyle=":", gid="total", label=f"All heads ({total})")
        if positive and len(positive) == len(groups):
            axes.set_xscale("log")
        elif positive:  # a lambda of 0 has no place on a logarithmic axis
            axes.set_xscale("symlog", linthresh=min(positive))
        # matplotlib writes powers of ten as formulas, which the style leaves as they are.
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set(xlabel="λ (nats a head)", ylabel="Heads kept", ylim=(0, 1.06 * total))
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside lower center", frameon=False, handlelength=3.2)
        return save(figure, path_stem)


def head_distribution(
    counts: Mapping[int, Mapping[str, Sequence[float]]], title: str, path_stem: files.PathLike
) -> list[Path]:
    """Draw one heat map a component: layers down from 1, trainings across by the number of heads they kept (Figure 6).

    Args:
        counts: number of heads kept -> component -> number of them in each layer (a mean, where several trainings kept
            the same number).
        title: above the maps.
        path_stem: the figure is written to ``path_stem.png`` and ``path_stem.svg``.

    Raises:
        ValueError: no trainings.
        FileNotFoundError: the folder does not exist.
    """
    if not counts:
        raise ValueError("no trainings to draw")
    layers = {component: len(column) for component, column in next(iter(counts.values())).items()}
    highest = max(value for kept in counts.values() for column in kept.values() for value in column)
    with style():
        size = (max(4.4, 1.6 + 0.36 * len(counts)), 1.2 + sum(0.3 * n + 0.4 for n in layers.values()))
        figure = Figure(figsize=size, layout="constrained")
        rows = figure.subplots(len(layers), squeeze=False, sharex=True, height_ratios=list(layers.values()))[:, 0]
        norm = Normalize(0, highest or 1)
        for axes, component in zip(rows, layers, strict=True):
            image = _draw_component(axes, {kept: by_layer[component] for kept, by_layer in counts.items()}, norm)
            image.set_gid(f"map-{component}")
            axes.set(title=PAPER_NAMES[component], ylabel="Layer")
        rows[-1].set_xlabel("Heads kept")
        figure.suptitle(title, fontsize=12)
        bar = figure.colorbar(image, ax=list(rows), label="Heads kept in the layer", aspect=40)
        bar.outline.set_visible(False)
        return save(figure, path_stem)


def _draw_component(axes: Axes, by_kept: Mapping[int, Sequence[float]], norm: Normalize) -> QuadMesh:
    """Draw one component's map; the number stands in its cell. The more heads, the darker, as in the paper."""
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
