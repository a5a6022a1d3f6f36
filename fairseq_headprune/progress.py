"""Progress of long work on stderr: a bar on a terminal, and lines where there is none (nohup, Slurm)."""

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tqdm import tqdm


class Bar(tqdm):
    """A progress bar on a terminal; elsewhere a line at the start of each part.

    Args:
        what: what is being done, in a word.
        rows: what is iterated over, if anything.
        total: number of updates, if there are no rows and it is known.
        quiet: show nothing.
    """

    def __init__(
        self, what: str, unit: str, rows: Iterable[Any] | None = None, *, total: int | None = None, quiet: bool = False
    ) -> None:
        super().__init__(rows, what, total, unit=unit, leave=False, file=sys.stderr, disable=quiet or None)
        self.what, self.told_in_lines = what, bool(self.disable) and not quiet

    def part(self, text: str) -> None:
        """Say what is being done now."""
        self.set_postfix_str(text)
        self.line(text)

    def line(self, text: str) -> None:
        """Print a line where there is no bar."""
        if self.told_in_lines:
            print(f"{self.what}: {text}", file=sys.stderr, flush=True)


class Progress:
    """Counts finished cells, and says which are being computed.

    Args:
        verb: printed before each line.
        total: number of cells; None if unknown.
        quiet: show nothing.
    """

    def __init__(self, verb: str, total: int | None, quiet: bool) -> None:
        self._total, self._done, self._began = total, 0, time.monotonic()
        self._bar = Bar(verb, "cell", total=total, quiet=quiet)
        self._bar.leave = True  # it stays above the result

    def begin(self, names: Sequence[str]) -> None:
        """Say which cells are being computed."""
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        self._bar.part(f"now {names[0]}{more}")

    def cell(self, cell: Mapping[str, Any]) -> None:
        """Count one cell; without a terminal, print its id and score."""
        self._done += 1
        self._bar.update()
        seconds = time.monotonic() - self._began
        of = "" if self._total is None else f" of {self._total}"
        left = "" if self._total is None else f", about {seconds / self._done * (self._total - self._done):.0f} s left"
        score = f", {cell['score']:.2f}" if "score" in cell else ""
        self._bar.line(f"{self._done}{of}: {cell['id']}{score} ({seconds:.0f} s{left})")

    def skip(self, cells: int) -> None:
        """Count cells that were computed by other processes or earlier."""
        self._done += cells
        self._bar.update(cells)

    def close(self) -> None:
        """Close the progress bar."""
        self._bar.close()
