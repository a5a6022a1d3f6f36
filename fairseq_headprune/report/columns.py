"""A table as text of at most ``WIDTH`` columns: wide headers and texts are folded, then columns go below each other."""

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

#: Maximum number of characters in a line.
WIDTH = 100

_GAP = "  "

#: Width up to which a cell is not folded inside a word: labels and one other column of it fit.
_WORD = (WIDTH - len(_GAP)) // 2


class _Wrapper(textwrap.TextWrapper):
    """Folds at spaces, in lists of numbers after a comma, and in paths."""

    wordsep_simple_re = re.compile(r"(\s+|(?<=[,/])(?=\S))")


@dataclass(frozen=True)
class TextColumn:
    """One column: its title and cells, the significance mark of each, and its alignment (``l``, ``c`` or ``r``).

    Marks extend to the right, so that marked and unmarked numbers line up.
    """

    texts: Sequence[str]
    marks: Sequence[str]
    align: str

    @property
    def hang(self) -> int:
        """Width of the widest mark."""
        return max(map(len, self.marks))

    @property
    def width(self) -> int:
        """Width of the column without folding."""
        return max(map(len, self.texts)) + self.hang

    @property
    def least(self) -> int:
        """Smallest width that folding gives: at spaces, and outside left-aligned columns only in the title."""
        texts = [self.texts] if self.align == "l" else [self.texts[:1]]
        words = [word for part in texts for text in part for word in _Wrapper.wordsep_simple_re.split(text)]
        whole = [] if self.align == "l" else self.texts[1:]
        return min(max(map(len, [*words, *whole]), default=0) + self.hang, _WORD)

    def folded(self, width: int) -> list[list[str]]:
        """Return the lines of each cell, all of this width."""
        place = {"l": str.ljust, "c": str.center, "r": str.rjust}[self.align]
        cells = []
        for text, mark in zip(self.texts, self.marks, strict=True):
            *first, last = _Wrapper(max(1, width - self.hang), break_on_hyphens=False).wrap(text) or [""]
            if self.align == "r":
                first, last = [line + " " * self.hang for line in first], last + mark.ljust(self.hang)
            else:
                last += mark
            cells.append([place(line, width) for line in (*first, last)])
        return cells


def layout(columns: Sequence[TextColumn]) -> list[str]:
    """Return the lines of a table, at most ``WIDTH`` wide; empty for no columns.

    Columns that do not fit beside each other, even folded, come in blocks below each other. Each block begins with the
    left-aligned columns that the table begins with, or with the first one if they take too much room.
    """
    blocks = [_block(block) for block in _blocks(columns)] if columns else []
    return [line for number, block in enumerate(blocks) for line in ([""] if number else []) + block]


def _blocks(columns: Sequence[TextColumn]) -> list[list[TextColumn]]:
    if _total(column.least for column in columns) <= WIDTH:
        return [list(columns)]
    labels = [*takewhile(lambda column: column.align == "l", columns)] or [columns[0]]
    if _total(map(_unfolded, labels)) > _WORD:
        labels = labels[:1]
    blocks = [list(labels)]
    for column in columns[len(labels) :]:
        if len(blocks[-1]) > len(labels) and _total(map(_unfolded, [*blocks[-1], column])) > WIDTH:
            blocks.append(list(labels))
        blocks[-1].append(column)
    return blocks


def _unfolded(column: TextColumn) -> int:
    return min(column.width, _WORD)


def _block(columns: Sequence[TextColumn]) -> list[str]:
    widths = [column.width for column in columns]
    while _total(widths) > WIDTH:
        spare = [i for i, column in enumerate(columns) if widths[i] > column.least]
        widths[max(spare, key=lambda i: widths[i])] -= 1
    folded = [column.folded(width) for column, width in zip(columns, widths, strict=True)]
    lines = []
    for number, row in enumerate(zip(*folded, strict=True)):
        height = max(map(len, row))
        for cell, width in zip(row, widths, strict=True):
            blank = [" " * width] * (height - len(cell))
            cell[:] = blank + cell if number == 0 else cell + blank  # titles stand at the rule
        lines += [_GAP.join(parts).rstrip() for parts in zip(*row, strict=True)]
        lines += [_GAP.join("-" * width for width in widths)] if number == 0 else []
    return lines


def _total(widths: Iterable[int]) -> int:
    every = list(widths)
    return sum(every) + len(_GAP) * (len(every) - 1)
