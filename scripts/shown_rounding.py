"""How the results of rounding.py are shown: products, numbers of rows, layouts, and translations."""

from collections.abc import Sequence
from typing import Any

from shown import Values

from fairseq_headprune.report.described import Column, Described, Row


def _differ(found: list[Row]) -> str:
    (row,) = found
    largest = f" by {row['batch']['largest']:.0e}" if row["batch"]["differing_rows"] else ""
    half = f" ({row['half']['differing_rows']:.1%})" if row["half"] else ""
    return f"{row['batch']['differing_rows']:.1%}{largest}{half}"


ROUNDING = Described(
    [Column("product", "product"), Column("", form=_differ, over=True)],
    rows="rows",
    across=Column("", "sentences", lambda count: "1 sentence" if count == 1 else f"{count} sentences"),
    align="l",
    note="{precision}; rows of the loop that differ in a step of {masks} masks, and by how much at most, relative to "
    "the product's root mean square; in parentheses in the loop's step of half of the sentences. Beam {beam}, {tokens} "
    "tokens; {rounds} draws of the inputs.",
)


def _ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers with neighbours joined: ``1-3, 7``."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1][1:] = [number]
        else:
            ranges.append([number])
    return ", ".join("-".join(map(str, ends)) for ends in ranges) or "none"


KERNELS = Described(
    [
        Column("linear layer", "product"),
        Column("sentences", "tried", lambda most: f"1-{most}"),
        Column("differ", "differing_sentences", len),
        Column("at", "differing_sentences", _ranges),
    ],
    rows="kernels",
    align="lrrl",
    note="{precision}; numbers of sentences, of {beam} rows each, at which any bit differs from the same rows among "
    "{least_rows}.",
)

LAYOUTS = Described(
    [
        Column("linear layer", "layer"),
        Column("", "not_contiguous", lambda shares: format(shares[0], ".0%"), over=True),
    ],
    rows="layouts",
    across=Column("", "way"),
    align="l",
    note="{precision}; share of calls in which the input is not contiguous, of linear layers that have such calls; "
    "three masks of the ablation grid.",
)


def _forms(values: Values) -> str:
    """Explain the ways to translate."""
    (value,) = values.values()
    ways: list[dict[str, Any]] = value["translated"]
    note = f"{value['precision']}; {ways[0]['masks']} masks of the ablation grid. "
    if any("flattened" in row["way"] for row in ways):
        note += "Flattened: all linear layers get contiguous rows, in the loop, too. "
    return note + "Many rows: rows of zeros are added where a linear layer gets few, in the loop, too."


ROUNDED = Described(
    [
        Column("way to translate", "way"),
        Column("equal to the loop's", "identical_hypotheses", ".3%"),
        Column("differ", "differing_hypotheses", "d"),
    ],
    rows="translated",
    align="l",
    note=_forms,
)

#: in the order in which they are printed
ALL = ROUNDING, KERNELS, LAYOUTS, ROUNDED
