"""A table with one entry per prunable part: what masks, scores, gates and layouts have in common."""

import copy
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Generic, Self, TypeVar

from fairseq_headprune.files import PathLike, check_format, identified, read_json, write_json
from fairseq_headprune.parts.components import COMPONENTS, FFN, HEADS, Part, Shape, check_component, noun

Entry = TypeVar("Entry")

Rows = dict[str, list[list[Entry]]]


class PartTable(Generic[Entry]):
    """One entry for each part of a model, by original index.

    A row of an attention component has one entry per head. A row of a feed-forward component has one entry per unit, or
    a single entry for the whole block. (A dropped block loses its output bias too; a block without units keeps it.) A
    table may omit feed-forward components, and then says nothing about them.

    Attributes:
        rows: component -> one row per layer -> one entry per part. Layers may have different numbers of parts.
    """

    #: the name of such a file in messages, the key of its rows, that key in format /1, and the file's format
    NOUN: ClassVar[str]
    KEY: ClassVar[str]
    OLD_KEY: ClassVar[str]
    FORMAT: ClassVar[str]

    #: the entry of a part that is pruned
    DROPPED: ClassVar[Any] = 0

    #: advice in the message when a table does not fit a model
    HINT: ClassVar[str]

    #: whether attention components may be missing
    PARTIAL: ClassVar[bool] = False

    rows: Rows

    def __init__(self, rows: Mapping[str, Any], source: Mapping | None = None) -> None:
        """Check and copy the entries.

        Args:
            source: where the entries come from (free JSON).

        Raises:
            KeyError: an unknown component.
            ValueError: not one list per layer, or an invalid entry.
        """
        self.rows = self.checked(rows)
        self.source = dict(source or {})

    @classmethod
    def entry(cls, value: Any) -> Any:
        """Return an entry in the form in which it is stored.

        Raises:
            ValueError: an invalid entry; the message is appended to the name of the part.
        """
        raise NotImplementedError

    @classmethod
    def checked(cls, rows: Mapping[str, Any]) -> Rows:
        """Check and copy the rows, with components in the fixed order.

        Raises:
            KeyError: an unknown component.
            ValueError: not one list per layer, or an invalid entry.
        """
        found = {}
        for component, layers in rows.items():
            check_component(component)
            if not isinstance(layers, (list, tuple)) or not all(isinstance(row, (list, tuple)) for row in layers):
                raise ValueError(f"the {cls.KEY} of {component} are not one list a layer: {layers!r}")
            found[component] = [cls._row(component, layer, row) for layer, row in enumerate(layers)]
        return {component: found[component] for component in COMPONENTS if component in found}

    @classmethod
    def _row(cls, component: str, layer: int, row: Iterable[Any]) -> list:
        result = []
        for index, value in enumerate(row):
            try:
                result.append(cls.entry(value))
            except ValueError as error:
                raise ValueError(f"{Part(component, layer, index)}: {error}") from None
        return result

    @property
    def shape(self) -> Shape:
        """Number of entries of each layer, by component."""
        return {component: [len(row) for row in rows] for component, rows in self.rows.items()}

    def __getitem__(self, part: Part) -> Any:
        """Return the entry of one part."""
        return self.rows[part.component][part.layer][part.index]

    def kept(self, components: Iterable[str] = HEADS) -> list[Part]:
        """List the parts of these components that are not pruned, in the fixed order."""
        return self._where(components, pruned=False)

    def dropped(self, components: Iterable[str] = HEADS) -> list[Part]:
        """List the pruned parts of these components, in the fixed order."""
        return self._where(components, pruned=True)

    def _where(self, components: Iterable[str], pruned: bool) -> list[Part]:
        wanted = {check_component(component) for component in components}
        # A model has thousands of units: an object for each would have all of memory searched for garbage.
        return [
            Part(component, layer, index)
            for component, rows in self.rows.items()
            if component in wanted
            for layer, row in enumerate(rows)
            for index, value in enumerate(row)
            if (value == self.DROPPED) is pruned
        ]

    def without(self, parts: Iterable[Part]) -> Self:
        """Return a copy in which these parts are also pruned; already pruned ones stay pruned.

        Raises:
            ValueError: a part that the table does not have.
        """
        parts = list(parts)
        self.check_present(parts)
        result = copy.copy(self)
        result.rows = {component: [list(row) for row in rows] for component, rows in self.rows.items()}
        for component, layer, index in parts:
            result.rows[component][layer][index] = self.DROPPED
        return result

    def only(self, components: Iterable[str]) -> Self:
        """Return a copy restricted to these components."""
        wanted = set(components)
        result = copy.copy(self)
        result.rows = {component: rows for component, rows in self.rows.items() if component in wanted}
        return result

    def counts(self) -> dict[str, dict[str, int]]:
        """Return ``{component: {"kept": n, "total": n}}``."""
        return {
            component: {"kept": len(self.kept([component])), "total": sum(map(len, rows))}
            for component, rows in self.rows.items()
        }

    def check_present(self, parts: Iterable[Part]) -> None:
        """Check that the table has these parts.

        Raises:
            KeyError: an unknown component.
            ValueError: a layer or index out of range.
        """
        for component, layer, index in parts:
            rows = self.rows.get(check_component(component), [])
            if not 0 <= layer < len(rows):
                raise ValueError(
                    f"{component} has {len(rows)} layers (0 to {len(rows) - 1}); there is no layer {layer}"
                )
            if not 0 <= index < len(rows[layer]):
                count, name = len(rows[layer]), noun(component)
                raise ValueError(
                    f"{component} layer {layer} has {count} {name}s (0 to {count - 1}); there is no {name} {index}"
                )

    def check_shape(self, shape: Mapping[str, list[int]], model: str = "the model") -> None:
        """Check that the table fits a model of this shape.

        Raises:
            ValueError: different components, layer counts or numbers of parts; the message says where.
        """
        for component in COMPONENTS:
            if component not in self.rows and (self.PARTIAL or component in FFN):
                continue
            mine, theirs, name = self.shape.get(component, []), list(shape.get(component, [])), noun(component)
            what = "the mask" if self.NOUN == "mask" else f"the {self.NOUN} file"
            if len(mine) != len(theirs):
                raise ValueError(
                    f"{what} has {len(mine)} layers of {component}, {model} has {len(theirs)}; {self.HINT}"
                )
            for layer, (count, expected) in enumerate(zip(mine, theirs, strict=True)):
                if count != expected and not (component in FFN and 1 in (count, expected)):
                    raise ValueError(
                        f"{what} has {count} {name}s in {component} layer {layer}, {model} has {expected}; {self.HINT}"
                    )

    def to_dict(self) -> dict[str, Any]:
        """Return the file's content (plain dicts, lists, numbers and strings)."""
        return copy.deepcopy({"format": self.FORMAT, self.KEY: self.rows, **self._facts()})

    def _facts(self) -> dict[str, Any]:
        """Return what the file holds besides the rows."""
        return {"source": self.source}

    @classmethod
    def _from(cls, rows: dict[str, Any], value: Mapping[str, Any]) -> Self:
        """Build the table from a file's rows and its whole content."""
        return cls(rows, value.get("source"))

    @classmethod
    def from_dict(cls, value: Any, name: str = "") -> Self:
        """Read a file's content, in format /2 or /1.

        Raises:
            ValueError: a different kind of file, a newer format, or invalid entries.
            KeyError: an unknown component.
        """
        name = name or cls.NOUN
        if isinstance(value, Mapping) and value.get("format") == cls.FORMAT.replace("/2", "/1"):
            value = cls._upgraded(value, name)
        check_format(value, cls.FORMAT, cls.NOUN, f"a {cls.NOUN} file", name)
        if not isinstance(value.get(cls.KEY), Mapping) or not value[cls.KEY]:
            raise ValueError(f'{name}: the file has no "{cls.KEY}"')
        for key in ("source", "data", "checkpoint", "details", "environment"):
            if not isinstance(value.get(key, {}), (Mapping, type(None))):
                raise ValueError(f'{name}: "{key}" must be an object, found {value[key]!r}')
        try:
            return cls._from(value[cls.KEY], value)
        except (ValueError, KeyError) as error:
            raise type(error)(f"{name}: {error.args[0]}") from error

    @classmethod
    def _upgraded(cls, value: Mapping[str, Any], name: str) -> dict[str, Any]:
        """Convert the content of a file from format /1 to format /2."""
        rest = {key: entry for key, entry in value.items() if key not in (cls.OLD_KEY, "ffn")}
        rows, ffn = value.get(cls.OLD_KEY), value.get("ffn")
        if isinstance(rows, Mapping) and ffn is not None:
            rows = {**rows, **ffn_rows(ffn, f"{name}: ")}
        return {**rest, "format": cls.FORMAT, cls.KEY: rows}

    def save(self, path: PathLike) -> None:
        """Write the file, atomically."""
        write_json(path, self.to_dict())

    @classmethod
    def load(cls, path: PathLike) -> Self:
        """Read a file.

        Raises:
            FileNotFoundError, ValueError, KeyError: as for :meth:`from_dict`.
        """
        return cls.from_dict(read_json(path), str(path))

    @classmethod
    def given(cls, path: PathLike) -> Self:
        """Read a file that a flag names: its source becomes the file, with the source that was noted in it.

        Raises:
            FileNotFoundError, ValueError, KeyError: as for :meth:`from_dict`.
        """
        table = cls.load(path)
        table.source = identified(path) | {"source": table.source}
        return table


def ffn_rows(ffn: Any, where: str = "") -> dict[str, Any]:
    """Return the rows for an ``"ffn"`` entry of format /1: ``{"enc": …}`` with one value or one list per layer.

    Raises:
        ValueError: not in this form.
    """
    if not isinstance(ffn, Mapping) or not set(ffn) <= {"enc", "dec"} or not all(map(_is_list, ffn.values())):
        raise ValueError(f'{where}"ffn" is {{"enc": […], "dec": […]}}: a number a layer, or one list a layer for units')
    return {f"{side}_ffn": [row if _is_list(row) else [row] for row in layers] for side, layers in ffn.items()}


def _is_list(value: Any) -> bool:
    return isinstance(value, list)
