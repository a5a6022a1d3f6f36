"""Tables described by their columns: what a JSON document holds is shown as titles, paths and formats say."""

from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

from fairseq_headprune.report.tables import Table

#: A row: its own values, then those of what it is in, then those of the document.
Row = ChainMap[str, Any]


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
        title: above the column.
        path: names separated by dots, looked up in the row and then in what the row is in; empty: the row itself.
            ``@NAME`` is the row's own key or number in the collection NAME.
        form: format of a number, or of each number of a spread (``median``, ``min``, ``max``); or a function of the
            value. A value that is absent or None is shown as ``-``.
        over: rows that agree in all other columns are merged, and a function gets the list of their values.
    """

    title: str
    path: str = ""
    form: str | Callable[[Any], Any] = ""
    over: bool = False

    def value(self, row: Row) -> Any:
        """Return the value in a row, or None."""
        return _at(row, self.path)

    def cell(self, row: Row) -> Any:
        """Return the cell of a row that is not merged."""
        return self.shown(self.value(row))

    def shown(self, value: Any) -> Any:
        """Return the cell of a value."""
        if value is None or callable(self.form):
            return None if value is None else self.form(value)  # type: ignore[operator]
        return spread_text(value, self.form) if isinstance(value, Mapping) else format(value, self.form)


@dataclass(frozen=True)
class Described:
    """How documents of one kind are shown together in one table; a column that is empty in all rows is left out.

    Attributes:
        columns: those with ``over`` come last.
        rows: path of the rows, a row for each entry; after ``/`` the path of a collection in it, where ``*`` is the
            entry itself; empty: one row for each document.
        across: the titles of the one column with ``over``: rows that differ in it alone stand side by side.
        titles: the order of these titles (default: as the rows come).
        only: which rows are shown.
        order: what the rows are sorted by, before any are merged.
        align: the letters of the first columns (see :class:`Table`); the others are to the right.
        note: below the table, with the documents' values in braces; or a function of all documents.
    """

    columns: Sequence[Column]
    rows: str = ""
    across: Column | None = None
    titles: Sequence[str] = ()
    only: Callable[[Row], bool] = bool
    order: Callable[[Row], Any] | None = None
    align: str = "l"
    note: str | Callable[[Mapping[str, Any]], str] = ""

    def table(self, documents: Mapping[str, Mapping[str, Any]]) -> Table:
        """Tabulate documents; their names are ``@file`` in the rows."""
        path = self.rows.split("/") if self.rows else []
        whole = [ChainMap({**value, "@file": name}) for name, value in documents.items()]
        found = [row for document in whole for row in _rows(document, path) if self.only(row)]
        header, rows = self._merged(sorted(found, key=self.order) if self.order else found)
        shown = [not rows or any(row[place] is not None for row in rows) for place in range(len(header))]
        header, rows = list(compress(header, shown)), [list(compress(row, shown)) for row in rows]
        if callable(self.note):
            note = self.note(documents)
        else:
            note = self.note.format_map(_together(documents.values()))
        align = (self.align + "r" * len(header))[: len(header)]
        return Table(header, rows, align, notes=[note] if note else [])

    def _merged(self, found: Sequence[Row]) -> tuple[list[str], list[list[Any]]]:
        keys, over = ([column for column in self.columns if column.over is merged] for merged in (False, True))
        if not over:
            return [column.title for column in keys], [[column.cell(row) for column in keys] for row in found]
        lines: dict[tuple[Any, ...], dict[str, list[Any]]] = {}
        forms: dict[str, Column] = {}
        for row in found:
            line = lines.setdefault(tuple(column.cell(row) for column in keys), {})
            for column in over:
                title = self.across.cell(row) if self.across else column.title
                forms[title] = column
                line.setdefault(title, []).append(column.value(row))
        forms = {title: forms[title] for title in [*self.titles, *forms] if title in forms}
        cells = [
            [*key, *(_of_all(forms[title], line.get(title, [])) for title in forms)] for key, line in lines.items()
        ]
        return [*(column.title for column in keys), *forms], cells


def _together(documents: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The values of several documents: of collections the last one's, of numbers and texts all that differ."""
    found: dict[str, list[Any]] = {}
    for name, value in (entry for document in documents for entry in document.items()):
        found.setdefault(name, []).append(value)
    return {
        name: values[-1] if isinstance(values[-1], (Mapping, list)) else " and ".join(dict.fromkeys(map(str, values)))
        for name, values in found.items()
    }


def spread_text(value: Mapping[str, float], form: str) -> str:
    """Return a summary of repeated measurements as ``median (min-max)``."""
    median, least, most = (format(value[name], form) for name in ("median", "min", "max"))
    return f"{median} ({least}-{most})"


def _of_all(column: Column, values: list[Any]) -> Any:
    known = [value for value in values if value is not None]
    return column.shown(None if not known else known if callable(column.form) else known[0])


def _at(row: Row, path: str) -> Any:
    found: Any = row
    for key in path.split(".") if path else []:
        if isinstance(found, list) and key.isdigit() and int(key) < len(found):
            found = found[int(key)]
        else:
            found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _rows(row: Row, path: Sequence[str]) -> Iterator[Row]:
    if not path:
        yield row
        return
    head, *rest = path
    entries = _at(row, head) or {}
    for key, entry in entries.items() if isinstance(entries, Mapping) else enumerate(entries):
        inner = entry if isinstance(entry, Mapping) else {}
        yield from _rows(row.new_child({**inner, "*": entry, f"@{head.rpartition('.')[2]}": key}), rest)
