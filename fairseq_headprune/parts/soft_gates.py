"""The gate file: one real number a part, by which its output is multiplied."""

import math
from collections.abc import Mapping
from typing import Any, Self

from fairseq_headprune.parts.components import COMPONENTS, Part
from fairseq_headprune.parts.mask import Mask
from fairseq_headprune.parts.table import Rows, Table


class SoftGates(Table[float]):
    """A gate for every head of a model, and for feed-forward parts where it has rows of them: 0 prunes, 1 changes
    nothing.

    Attributes:
        source: where the gates come from (free JSON).
    """

    NOUN, KEY, OLD_KEY, FORMAT = "gate", "gates", "gates", "headprune.gates/2"
    HINT = "take the gates of this model"

    def __init__(self, rows: Mapping[str, Any], source: Mapping | None = None) -> None:
        """Check and copy the entries.

        Raises:
            KeyError: an unknown component.
            ValueError: not one list a layer, or an entry that is no finite number.
        """
        self.rows: Rows[float] = self.checked(rows)
        self.source = dict(source or {})

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

    def _facts(self) -> dict[str, Any]:
        return {"source": self.source}

    @classmethod
    def _from(cls, rows: dict[str, Any], value: Mapping[str, Any]) -> Self:
        return cls(rows, value.get("source"))
