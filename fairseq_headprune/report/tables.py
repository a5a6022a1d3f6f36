"""A small table type for all results, rendered as text, Markdown, LaTeX or CSV; and head tables as in the papers."""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fairseq_headprune.report.columns import TextColumn, layout

#: The forms in which a table can be rendered.
FORMS = ("text", "markdown", "latex", "csv")

#: Prefix of lines outside a table.
COMMENTS = {"latex": "% ", "csv": "# "}

#: Significance marks of a cell, as shown in text and Markdown.
MARKS = {"": "", "raw": "*", "holm": "**"}

_NUMBER = re.compile(r"[-+]?\d[\d.,]*%?")

_LATEX = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}", **{c: "\\" + c for c in "&%$#_{}"},
}  # fmt: skip
_LATEX_MARKS = {"": "{}", "raw": r"\underline{{{}}}", "holm": r"\underline{{\textbf{{{}}}}}"}


@dataclass(frozen=True)
class Marked:
    """A statistically significant cell: ``raw`` before Holm's correction only, ``holm`` also after it.

    Text and Markdown append ``*`` and ``**``; LaTeX underlines both as in Michel et al. (2019), Tables 1 and 2, and
    sets ``holm`` in bold as well.
    """

    text: str
    mark: str = "raw"

    def __post_init__(self) -> None:
        if self.mark not in MARKS:
            raise ValueError(f"unknown mark {self.mark!r}; marks are {', '.join(map(repr, MARKS))}")

    def __str__(self) -> str:
        return self.text


def mark_of(p: float | None, p_holm: float | None, alpha: float) -> str:
    """Return the mark of a comparison: ``holm`` if p_holm < alpha, ``raw`` if only p < alpha, else an empty string.

    Without a test (p is None) there is none.
    """
    if p is None or p_holm is None:
        return ""
    return "holm" if p_holm < alpha else "raw" if p < alpha else ""


def fixed(value: float | None, digits: int = 2) -> str | None:
    """Return a number with so many decimals, or None, which tables show as ``-``."""
    return None if value is None else f"{value:.{digits}f}"


def mean_and_sd(mean: float, sd: float | None, digits: int = 2) -> str:
    """Return a mean and its standard deviation as text; without the latter if there is none, as of one value."""
    return f"{mean:.{digits}f}" + ("" if sd is None else f" ± {sd:.{digits}f}")


@dataclass(frozen=True)
class Table:
    """A header and rows of cells.

    Attributes:
        header: the title of each column.
        rows: lists of cells; a cell is a string, an int or :class:`Marked`, and ``None`` is shown as ``-``.
        align: one letter per column, ``l``, ``c`` or ``r`` (default: right, a first column that holds not only numbers
            left).
        caption: text above the table.
        notes: lines below the table.

    Raises:
        ValueError: a row or the alignment does not have one entry per column of the header.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[Any]]
    align: str = ""
    caption: str = ""
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        columns = len(self.header)
        if not self.align:
            first = {_plain(row[0]) for row in self.rows if row}
            labels = "r" if first and all(map(_NUMBER.fullmatch, first)) else "l"
            object.__setattr__(self, "align", (labels + "r" * columns)[:columns])
        if len(self.align) != columns or set(self.align) - set("lcr"):
            raise ValueError(f"alignment {self.align!r} does not fit: one of l, c, r for each of {columns} columns")
        for number, row in enumerate(self.rows, 1):
            if len(row) != columns:
                raise ValueError(f"row {number} has {len(row)} cells, the header has {columns}")

    def render(self, form: str = "text") -> str:
        """Return the table as ``text``, ``markdown``, ``latex`` or ``csv``, without a newline at the end.

        Raises:
            ValueError: unknown form.
        """
        if form not in FORMS:
            raise ValueError(f"unknown table form {form!r}; forms are {', '.join(FORMS)}")
        return {"text": self._text, "markdown": self._markdown, "latex": self._latex, "csv": self._csv}[form]()

    def _text(self) -> str:
        columns = zip(self.header, *self.rows, strict=True)
        return "\n".join(layout([_column(cells, align) for cells, align in zip(columns, self.align, strict=True)]))

    def _markdown(self) -> str:
        rules = {"l": ":--", "c": ":-:", "r": "--:"}
        lines = [self.header, [rules[a] for a in self.align], *self.rows]
        body = [[_markdown_cell(cell) if i != 1 else cell for cell in line] for i, line in enumerate(lines)]
        return "\n".join(f"| {' | '.join(line)} |" for line in body)

    def _latex(self) -> str:
        r"""LaTeX that needs ``\usepackage{booktabs}``."""
        lines = [" & ".join(map(_latex_cell, line)) + r" \\" for line in (self.header, *self.rows)]
        head = [rf"\begin{{tabular}}{{{self.align}}}", r"\toprule", lines[0], r"\midrule"]
        return "\n".join([*head, *lines[1:], r"\bottomrule", r"\end{tabular}"])

    def _csv(self) -> str:
        """CSV (RFC 4180); numbers have no marks, which are in a separate column if there are any."""
        columns = []
        for title, *cells in zip(self.header, *self.rows, strict=True):
            columns.append([title, *("" if cell is None else _plain(cell) for cell in cells)])
            if any(map(_mark, cells)):
                columns.append([f"{title} (mark)", *(MARKS[_mark(cell)] for cell in cells)])
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(zip(*columns, strict=True))
        return text.getvalue().rstrip("\n")


def paper_head_table(
    numbers: Sequence[Sequence[float | None]],
    marks: Sequence[Sequence[str]] | None = None,
    fmt: str = "+.2f",
    caption: str = "",
    first: int = 1,
) -> Table:
    """Tabulate one number per head as in Michel et al. (2019), Table 1: layers down, heads across, from ``first`` on.

    Args:
        numbers: one list per layer; layers may have different head counts. ``None`` is a pruned head (``-``).
        marks: same shape; ``"raw"`` or ``"holm"`` for a significant number, ``""`` for others.
        fmt: Python format specification of a number.
    """
    width, rows = max(map(len, numbers), default=0), []
    for layer, values in enumerate(numbers):
        signs = marks[layer] if marks else [""] * len(values)
        cells = [None if v is None else Marked(format(v, fmt), sign) for v, sign in zip(values, signs, strict=True)]
        rows.append([str(layer + first), *cells, *[""] * (width - len(values))])
    return Table(["Layer/Head", *(str(head + first) for head in range(width))], rows, caption=caption)


def render_parts(parts: Sequence[Any], form: str) -> str:
    """Join tables and lines of text; lines become comments in LaTeX and CSV, and paragraphs in Markdown.

    An empty line separates tables in CSV; empty lines of text are kept in the form ``text`` only.
    """
    shown = []
    for part in parts:
        if not isinstance(part, str):
            shown.append(part.render(form) + ("\n" if form == "csv" else ""))
        elif form in COMMENTS:
            shown += [COMMENTS[form] + part] if part else []
        elif part or form == "text":
            shown.append(part.replace("*", "\\*") if form == "markdown" else part)
    return ("\n\n" if form == "markdown" else "\n").join(shown).rstrip("\n")


def _plain(cell: Any) -> str:
    # A cell is one line: newlines and tabs would break the table.
    return "-" if cell is None else " ".join(str(cell).split())


def _mark(cell: Any) -> str:
    return cell.mark if isinstance(cell, Marked) else ""


def _column(cells: Sequence[Any], align: str) -> TextColumn:
    return TextColumn([_plain(cell) for cell in cells], [MARKS[_mark(cell)] for cell in cells], align)


def _markdown_cell(cell: Any) -> str:
    return re.sub(r"([\\`*_|<>\[\]~])", r"\\\1", _plain(cell) + MARKS[_mark(cell)])


def _latex_cell(cell: Any) -> str:
    text = _plain(cell)
    if text == "-":
        return "--"
    # A hyphen before a number is a minus sign, which LaTeX prints only in maths mode.
    minus, rest = ("$-$", text[1:]) if re.match(r"-[\d.]", text) else ("", text)
    return _LATEX_MARKS[_mark(cell)].format(minus + "".join(_LATEX.get(c, c) for c in rest))
