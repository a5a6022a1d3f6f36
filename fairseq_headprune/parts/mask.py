"""The mask file, which says for every part whether it is kept, and the gate file, with a real number for every part."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, Self

from fairseq_headprune.parts.components import COMPONENTS, FFN, HEADS, Part
from fairseq_headprune.parts.table import PartTable


class Mask(PartTable[int]):
    """A table of 1 (kept) and 0 (pruned); feed-forward components that are omitted keep everything.

    A feed-forward row with the single entry 1 keeps all units that the block still has.

    Attributes:
        source: where the mask comes from (free JSON).
    """

    NOUN, KEY, OLD_KEY, FORMAT = "mask", "parts", "heads", "headprune.mask/2"
    HINT = "make a mask for it with: headprune mask --like CKPT"

    @classmethod
    def full(cls, shape: Mapping[str, list[int]], source: dict | None = None) -> "Mask":
        """Return the mask that keeps every part of a model of this shape."""
        return Mask({c: [[1] * n for n in layers] for c, layers in shape.items()}, source)

    def keeping(self, parts: Iterable[Part], components: Iterable[str] = HEADS) -> Self:
        """Return a copy that of these components keeps only these parts, as far as they are not pruned already.

        Raises:
            ValueError: a part that the mask does not have.
        """
        chosen = set(parts)
        self.check_present(chosen)
        return self.without(part for part in self.kept(components) if part not in chosen)

    @classmethod
    def entry(cls, value: Any) -> int:
        """Return 0 or 1; see :meth:`PartTable.entry`."""
        if isinstance(value, float) or value not in (0, 1):
            raise ValueError(f"a mask entry is 0 or 1, found {value!r}")
        return int(value)

    def prunes_ffn(self) -> bool:
        """Whether anything in a feed-forward component is pruned."""
        return bool(self.dropped(FFN))

    def is_blind(self) -> bool:
        """Whether all heads of encoder-decoder attention are pruned: the decoder does not see the source then."""
        heads = self.counts().get("enc_dec", {"kept": 1})
        return not heads["kept"]

    def __and__(self, other: "Mask") -> "Mask":
        """Return the mask that keeps the parts both masks keep; ``other`` may lack feed-forward components."""
        rows = {
            c: [_both(*pair) for pair in zip(layers, other.rows[c], strict=True)] if c in other.rows else layers
            for c, layers in self.rows.items()
        }
        return Mask({**other.rows, **rows}, self.source)

    def complement(self, other: "Mask") -> Self:
        """Also prune the parts that the other mask keeps. (A mirrored configuration keeps the number of heads.)

        Raises:
            ValueError: the masks have different shapes.
        """
        other.check_shape(self.shape, "--like")
        return self.without(part for part in other.kept(COMPONENTS) if part.component in self.rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mask) and self.rows == other.rows

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        counts = ", ".join(f"{c} {n['kept']}/{n['total']}" for c, n in self.counts().items())
        return f"Mask({counts})"


def _both(mine: list[int], other: list[int]) -> list[int]:
    """Return the entries that both rows keep; a single entry stands for the whole block."""
    if len(mine) != len(other):
        single, row = (mine, other) if len(mine) == 1 else (other, mine)
        return row if single[0] else [0]
    return [a & b for a, b in zip(mine, other, strict=True)]


class SoftGates(PartTable[float]):
    """A gate for every head of a model, and for feed-forward parts if it has rows for them.

    A gate of 0 prunes the part, a gate of 1 leaves it unchanged.

    Attributes:
        source: where the gates come from (free JSON).
    """

    NOUN, KEY, OLD_KEY, FORMAT = "gate", "gates", "gates", "headprune.gates/2"
    HINT = "take the gates of this model"

    @classmethod
    def entry(cls, value: Any) -> float:
        """Return a finite number; see :meth:`PartTable.entry`."""
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise ValueError(f"the gate is {value!r}, not a finite number")
        return float(value)

    def mask(self) -> Mask:
        """Return the mask that keeps the parts whose gate is not 0."""
        return Mask({c: [[int(g != 0) for g in row] for row in rows] for c, rows in self.rows.items()}, self.source)

    def soft(self) -> list[Part]:
        """List the parts whose gate is neither 0 nor 1, in the fixed order."""
        return [part for part in self.kept(COMPONENTS) if self[part] != 1]
