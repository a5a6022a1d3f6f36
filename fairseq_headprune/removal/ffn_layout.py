"""Which feed-forward blocks and units a model has, and which of them a mask keeps.

A block is written as in a mask file's ``"ffn"`` entry: 1 (whole), 0 (it contributes nothing, the output's bias
included; Prasanna et al. 2020, §3.3) or one 0/1 a unit in original numbers (the bias stays, even without any unit).
"""

import copy
from collections.abc import Mapping
from typing import Any

from fairseq_headprune.files import check_format

FORMAT = "headprune.ffn_layout/1"

#: the name under which fairseq's saved model settings hold it
SETTING = "ffn_layout"

SIDES = ("enc", "dec")

#: 1, 0, or one 0/1 a unit
Block = int | list[int]


class FfnLayout:
    """The feed-forward units that are still in the weights.

    Attributes:
        original: units of each block before anything was removed: ``{"enc": [...], "dec": [...]}``.
        blocks: what is there, by side and layer.
    """

    def __init__(self, original: Mapping[str, list[int]], blocks: Mapping[str, list[Block]]) -> None:
        """Check and copy the entries.

        Raises:
            ValueError: blocks that do not fit the original counts.
        """
        if set(original) - set(SIDES):
            raise ValueError(f"the feed-forward layout has sides {sorted(original)}; known are {', '.join(SIDES)}")
        self.original = {s: list(original[s]) for s in SIDES if s in original}
        self.blocks: dict[str, list[Block]] = {}
        for side, counts in self.original.items():
            rows = blocks.get(side, [])
            if len(rows) != len(counts):
                raise ValueError(f"ffn {side}: expected {len(counts)} layers, found {len(rows)}")
            places = [f"ffn {side} layer {layer}" for layer in range(len(counts))]
            self.blocks[side] = [_block(*pair) for pair in zip(places, rows, counts, strict=True)]

    @classmethod
    def full(cls, original: Mapping[str, list[int]]) -> "FfnLayout":
        """Return the layout of a model from which nothing was removed."""
        return cls(original, {side: [1] * len(counts) for side, counts in original.items()})

    def units(self, side: str, layer: int) -> list[int]:
        """Return the original indices of the units of one block."""
        return units_of(self.blocks[side][layer], self.original[side][layer])

    def under(self, ffn: Mapping[str, list[Block]] | None) -> "FfnLayout":
        """Return the layout after what a mask's ``"ffn"`` entry prunes is removed too.

        Raises:
            ValueError: it does not fit, or keeps what was removed before.
        """
        ffn = ffn or {}
        for side in set(ffn) - set(self.original):
            raise ValueError(f'the mask has an "ffn" entry for {side}, where the model has no feed-forward blocks')
        wanted = FfnLayout(self.original, {side: ffn.get(side, self.blocks[side]) for side in self.original})
        blocks: dict[str, list[Block]] = {side: [] for side in self.original}
        for side, rows in wanted.blocks.items():
            for layer, block in enumerate(rows):
                present = self.blocks[side][layer]
                if block == 1 and present != 0:
                    block = present
                kept = set(units_of(block, self.original[side][layer]))
                if (present == 0 and block != 0) or kept - set(self.units(side, layer)):
                    raise ValueError(
                        f"the mask keeps what was removed from ffn {side} layer {layer}; it cannot come back: make the "
                        "mask with headprune mask --like the slim checkpoint"
                    )
                blocks[side].append(block)
        return FfnLayout(self.original, blocks)

    def entry(self) -> dict[str, list[Block]] | None:
        """Return it as the ``"ffn"`` entry of a mask; None if everything is there."""
        return None if self == FfnLayout.full(self.original) else copy.deepcopy(self.blocks)

    def counts(self) -> dict[str, dict[str, int]]:
        """Return for each side how many blocks and units are there, and of how many."""
        return {
            side: {
                "blocks": sum(block != 0 for block in rows),
                "of_blocks": len(rows),
                "units": sum(len(self.units(side, layer)) for layer in range(len(rows))),
                "of_units": sum(self.original[side]),
            }
            for side, rows in self.blocks.items()
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FfnLayout) and (self.original, self.blocks) == (other.original, other.blocks)

    __hash__ = None  # type: ignore[assignment]

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return copy.deepcopy({"format": FORMAT, "original": self.original, "blocks": self.blocks})

    @classmethod
    def from_dict(cls, value: Any, name: str = SETTING) -> "FfnLayout":
        """Read what :meth:`to_dict` returned.

        Raises:
            ValueError: no such layout, one of a newer version, or wrong entries.
        """
        check_format(value, FORMAT, "feed-forward layout", "a feed-forward layout", name)
        parts = [value.get(key) for key in ("original", "blocks")]
        if not all(isinstance(part, Mapping) and all(isinstance(x, list) for x in part.values()) for part in parts):
            raise ValueError(f'{name}: "original" and "blocks" must hold one list a side')
        try:
            return cls(*parts)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error


def units_of(block: Block, count: int) -> list[int]:
    """Return the indices of the units that a block keeps."""
    if isinstance(block, list):
        return [unit for unit, keep in enumerate(block) if keep]
    return list(range(count)) if block else []


def keep_highest(layout: FfnLayout, scores: Mapping[str, list], count: int) -> dict[str, list[Block]]:
    """Keep the highest-scored blocks or units, of equal ones the first in the order enc, dec, layer, unit.

    Args:
        layout: what there is to keep; ``scores``: one number a block, or one list of numbers a block for its units
            (None: pruned when the scores were made).

    Raises:
        ValueError: scores of another shape, or fewer or more to keep than there are.
    """
    places = []
    for side, rows in scores.items():
        if len(rows) != len(layout.original.get(side, [])):
            raise ValueError(f"the scores are of {len(rows)} ffn {side} layers, --like has another number")
        for layer, row in enumerate(rows):
            places += [(side, layer, unit, v) for unit, v in _scored(layout, side, layer, row) if v is not None]
    if not 0 <= count <= len(places):
        raise ValueError(
            f"--ffn {count}: there are {len(places)} scored feed-forward parts, so give 0 to {len(places)}"
        )
    kept = {place[:3] for place in sorted(places, key=lambda place: -place[3])[:count]}
    return {
        side: [
            [int((side, layer, unit) in kept) for unit in range(len(row))]
            if isinstance(row, list)
            else int((side, layer, 0) in kept)
            for layer, row in enumerate(rows)
        ]
        for side, rows in scores.items()
    }


def _scored(layout: FfnLayout, side: str, layer: int, row: Any) -> list[tuple[int, Any]]:
    """Return (unit, score) of the units of one block that are there; of a block's own score, unit 0."""
    if not isinstance(row, list):
        return [] if layout.blocks[side][layer] == 0 else [(0, row)]
    count = layout.original[side][layer]
    if len(row) != count:
        raise ValueError(f"ffn {side} layer {layer}: scores of {len(row)} units, --like has {count}")
    return [(unit, row[unit]) for unit in layout.units(side, layer)]


def _block(where: str, block: Any, count: Any) -> Block:
    if type(count) is not int or count < 1:
        raise ValueError(f"{where}: the original number of units must be at least 1, found {count!r}")
    if isinstance(block, list):
        if len(block) != count:
            raise ValueError(f"{where}: expected {count} units, found {len(block)}")
        if not all(type(unit) is int and unit in (0, 1) for unit in block):
            raise ValueError(f"{where}: a unit's entry is 0 or 1")
        return 1 if all(block) else list(block)
    if type(block) is not int or block not in (0, 1):
        raise ValueError(f"{where}: expected 0, 1 or one 0/1 a unit, found {block!r}")
    return block
