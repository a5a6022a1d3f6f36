"""The score file: one number a head, and how it was computed."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from fairseq_headprune.files import PathLike, check_format, read_json, write_json
from fairseq_headprune.parts.components import HEADS, Part, Shape, all_heads, check_component

FORMAT = "headprune.scores/1"

#: left out of the file where there is none
_OPTIONAL = ("precision", "environment", "ffn")


@dataclass
class Scores:
    """Scores of all heads of a model with their provenance; None stands for a head that is already pruned.

    Attributes:
        rows: component -> one list a layer -> one number or None a head, by original index.
        estimator, reduction, normalize, loss: how they were estimated (None where it does not apply).
        sentences: how many sentences they come from.
        data, checkpoint: where from; ``checkpoint`` is ``{"path", "sha256"}``.
        details: further settings (seed, tokens, batches).
        precision: what the model computed in: ``fp32``, ``fp16`` or ``bf16``.
        environment: the software, the machine and the command (see :mod:`studies.provenance`); None where a study's
            folder says it, and in files of other origin.
        ffn: side (``enc``, ``dec``) -> one number or None a feed-forward block, or one list of them for its units;
            None where they were not scored.
    """

    rows: dict[str, list[list[float | None]]]
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
    ffn: dict | None = None

    def __post_init__(self) -> None:
        """Check the entries.

        Raises:
            KeyError: an unknown component.
            ValueError: not one list a layer, or a score that is neither a finite number nor None.
        """
        for component, rows in self.rows.items():
            check_component(component)
            if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
                raise ValueError(f"the scores of {component} are not one list a layer: {rows!r}")
            for layer, row in enumerate(rows):
                for head, value in enumerate(row):
                    good = value is None or (isinstance(value, (int, float)) and math.isfinite(value))
                    if not good:
                        raise ValueError(
                            f"the score of {Part(component, layer, head)} is {value!r}, not a finite number"
                        )
        _check_ffn(self.ffn)

    @property
    def shape(self) -> Shape:
        """Number of heads of each layer, by component."""
        return {c: [len(row) for row in self.rows[c]] for c in HEADS if c in self.rows}

    def __getitem__(self, head: Part) -> float | None:
        """Return the score of one head, None if it is already pruned."""
        return self.rows[head.component][head.layer][head.index]

    def pruning_order(self, components: Iterable[str] = HEADS) -> list[Part]:
        """List the ranked heads of these components, the first to be pruned first.

        Ascending score; of equal scores the highest index goes first, so that keeping K heads keeps the lowest ones.
        """
        wanted = set(components)
        heads = [h for h in reversed(all_heads(self.shape)) if h.component in wanted and self[h] is not None]
        return sorted(heads, key=self.__getitem__)

    def to_dict(self) -> dict[str, Any]:
        """Return the score file's content."""
        known = asdict(self)
        value = {"format": FORMAT, "scores": known.pop("rows"), **known}
        return {key: part for key, part in value.items() if part is not None or key not in _OPTIONAL}

    @classmethod
    def from_dict(cls, value: Any, name: str = "scores") -> "Scores":
        """Read a score file's content.

        Raises:
            ValueError, KeyError: it is no score file, of another version, or holds wrong entries.
        """
        check_format(value, FORMAT, "score", "a score file", name)
        known = {key: value[key] for key in cls.__dataclass_fields__ if key in value}
        if not isinstance(value.get("scores"), dict):
            raise ValueError(f'{name}: the file has no "scores"')
        for key in ("data", "checkpoint", "details", "environment"):
            if not isinstance(known.get(key, {}), dict):
                raise ValueError(f'{name}: "{key}" must be an object, found {known[key]!r}')
        try:
            return cls(value["scores"], **{"estimator": "unknown", **known})
        except (ValueError, KeyError) as error:
            raise type(error)(f"{name}: {error.args[0]}") from error

    def save(self, path: PathLike) -> None:
        """Write the score file, atomically."""
        write_json(path, self.to_dict())

    @classmethod
    def load(cls, path: PathLike) -> "Scores":
        """Read a score file.

        Raises:
            FileNotFoundError, ValueError, KeyError: as for :meth:`from_dict`.
        """
        return cls.from_dict(read_json(path), str(path))


def _check_ffn(ffn: Any) -> None:
    if ffn is None:
        return
    if (
        not isinstance(ffn, dict)
        or not set(ffn) <= {"enc", "dec"}
        or not all(isinstance(x, list) for x in ffn.values())
    ):
        raise ValueError(
            'the "ffn" scores are {"enc": […], "dec": […]}: a number a layer, or one list a layer for units'
        )
    flat = [v for rows in ffn.values() for row in rows for v in (row if isinstance(row, list) else [row])]
    for value in flat:
        if value is not None and not (isinstance(value, (int, float)) and math.isfinite(value)):
            raise ValueError(f"a feed-forward score is {value!r}, not a finite number")
