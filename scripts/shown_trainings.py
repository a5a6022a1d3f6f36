"""How comparisons over trainings are shown: what compare-pruners, over_trainings.py and variance.py found."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from shown import Values

from fairseq_headprune.jobs.methods import base, in_order, options
from fairseq_headprune.report.described import Column, Described, Row
from fairseq_headprune.report.marks import difference_text, p_said, small
from fairseq_headprune.report.tables import Table, mean_and_sd


def _over_seeds(row: Row) -> str:
    """Return mean and deviation; with the number of trainings where that is not the same in all rows."""
    return mean_and_sd(row["mean"], row["sd"]) + (f" ({row['n']})" if _uneven(row["rows"]) else "")


def _uneven(rows: Sequence[Mapping[str, Any]]) -> bool:
    return len({row["n"] for row in rows}) > 1


def _difference(row: Row) -> str | None:
    """Return the difference with its interval; ``=``: equivalent within the margin."""
    found = row["difference"]
    if not found or found["mean"] is None:
        return None
    pairs = f" ({found['n']})" if _uneven(row["rows"]) else ""
    return difference_text(found["mean"], found["ci"]) + ("=" if (found["p_equivalent"] or 1) < 0.05 else "") + pairs


def _of_one(rows: Sequence[Row]) -> str:
    """Return mean and deviation; in the mean over all, or where there is a margin, also the difference."""
    (row,) = rows
    told = [_over_seeds(row), None if row["heads"] and row["margin"] is None else _difference(row)]
    return "; ".join(filter(None, told))


def _compared(values: Values) -> str:
    value = next(iter(values.values()))
    against = " or ".join(dict.fromkeys(value["against"] for value in values.values()))
    over = f"over {value['rows'][0]['n']} trainings"
    if any(_uneven(value["rows"]) for value in values.values()):
        over = "(number of trainings)"
    text = f"BLEU on {value['split']} by heads kept: mean ± standard deviation {over}; "
    text += f"difference from {against}, paired by training, with a 95% interval. "
    text += "Mean: over the numbers of heads that all methods have."
    if value["margin"] is not None:
        text += f" =: equivalent within {value['margin']:g} (p < .05 of two one-sided tests)."
    return text


_HEADS = Column("heads", form=lambda row: str(row["heads"] or "mean"))
_OF_ONE = Column("", form=_of_one, over=True)

#: What over_trainings.py found.
DIFFERENCES = Described(
    [Column("method", "method"), _OF_ONE],
    rows="rows",
    across=_HEADS,
    order=lambda row: row["heads"] is None,
    note=_compared,
)

#: The same, with methods side by side.
BY_HEADS = replace(DIFFERENCES, columns=[_HEADS, _OF_ONE], across=Column("", "method"))

#: The same in the mean over all numbers of heads, against one method in each file.
MEANS = replace(
    DIFFERENCES,
    columns=[
        Column("method", "method"),
        Column("mean", form=_over_seeds),
        Column("", form=lambda rows: _difference(rows[0]), over=True),
    ],
    across=Column("", form=lambda row: f"difference from {row['against']}"),
    only=lambda row: row["heads"] is None,
    order=lambda row: -row["mean"],
)

#: The same at every number of heads, too.
EACH = replace(
    MEANS,
    columns=[_HEADS, *MEANS.columns],
    only=bool,
    order=lambda row: (-(row["heads"] or 0), -row["mean"]),
    align="ll",
)


def unnumbered(method: str) -> str:
    """Return a method without the number of its mask."""
    return re.sub(r"\+mask=\d+", "", method)


def heads_by_component(kept: Mapping[str, Sequence[str]]) -> tuple[int, ...]:
    """Return the number of heads that a mask keeps in each component."""
    return tuple(sum(layer.count("1") for layer in layers) for layers in kept.values())


def _of_mask(row: Row) -> str:
    """Return a mask's heads by component, and its score over trainings."""
    found = next(one for one in row["rows"] if (one["method"], one["count"]) == (row["method"], row["heads"]))
    text = f"{'/'.join(map(str, heads_by_component(found['kept'])))}: {mean_and_sd(row['score'], row['sd'])}"
    return text + (f" ({len(row['seeds'])})" if len(_trained(row["points"])) > 1 else "")


def _trained(points: Sequence[Mapping[str, Any]]) -> set[int]:
    """Return the numbers of trainings that single masks have."""
    return {len(point["seeds"]) for point in points if unnumbered(point["method"]) != point["method"]}


def _masks_told(values: Values) -> str:
    (value,) = values.values()
    of = _trained(value["points"])
    over = f"over {min(of)} trainings" if len(of) == 1 else "(number of trainings)"
    return (
        f"Heads in Enc-Enc/Enc-Dec/Dec-Dec: {value['measure']} on {value['split']}, mean ± standard deviation {over}."
    )


#: The single masks (option mask=N) that compare-pruners has trained.
MASKS = Described(
    [
        Column("heads", "heads"),
        Column("mask", form=lambda row: row["method"].rpartition("=")[2]),
        Column("", form=lambda rows: _of_mask(rows[0]), over=True),
    ],
    rows="points",
    across=Column("", form=lambda row: unnumbered(row["method"])),
    only=lambda row: unnumbered(row["method"]) != row["method"],
    order=lambda row: (-row["heads"], row["method"].rpartition("=")[2]),
    align="ll",
    note=_masks_told,
)


def settings(values: Values) -> Table:
    """The settings of each method that compare-pruners has trained with one number of heads, the best first."""
    (value,) = values.values()
    points = [point for point in value["points"] if options(point["method"])]
    (count,) = {point["heads"] for point in points}
    columns: dict[str, list[str]] = {method: [] for method in in_order(base(point["method"]) for point in points)}
    for point in sorted(points, key=lambda point: -point["score"]):
        setting = ", ".join(options(point["method"]))
        columns[base(point["method"])].append(f"{mean_and_sd(point['score'], point['sd'])} ({setting})")
    trainings = {len(point["seeds"]) for point in points}
    note = f"{value['measure']} on {value['split']} with {count} heads, the highest first; "
    note += f"trainings of each: {', '.join(map(str, sorted(trainings)))}."
    return Table([*columns], [[*row] for row in zip_longest(*columns.values())], "l" * len(columns), notes=[note])


def _share(name: str) -> Column:
    def text(row: Row) -> str | None:
        if f"share_{name}" not in row:
            return None
        p = row.get(f"p_{name}")
        return f"{row[f'share_{name}']:.0%}" + (f" ({p_said(small(p))})" if p is not None else "")

    titles = {"numbers": "numbers by component", "sets": "which heads"}
    return Column(titles.get(name, name), form=text)


#: What questions/variance.py found.
VARIANCE = Described(
    [
        Column("heads", "heads"),
        Column("method", "method"),
        Column("masks x seeds", form=lambda row: f"{row['masks']} x {row['seeds']}"),
        *(_share(name) for name in ("mask", "numbers", "sets", "seed")),
    ],
    rows="rows",
    order=lambda row: -row["heads"],
    align="ll",
    note="Shares of the variance of scores over masks and seeds (analysis of variance with random effects); the rest "
    "is that of neither. Of the mask's, for methods that have the same numbers of heads by component: that of these "
    "numbers, and that of the heads with the same numbers. p of F tests, not corrected.",
)
