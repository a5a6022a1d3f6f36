"""The gate file: one real number per part, which multiplies the part's output."""

import math
from typing import Any

from fairseq_headprune.parts.components import COMPONENTS, Part
from fairseq_headprune.parts.mask import Mask
from fairseq_headprune.parts.table import Table


class SoftGates(Table[float]):
    """A gate for every head of a model, and for feed-forward parts if it has rows for them.

    A gate of 0 prunes the part, a gate of 1 leaves it unchanged.

    Attributes:
        source: where the gates come from (free JSON).
    """

    NOUN, KEY, OLD_KEY, FORMAT = "gate", "gates", "gates", "headprune.gates/2"
    HINT = "take the gates of this model"

    @classmethod
    def entry(cls, value: Any) -> float:
        """Return a finite number; see :meth:`Table.entry`."""
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise ValueError(f"the gate is {value!r}, not a finite number")
        return float(value)

    def mask(self) -> Mask:
        """Return the mask that keeps the parts whose gate is not 0."""
        return Mask({c: [[int(g != 0) for g in row] for row in rows] for c, rows in self.rows.items()}, self.source)

    def soft(self) -> list[Part]:
        """List the parts whose gate is neither 0 nor 1, in the fixed order."""
        return [part for part in self.kept(COMPONENTS) if self[part] != 1]
