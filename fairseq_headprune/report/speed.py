"""Speed and size of models, and a method's score against both (Li et al. 2021, Figures 4 and 5): tables, figures."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from statistics import mean
from typing import Any

from matplotlib.axes import Axes

from fairseq_headprune import files
from fairseq_headprune.jobs.methods import title
from fairseq_headprune.report import drawing
from fairseq_headprune.report.described import Column, Described, Row
from fairseq_headprune.report.tables import Table

#: The models of ``headprune bench``: sizes, and what multiply-adds promise.
MODELS = Described(
    [
        Column("model", "@models"),
        Column("heads", "heads"),
        Column("parameters", "parameters", ","),
        Column("bytes", "bytes", ","),
        Column("multiply-adds", "multiply_adds", ","),
        Column("floor", "floor_speed", ".2f"),
        Column("attention", "attention_share", ".1%"),
        Column("a head", "head_share", ".3%"),
    ],
    rows="models",
)

#: Its measurements; the speed to the first model is a median over rounds, with its range.
TIMES = Described(
    [
        Column("model", "model"),
        Column("beam", "beam"),
        Column("batch", "batch_size", lambda size: size or "max-tokens"),
        Column("sentences/s", "sentences_per_second", ",.1f"),
        Column("tokens/s", "tokens_per_second", ",.0f"),
        Column("operations", "operations", ","),
        Column("speed to the first", "speed", ",.2f"),
    ],
    rows="rows",
)


def _median(found: Any) -> float:
    return found["median"] if isinstance(found, Mapping) else found


def _rate(rows: list[Row]) -> str:
    return ", ".join(f"{_median(row['examples_per_second']):,.0f} ({_median(row['ratio']):.2f}x)" for row in rows)


#: One row per head count, from documents of ``headprune bench-heads`` whose ``levels`` begin with the unpruned model.
LEVELS = Described(
    [
        Column("masks", "masks"),
        Column("heads kept", "heads"),
        Column("parameters", "parameters", lambda found: f"{_median(found):,.0f}"),
        Column("file MB", "bytes", lambda found: f"{_median(found) / 1e6:.1f}"),
        Column("", form=_rate, over=True),
    ],
    rows="levels/batches",
    across=Column("", "@batches", lambda size: f"batch {size}"),
)


def levels_table(*values: Mapping[str, Any], device: Callable[[Row], str] | None = None) -> Table:
    """One row per head count, with medians over masks; first the unpruned model, timed with every group of masks.

    Args:
        values: JSON documents of ``headprune bench-heads``.
        device: what is shown of a document in an additional first column.
    """
    columns = LEVELS.columns if device is None else [Column("device", form=device), *LEVELS.columns]
    whole = [{**value, "levels": [{**value["unpruned"], "masks": "unpruned"}, *value["levels"]]} for value in values]
    sizes = sorted({size for value in values for size in value["unpruned"]["batches"]}, key=int)
    titles, align = [f"batch {size}" for size in sizes], "l" if device is None else "ll"
    described = replace(LEVELS, columns=columns, titles=titles, align=align)
    table = described.table({str(number): value for number, value in enumerate(whole)})
    return replace(table, notes=[_levels_note(*values)])


def masks_table(entries: Sequence[Mapping[str, Any]]) -> Table:
    """One row per mask: named masks, or those of pruning methods with method and score."""
    columns = [
        Column("masks of", form=lambda row: row.get("method", row.get("name"))),
        *LEVELS.columns[1:-1],
        Column("seed", "seed"),
        Column("score", "score", ".2f"),
        LEVELS.columns[-1],
    ]
    return replace(LEVELS, columns=columns).table({"": {"levels": entries}})


def _levels_note(*values: Mapping[str, Any]) -> str:
    """Describe how the numbers of one or more documents were measured."""
    rounds = " and ".join(dict.fromkeys(str(value["settings"]["rounds"]) for value in values))
    examples = " and ".join(
        dict.fromkeys(
            f"{value['settings']['examples']} examples of {value['data']['task']} {value['data']['split']}"
            for value in values
        )
    )
    return (
        f"Examples a second (and speed to the unpruned model): median over random masks, timed in turn with it, "
        f"{rounds} rounds; {examples}; file: as headprune slim writes it, in 10^6 bytes."
    )


def speed_figure(value: Mapping[str, Any], stem: files.PathLike) -> list[Path]:
    """Draw speed (one line per batch size) and file size, both relative to the unpruned model, against heads kept.

    Lines are medians over masks; bands span minimum to maximum.

    Args:
        value: the JSON document of ``headprune bench-heads``.
        stem: the figure is written to ``stem.png`` and ``stem.svg``.
    """
    levels = sorted(value["levels"], key=lambda level: level["heads"])
    heads = [level["heads"] for level in levels]
    whole = value["unpruned"]
    with drawing.style():
        figure, (left, right) = drawing.panels(9.6, 3.8)
        for size, look in zip(levels[0]["batches"], _looks(), strict=False):
            _band(left, heads, [level["batches"][size]["ratio"] for level in levels], look, f"batch {size}")
        shares = [{key: size / whole["bytes"] for key, size in level["bytes"].items()} for level in levels]
        _band(right, heads, shares, next(_looks()), "file size")
        left.axhline(1, color="#666666", linewidth=1, linestyle=":", zorder=1)
        left.set(ylabel="Speed to the unpruned model")
        left.legend(frameon=False, handlelength=3.2)
        right.set(ylabel="Share of the unpruned file")
        right.set_ylim(0, 1.05)
        for axes in (left, right):
            axes.set(xlabel="Heads kept")
            drawing.finish(axes)
        return drawing.save(figure, stem)


def accuracy_figure(points: Sequence[Mapping[str, Any]], size: int, measure: str, stem: files.PathLike) -> list[Path]:
    """Draw the score against speed and against parameters, one line per method.

    A line joins the means over masks of the same head count; small markers are the single masks.

    Args:
        points: dicts with ``method``, ``heads``, ``score`` and the measurements.
        size: batch size of the speed.
        measure: name of the score.
        stem: the figure is written to ``stem.png`` and ``stem.svg``.
    """
    panels = {
        # Relative speed, not examples per second: machines drift, and each mask alternated with the unpruned model.
        f"Speed (unpruned = 1), batch {size}": lambda p: p["batches"][str(size)]["ratio"]["median"],
        "Parameters (millions)": lambda p: p["parameters"] / 1e6,
    }
    with drawing.style():
        figure, sides = drawing.panels(10.5, 4.0)
        for axes, (label, place) in zip(sides, panels.items(), strict=True):
            for method, look in zip(dict.fromkeys(p["method"] for p in points), _looks(), strict=False):
                mine = [(p["heads"], place(p), p["score"]) for p in points if p["method"] == method]
                _method(axes, mine, look, title(method))
            axes.set(xlabel=label, ylabel=measure)
            drawing.finish(axes)
        handles, labels = axes.get_legend_handles_labels()
        drawing.legend(figure, handles, labels, loc="outside right center")
        return drawing.save(figure, stem)


def _looks() -> Any:
    return chain(drawing.LOOKS.values(), drawing.spare_looks())


def _band(axes: Axes, x: Sequence[int], spreads: Sequence[Mapping[str, float]], look: tuple, label: str) -> None:
    colour, marker, dashes = look
    low, middle, high = ([spread[key] for spread in spreads] for key in ("min", "median", "max"))
    axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.plot(x, middle, color=colour, marker=marker, linestyle=dashes, linewidth=1.4, markersize=4.5, label=label)


def _method(axes: Axes, found: Sequence[tuple[int, float, float]], look: tuple, label: str) -> None:
    colour, marker, dashes = look
    groups = [[point[1:] for point in found if point[0] == heads] for heads in sorted({point[0] for point in found})]
    x, y = zip(*([mean(axis) for axis in zip(*group, strict=True)] for group in groups), strict=True)
    axes.plot(
        *zip(*(point[1:] for point in found), strict=True), color=colour, marker=marker, linestyle="none", markersize=3,
        alpha=0.5,
    )  # fmt: skip
    axes.plot(x, y, color=colour, marker=marker, linestyle=dashes, linewidth=1.4, markersize=5, label=label)
