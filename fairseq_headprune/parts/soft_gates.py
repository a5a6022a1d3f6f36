"""The gate file: one real number a head, by which its output is multiplied before ``out_proj``."""

import copy
import math
from collections.abc import Mapping
from typing import Any

from fairseq_headprune.files import PathLike, check_format, read_json, write_json
from fairseq_headprune.parts.components import HEADS, Part, Shape, check_component
from fairseq_headprune.parts.mask import Mask

FORMAT = "headprune.gates/1"


class SoftGates:
    """A gate for every head of a model, by original index: 0 prunes it, 1 leaves it as it is.

    Attributes:
        gates: component -> one list a layer -> one finite number a head.
        source: where the gates come from (free JSON).
    """

    def __init__(self, gates: Mapping[str, list[list[float]]], source: dict | None = None) -> None:
        """Check and copy the entries.

        Raises:
            KeyError: an unknown component.
            ValueError: not one list a layer, or an entry that is no finite number.
        """
        checked = {check_component(component): _rows(component, rows) for component, rows in gates.items()}
        self.rows = {component: checked[component] for component in HEADS if component in checked}
        self.source = dict(source or {})

    @property
    def shape(self) -> Shape:
        """Number of heads of each layer, by component."""
        return {component: [len(row) for row in rows] for component, rows in self.rows.items()}

    def mask(self) -> Mask:
        """Return the mask that keeps the heads whose gate is not 0."""
        return Mask({c: [[int(g != 0) for g in row] for row in rows] for c, rows in self.rows.items()}, self.source)

    def soft(self) -> list[Part]:
        """List the heads whose gate is neither 0 nor 1, in the order of :meth:`Mask.kept`."""
        return [head for head in self.mask().kept() if self[head] != 1]

    def __getitem__(self, head: Part) -> float:
        """Return the gate of one head."""
        return self.rows[head.component][head.layer][head.index]

    def check_shape(self, shape: Mapping[str, list[int]]) -> None:
        """Make sure that the gates are those of a model.

        Raises:
            ValueError: components, layers or head counts differ; the message says where.
        """
        for component in HEADS:
            mine, theirs = self.shape.get(component, []), list(shape.get(component, []))
            if mine != theirs:
                raise ValueError(
                    f"the gates of {component} are for layers of {mine} heads, the checkpoint has {theirs}; take those "
                    "of this model"
                )

    def to_dict(self) -> dict[str, Any]:
        """Return the gate file's content."""
        return copy.deepcopy({"format": FORMAT, "gates": self.rows, "source": self.source})

    @classmethod
    def from_dict(cls, value: Any, name: str = "gates") -> "SoftGates":
        """Read a gate file's content.

        Raises:
            ValueError, KeyError: it is no gate file, of another version, or holds wrong entries.
        """
        check_format(value, FORMAT, "gate", "a gate file", name)
        if not isinstance(value.get("gates"), Mapping) or not value["gates"]:
            raise ValueError(f'{name}: the file has no "gates"')
        if not isinstance(value.get("source", {}), Mapping):
            raise ValueError(f'{name}: "source" must be an object, found {value["source"]!r}')
        try:
            return cls(value["gates"], value.get("source"))
        except (ValueError, KeyError) as error:
            raise type(error)(f"{name}: {error.args[0]}") from error

    def save(self, path: PathLike) -> None:
        """Write the gate file, atomically."""
        write_json(path, self.to_dict())

    @classmethod
    def load(cls, path: PathLike) -> "SoftGates":
        """Read a gate file.

        Raises:
            FileNotFoundError, ValueError, KeyError: as for :meth:`from_dict`.
        """
        return cls.from_dict(read_json(path), str(path))


def _rows(component: str, rows: Any) -> list[list[float]]:
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise ValueError(f"the gates of {component} are not one list a layer: {rows!r}")
    for layer, row in enumerate(rows):
        for head, gate in enumerate(row):
            if isinstance(gate, bool) or not isinstance(gate, (int, float)) or not math.isfinite(gate):
                raise ValueError(f"the gate of {Part(component, layer, head)} is {gate!r}, not a finite number")
    return [[float(gate) for gate in row] for row in rows]
