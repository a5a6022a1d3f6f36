"""The structure of a model whose heads were removed: which original heads each attention module still has."""

import copy
from collections.abc import Mapping
from typing import Any

from fairseq_headprune.files import check_format
from fairseq_headprune.parts.components import HEADS, Part, Shape, check_component
from fairseq_headprune.parts.mask import Mask

FORMAT = "headprune.layout/1"

#: the name under which fairseq's saved model settings hold it
SETTING = "head_layout"


class Layout:
    """The heads that are still in the weights, by original index.

    Attributes:
        original: number of heads of each layer before anything was removed, by component.
        kept: component -> one ascending list of original head indices a layer; a list may be empty.
        source: where it comes from (free JSON).
    """

    def __init__(self, original: Shape, kept: dict[str, list[list[int]]], source: dict | None = None) -> None:
        """Check and copy the entries.

        Raises:
            KeyError: an unknown component.
            ValueError: layers or heads that do not fit the original counts.
        """
        for component, counts in original.items():
            rows = kept.get(check_component(component), [])
            if len(rows) != len(counts):
                raise ValueError(f"the layout of {component} has {len(rows)} layers, expected {len(counts)}")
            for layer, (row, count) in enumerate(zip(rows, counts, strict=True)):
                _check_row(component, layer, row, count)
        self.original = {c: list(original[c]) for c in HEADS if c in original}
        self.kept = {c: [list(row) for row in kept[c]] for c in self.original}
        self.source = dict(source or {})

    @classmethod
    def full(cls, shape: Mapping[str, list[int]]) -> "Layout":
        """Return the layout of a model from which nothing was removed."""
        return cls(dict(shape), {c: [list(range(n)) for n in counts] for c, counts in shape.items()})

    def mask(self) -> Mask:
        """Return the mask of original shape that keeps just the heads that are there."""
        rows = {
            c: [[int(head in row) for head in range(n)] for n, row in zip(self.original[c], self.kept[c], strict=True)]
            for c in self.original
        }
        return Mask(rows, self.source)

    def under(self, mask: Mask, source: dict | None = None) -> "Layout":
        """Return the layout after the heads that a mask (in original numbers) prunes are removed too.

        Raises:
            ValueError: the mask does not fit, or keeps a head that was removed before.
        """
        mask.check_shape(self.original)
        self.check_absent(mask.kept())
        kept = {c: [[h for h, keep in enumerate(row) if keep] for row in rows] for c, rows in mask.rows.items()}
        return Layout(self.original, kept, source)

    def check_absent(self, kept: list[Part]) -> None:
        """Make sure that a mask keeps no head that was removed.

        Raises:
            ValueError: it does; the message names the first one.
        """
        gone = set(self.mask().dropped())
        back = [head for head in kept if head in gone]
        if back:
            raise ValueError(
                f"the mask keeps {len(back)} heads that were removed from the model ({back[0]}…); they cannot come "
                "back: make the mask with headprune mask --like the slim checkpoint"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        value = {"format": FORMAT, "original": self.original, "kept": self.kept, "source": self.source}
        return copy.deepcopy(value)

    @classmethod
    def from_dict(cls, value: Any, name: str = "layout") -> "Layout":
        """Read what :meth:`to_dict` returned.

        Raises:
            ValueError, KeyError: no layout, one of a newer version, or wrong entries.
        """
        check_format(value, FORMAT, "layout", "a layout", name)
        parts = [value.get(key) for key in ("original", "kept")]
        if not all(isinstance(part, Mapping) and all(isinstance(x, list) for x in part.values()) for part in parts):
            raise ValueError(f'{name}: "original" and "kept" must hold one list a component')
        try:
            return cls(parts[0], parts[1], value.get("source"))
        except (ValueError, KeyError) as error:
            raise type(error)(f"{name}: {error.args[0]}") from error


def _check_row(component: str, layer: int, row: Any, count: Any) -> None:
    where = f"{component} layer {layer}"
    if not isinstance(count, int) or count < 1:
        raise ValueError(f"{where}: the original number of heads must be at least 1, found {count!r}")
    good = isinstance(row, list) and all(type(head) is int and 0 <= head < count for head in row)
    if not good or row != sorted(set(row)):
        raise ValueError(f"{where}: expected ascending head numbers from 0 to {count - 1}, found {row!r}")
