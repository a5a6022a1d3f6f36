"""Which heads of a model are kept and which are pruned."""

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from fairseq_headprune.files import PathLike, check_format, read_json, write_json
from fairseq_headprune.parts.components import HEADS, Part, Shape, all_heads, check_component

FORMAT = "headprune.mask/1"


class Mask:
    """Which heads of a model are kept (1) and which are pruned (0), by original index.

    Attributes:
        heads: component -> one list a layer -> one 0/1 a head. Layers may have different head counts.
        ffn: optional ``{"enc": […], "dec": […]}``: 0/1 a layer, or one list a layer for units; sides that are
            absent keep everything.
        source: where the mask comes from (free JSON).
    """

    def __init__(
        self, heads: Mapping[str, list[list[int]]], source: dict | None = None, ffn: dict | None = None
    ) -> None:
        """Check and copy the entries.

        Raises:
            KeyError: an unknown component.
            ValueError: an entry that is neither 0 nor 1, or a part of the wrong form.
        """
        self.rows = {
            check_component(c): [_row(c, i, row) for i, row in enumerate(_list(c, rows))] for c, rows in heads.items()
        }
        self.rows = {c: self.rows[c] for c in HEADS if c in self.rows}
        self.source = dict(source or {})
        self.ffn = _check_ffn(ffn)

    @classmethod
    def full(cls, shape: Mapping[str, list[int]], source: dict | None = None) -> "Mask":
        """Return the mask that keeps every head of a model of this shape."""
        return cls({c: [[1] * n for n in layers] for c, layers in shape.items()}, source)

    @classmethod
    def keeping(cls, shape: Mapping[str, list[int]], heads: Iterable[Part], source: dict | None = None) -> "Mask":
        """Return the mask that keeps just these heads of a model of this shape.

        Raises:
            ValueError: a head that the model does not have.
        """
        kept = set(heads)
        mask = cls.full(shape, source)
        mask._check_present(kept)
        return mask.without(head for head in all_heads(shape) if head not in kept)

    @property
    def shape(self) -> Shape:
        """Number of heads of each layer, by component."""
        return {c: [len(row) for row in rows] for c, rows in self.rows.items()}

    def without(self, heads: Iterable[Part]) -> "Mask":
        """Return a copy in which these heads are pruned too; pruning a head twice changes nothing.

        Raises:
            ValueError: a head that the model does not have.
        """
        heads = list(heads)
        self._check_present(heads)
        result = copy.deepcopy(self)
        for component, layer, head in heads:
            result.rows[component][layer][head] = 0
        return result

    def kept(self, components: Iterable[str] = HEADS) -> list[Part]:
        """List the kept heads of these components, in the fixed order."""
        return self._where(1, components)

    def dropped(self, components: Iterable[str] = HEADS) -> list[Part]:
        """List the pruned heads of these components, in the fixed order."""
        return self._where(0, components)

    def counts(self) -> dict[str, dict[str, int]]:
        """Return ``{component: {"kept": n, "total": n}}``."""
        return {c: {"kept": sum(map(sum, rows)), "total": sum(map(len, rows))} for c, rows in self.rows.items()}

    def check_shape(self, shape: Mapping[str, list[int]], model: str = "the model") -> None:
        """Make sure that the mask fits a model.

        Raises:
            ValueError: components, layer counts or head counts differ; the message says where.
        """
        for component in HEADS:
            mine, theirs = self.shape.get(component, []), list(shape.get(component, []))
            if mine == theirs:
                continue
            if len(mine) != len(theirs):
                raise ValueError(
                    f"the mask has {len(mine)} layers of {component}, {model} has {len(theirs)}; "
                    "make a mask for it with: headprune mask --like CKPT"
                )
            layer = next(i for i, (a, b) in enumerate(zip(mine, theirs, strict=True)) if a != b)
            raise ValueError(
                f"the mask has {mine[layer]} heads in {component} layer {layer}, {model} has {theirs[layer]}; "
                "make a mask for it with: headprune mask --like CKPT"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the mask file's content (plain dicts, lists, ints and strings)."""
        result: dict[str, Any] = {"format": FORMAT, "heads": copy.deepcopy(self.rows)}
        if self.ffn is not None:
            result["ffn"] = copy.deepcopy(self.ffn)
        result["source"] = copy.deepcopy(self.source)
        return result

    @classmethod
    def from_dict(cls, value: Any, name: str = "mask") -> "Mask":
        """Read a mask file's content.

        Raises:
            ValueError: it is no mask, or of another format version.
            KeyError: an unknown component.
        """
        check_format(value, FORMAT, "mask", "a mask file", name)
        if not isinstance(value.get("heads"), Mapping) or not value["heads"]:
            raise ValueError(f'{name}: the mask has no "heads"')
        if not isinstance(value.get("source", {}), Mapping):
            raise ValueError(f'{name}: "source" must be an object, found {value["source"]!r}')
        try:
            return cls(value["heads"], value.get("source"), value.get("ffn"))
        except (ValueError, KeyError) as error:
            raise type(error)(f"{name}: {error.args[0]}") from error

    def save(self, path: PathLike) -> None:
        """Write the mask file, atomically."""
        write_json(path, self.to_dict())

    @classmethod
    def load(cls, path: PathLike) -> "Mask":
        """Read a mask file.

        Raises:
            FileNotFoundError, ValueError, KeyError: as for :meth:`from_dict`.
        """
        return cls.from_dict(read_json(path), str(path))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mask) and (self.rows, self.ffn) == (other.rows, other.ffn)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        counts = ", ".join(f"{c} {n['kept']}/{n['total']}" for c, n in self.counts().items())
        return f"Mask({counts})"

    def _where(self, value: int, components: Iterable[str]) -> list[Part]:
        wanted = {check_component(c) for c in components}
        heads = all_heads(self.shape)
        return [h for h in heads if h.component in wanted and self.rows[h.component][h.layer][h.index] == value]

    def _check_present(self, heads: Iterable[Part]) -> None:
        for component, layer, head in heads:
            rows = self.rows.get(check_component(component), [])
            if not 0 <= layer < len(rows):
                raise ValueError(
                    f"{component} has {len(rows)} layers (0 to {len(rows) - 1}); there is no layer {layer}"
                )
            if not 0 <= head < len(rows[layer]):
                count = len(rows[layer])
                raise ValueError(
                    f"{component} layer {layer} has {count} heads (0 to {count - 1}); there is no head {head}"
                )


def _list(where: str, value: Any) -> list:
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"{where}: expected a list, found {type(value).__name__}")
    return list(value)


def _row(component: str, layer: int, row: Any) -> list[int]:
    where = f"{component} layer {layer}"
    for head, entry in enumerate(_list(where, row)):
        if isinstance(entry, float) or entry not in (0, 1):
            raise ValueError(f"{where} head {head}: a mask entry is 0 or 1, found {entry!r}")
    return [int(entry) for entry in row]


def _check_ffn(ffn: Mapping | None) -> dict | None:
    if ffn is None:
        return None
    if not isinstance(ffn, Mapping) or not set(ffn) <= {"enc", "dec"}:
        raise ValueError('"ffn" is {"enc": […], "dec": […]}: 0/1 a layer, or one list a layer for units')
    checked: dict[str, list] = {}
    for side, layers in ffn.items():
        rows = [
            _row(f"ffn {side}", i, x if isinstance(x, list) else [x])
            for i, x in enumerate(_list(f"ffn {side}", layers))
        ]
        checked[side] = [row if isinstance(x, list) else row[0] for row, x in zip(rows, layers, strict=True)]
    return checked
