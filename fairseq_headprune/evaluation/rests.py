"""Rests of beam searches: the few translations of each batch that go on when most have ended, continued together.

Under bad masks some translations never end by themselves. A step of a few rows needs as many launches as one of many:
batches do not go on to the maximum length with their last rows, one batch after the other.
"""

from collections.abc import Callable, Sequence
from functools import partial

from torch import Tensor

from fairseq_headprune.evaluation.search import Search

#: A search is set aside when no more than this share of its rows is left: one bad mask of eight is not more. With a
#: larger share, rests would take much of a GPU's memory.
_FEW = 1 / 8


class Rests:
    """Runs searches until few rows are left of each, and these together.

    Attributes:
        rows: how many rows are set aside.
    """

    def __init__(self, take: Callable[[Tensor, Tensor], None]) -> None:
        """``take`` is given what searches find, see :meth:`Search.found`; a row's last translation is its best one."""
        self._take = take
        self._aside: list[Search] = []

    @property
    def rows(self) -> int:
        return sum(search.rows for search in self._aside)

    def run(self, search: Search) -> None:
        """Run a search until few of its rows are left, and set these aside.

        Raises:
            FloatingPointError: a sentence has no translation because the model's output is not finite.
        """
        self._run(search, _FEW * search.rows)

    def _run(self, search: Search, few: float) -> None:
        search.run(few=few)
        self._take(*search.found())
        if search.rows:
            search.set_aside()
            self._aside.append(search)

    def taken(self, last: bool) -> tuple[int, Callable[[Sequence[int]], None]]:
        """Return how many rows are set aside, of which nothing is known here any more, and what goes on with them.

        That is given the numbers of some of these rows, ascending, and may be called again with the same ones. When few
        of them are left they are set aside again; with ``last``, they go on to their end.
        """
        rows, aside = self.rows, sorted(self._aside, key=lambda search: search.step)
        self._aside = []
        return rows, partial(self._go_on, aside, last)

    def _go_on(self, aside: Sequence[Search], last: bool, rows: Sequence[int]) -> None:
        """Join the rows in the order of their steps, and run them."""
        joined, start = None, 0
        for search in aside:
            places = [row - start for row in rows if start <= row < start + search.rows]
            start += search.rows
            if not places:
                continue
            if joined is not None:
                joined.run(until=search.step)
                if joined.rows:
                    joined.join(search.part(places))
                    continue
                self._take(*joined.found())
            # What is set aside stays as it is: memory may run out, and fewer rows be tried again.
            joined = search.part(places)
        if joined is not None:
            self._run(joined, 0 if last else _FEW * len(rows))
