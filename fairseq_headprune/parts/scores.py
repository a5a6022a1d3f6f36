"""The score file: one number per part, and how it was computed."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from fairseq_headprune.parts.components import HEADS, Part
from fairseq_headprune.parts.table import PartTable, Rows

#: omitted from the file if None
_OPTIONAL = ("precision", "environment", "origin")


@dataclass
class Scores(PartTable[float | None]):
    """Scores of the parts of a model with their provenance; the score of an already pruned part is None.

    Attributes:
        rows: component -> one list per layer -> one number or None per part; components may be missing.
        estimator, reduction, normalize, loss: how the scores were estimated (None where not applicable).
        sentences: how many sentences were used.
        data, checkpoint: what they were computed from; ``checkpoint`` is ``{"path", "sha256"}``.
        details: further settings (seed, tokens, batches).
        precision: the model's precision: ``fp32``, ``fp16`` or ``bf16``.
        environment: the software, the machine and the command (see ``provenance.py``); None if the study's folder
            records it, and in files from other sources.
        origin: the model's updates, and the hashes of train, valid and test; None as for ``environment``.
    """

    NOUN = "score"
    KEY = OLD_KEY = "scores"
    FORMAT = "headprune.scores/2"
    DROPPED = None
    HINT = "take the scores of this model"
    PARTIAL = True

    rows: Rows[float | None]
    estimator: str
    reduction: str | None = None
    normalize: str = "none"
    loss: str | None = None
    sentences: int = 0
    data: dict = field(default_factory=dict)
    checkpoint: dict = field(default_factory=dict)
    details: dict = field(default_factory=dict)
    precision: str | None = None
    environment: dict | None = None
    origin: dict | None = None

    def __post_init__(self) -> None:
        """Check the entries.

        Raises:
            KeyError: an unknown component.
            ValueError: not one list per layer, or a score that is neither a finite number nor None.
        """
        self.rows = self.checked(self.rows)

    @classmethod
    def entry(cls, value: Any) -> float | None:
        """Return a finite number or None; see :meth:`PartTable.entry`."""
        if value is not None and not (isinstance(value, (int, float)) and math.isfinite(value)):
            raise ValueError(f"the score is {value!r}, not a finite number")
        return value

    def pruning_order(self, components: Iterable[str] = HEADS) -> list[Part]:
        """List the scored parts of these components in the order in which they are pruned.

        Ascending score; on ties the highest index is pruned first, so that keeping K parts keeps the lowest indices.
        """
        return sorted(reversed(self.kept(components)), key=self.__getitem__)

    def _facts(self) -> dict[str, Any]:
        facts = asdict(self)
        return {k: v for k, v in facts.items() if k != "rows" and (v is not None or k not in _OPTIONAL)}

    @classmethod
    def _from(cls, rows: dict[str, Any], value: Mapping[str, Any]) -> Self:
        known = {key: value[key] for key in cls.__dataclass_fields__ if key in value}
        return cls(rows, **{"estimator": "unknown", **known})
