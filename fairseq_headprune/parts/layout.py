"""The structure of a model after removal: which original parts its weights still hold."""

from collections.abc import Iterator, Mapping
from typing import Any, Self

from fairseq_headprune.files import check_format
from fairseq_headprune.parts.components import COMPONENTS, FFN, HEADS, Part, Shape, check_component, noun
from fairseq_headprune.parts.mask import Mask
from fairseq_headprune.parts.table import ffn_rows

#: keys of the layout in fairseq's saved model settings: in format /2, and for feed-forward parts in format /1
SETTING, FFN_SETTING = "head_layout", "ffn_layout"

_HOW = "make the mask with headprune mask --like the slim checkpoint"


class Layout(Mask):
    """The parts that are still in the weights. The row of a removed feed-forward block is ``[0]``.

    Attributes:
        original: component -> number of heads or units of each layer before any removal.
        source: where the layout comes from (free JSON).
    """

    NOUN, KEY, OLD_KEY, FORMAT = "layout", "kept", "kept", "headprune.layout/2"

    def __init__(
        self, original: Shape, kept: Mapping[str, list[list[int] | None]], source: Mapping | None = None
    ) -> None:
        """Check and copy the entries.

        Args:
            kept: component -> one ascending list of original indices per layer, possibly empty; None for a feed-forward
                block that was removed together with its output bias.

        Raises:
            KeyError: an unknown component.
            ValueError: layers or parts that do not fit the original counts.
        """
        rows: dict[str, list[list[int]]] = {}
        for component, counts in original.items():
            found = kept.get(check_component(component), [])
            if len(found) != len(counts):
                raise ValueError(f"the layout of {component} has {len(found)} layers, expected {len(counts)}")
            rows[component] = [_row(component, i, *pair) for i, pair in enumerate(zip(found, counts, strict=True))]
        self.rows = {c: rows[c] for c in COMPONENTS if c in rows}
        self.original = {c: list(original[c]) for c in self.rows}
        self.source = dict(source or {})

    @classmethod
    def full(cls, shape: Mapping[str, list[int]], source: dict | None = None) -> "Layout":
        """Return the layout of a model from which nothing was removed."""
        return cls(dict(shape), {c: [list(range(n)) for n in counts] for c, counts in shape.items()}, source)

    def indices(self, component: str, layer: int) -> list[int]:
        """Return the original indices of the parts that one layer still has."""
        return [index for index, there in enumerate(self.rows[component][layer]) if there]

    def has_block(self, component: str, layer: int) -> bool:
        """Whether a feed-forward block is still present, with or without units."""
        return component not in FFN or self.rows[component][layer] != [0]

    def mask(self) -> Mask:
        """Return the mask of original shape that keeps exactly the parts still in the weights.

        Feed-forward components are omitted if all of them are complete.
        """
        rows = {c: [[1] if c in FFN and all(row) else row for row in layers] for c, layers in self.rows.items()}
        components = COMPONENTS if self.dropped(FFN) else HEADS
        return Mask({c: rows[c] for c in components if c in rows}, self.source)

    def under(self, mask: Mask, source: dict | None = None) -> "Layout":
        """Return the layout after also removing the parts that a mask (in original indices) prunes.

        Raises:
            ValueError: the mask does not fit, or keeps a part that was already removed.
        """
        self.check(mask)
        rows = (mask & Mask(self.rows)).rows
        kept = {c: [_stored(c, row) for row in rows[c]] for c in self.rows}
        return Layout(self.original, kept, source)

    def check(self, mask: Mask) -> None:
        """Check that a mask fits and keeps no removed part.

        Raises:
            ValueError: it does not fit, or keeps a removed part; the message names the first one.
        """
        mask.check_shape(self.original)
        back = [part for part in mask.kept(COMPONENTS) if self._is_gone(part, mask)]
        if back:
            name = noun(back[0].component)
            raise ValueError(
                f"the mask keeps {len(back)} {name}s that were removed from the model ({back[0]}…); they cannot come "
                f"back: {_HOW}"
            )

    def _is_gone(self, part: Part, mask: Mask) -> bool:
        row = self.rows[part.component][part.layer]
        single = part.component in FFN and 1 in (len(row), len(mask.rows[part.component][part.layer]))
        return row == [0] if single else not row[part.index]

    def spell_out(self, mask: Mask, parts: str) -> Mask:
        """Return a fitting mask with one explicit entry for every feed-forward block or unit.

        Args:
            parts: ``blocks`` or ``units``.

        Raises:
            ValueError: ``blocks``, but single units of a block are masked without being removed.
        """
        rows = (mask & Mask(self.rows)).rows
        for component in [c for c in FFN if c in self.rows]:
            for layer, row in enumerate(rows[component] if parts == "blocks" else []):
                there = self.rows[component][layer]
                if row not in ([0], there):
                    raise ValueError(
                        f"{component} layer {layer}: the mask prunes units of this block, so that it is no whole "
                        "block; remove them first with headprune slim --ffn, or choose units (--ffn units)"
                    )
                rows[component][layer] = [int(row != [0])]
        return Mask(rows, mask.source)

    def ffn_counts(self) -> dict[str, dict[str, int]]:
        """Return how many blocks and units each feed-forward component has, and how many it had originally."""
        return {
            c: {
                "blocks": sum(row != [0] for row in self.rows[c]),
                "of_blocks": len(self.rows[c]),
                "units": sum(map(sum, self.rows[c])),
                "of_units": sum(self.original[c]),
            }
            for c in FFN
            if c in self.rows
        }

    def differences(self, other: "Layout") -> Iterator[str]:
        """Describe each layer in which another layout of the same model differs."""
        for component in COMPONENTS:
            mine, theirs = self.rows.get(component, []), other.rows.get(component, [])
            if len(mine) != len(theirs):
                yield f"{component} has {len(mine)} layers in one and {len(theirs)} in the other"
                continue
            for layer, (have, found) in enumerate(zip(mine, theirs, strict=True)):
                if have != found and component in FFN:
                    yield f"they have other feed-forward blocks or units ({component} layer {layer})"
                elif have != found:
                    where = f"{component} layer {layer}"
                    yield f"{where} has the heads {_ones(have)} in one and {_ones(found)} in the other"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and (self.original, self.rows) == (other.original, other.rows)

    __hash__ = None  # type: ignore[assignment]

    def to_dict(self) -> dict[str, Any]:
        """Return the layout as plain JSON values."""
        original = {c: list(counts) for c, counts in self.original.items()}
        return {"format": self.FORMAT, "original": original, "kept": self.stored_rows(), "source": dict(self.source)}

    @classmethod
    def _from(cls, rows: dict[str, Any], value: Mapping[str, Any]) -> Self:
        original = value.get("original")
        if not isinstance(original, Mapping) or not all(
            isinstance(x, list) for x in [*original.values(), *rows.values()]
        ):
            raise ValueError('"original" and "kept" must hold one list a component')
        return cls(dict(original), rows, value.get("source"))

    def completed(self, shape: Mapping[str, list[int]]) -> "Layout":
        """Return the layout with every component of this original shape; components missing here are complete."""
        full = Layout.full({c: counts for c, counts in shape.items() if c not in self.original})
        return Layout({**self.original, **full.original}, {**self.stored_rows(), **full.stored_rows()}, self.source)

    def stored_rows(self) -> dict[str, list[list[int] | None]]:
        """Return the rows as lists of original indices; None for a removed feed-forward block."""
        return {c: [_stored(c, row) for row in layers] for c, layers in self.rows.items()}


def layout_of_settings(settings: Any, name: str = "") -> Layout | None:
    """Return the layout in saved model settings; None if nothing was removed.

    Settings of format /1 omit feed-forward components that are complete; see :meth:`Layout.completed`.

    Args:
        name: where the settings come from, for messages.

    Raises:
        ValueError, KeyError: not a layout, a newer version, or invalid entries.
    """
    value, ffn = (getattr(settings, setting, None) for setting in (SETTING, FFN_SETTING))
    layout = None if value is None else Layout.from_dict(value, f"{name}{SETTING}")
    if ffn is None:
        return layout
    check_format(ffn, "headprune.ffn_layout/1", "feed-forward layout", "a feed-forward layout", f"{name}{FFN_SETTING}")
    original = {f"{side}_ffn": counts for side, counts in ffn["original"].items()}
    blocks = {
        component: [_of_block(row, n) for row, n in zip(layers, original[component], strict=True)]
        for component, layers in ffn_rows(ffn["blocks"]).items()
    }
    heads = Layout({}, {}) if layout is None else layout
    return Layout({**heads.original, **original}, {**heads.stored_rows(), **blocks}, heads.source)


def _of_block(row: list[int], count: int) -> list[int] | None:
    """Return the kept units of a block in format /1: 1 (whole block), 0 (removed), or one 0/1 per unit."""
    if len(row) != count and len(row) == 1:
        return list(range(count)) if row[0] else None
    return _ones(row)


def _stored(component: str, row: list[int]) -> list[int] | None:
    return None if component in FFN and row == [0] else _ones(row)


def _row(component: str, layer: int, row: Any, count: Any) -> list[int]:
    """Return 0/1 entries from ascending indices; ``[0]`` for a removed block."""
    where, name = f"{component} layer {layer}", noun(component)
    if type(count) is not int or count < 1:
        raise ValueError(f"{where}: the original number of {name}s must be at least 1, found {count!r}")
    if row is None and component in FFN:
        return [0]
    if row == list(range(count)):
        return [1] * count
    good = isinstance(row, list) and all(type(index) is int and 0 <= index < count for index in row)
    if not good or row != sorted(set(row)):
        raise ValueError(f"{where}: expected ascending {name} numbers from 0 to {count - 1}, found {row!r}")
    there = set(row)
    return [int(index in there) for index in range(count)]


def _ones(row: list[int]) -> list[int]:
    return [index for index, there in enumerate(row) if there]
