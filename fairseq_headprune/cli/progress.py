"""Progress of a study on stderr: a bar on a terminal, a line for each cell elsewhere (nohup, Slurm)."""

import sys
import time
from collections.abc import Mapping
from typing import Any

from tqdm import tqdm


class Progress:
    """Counts finished cells.

    Args:
        verb: stands before each line.
        total: number of cells; None where it is open.
        quiet: nothing is shown.
    """

    def __init__(self, verb: str, total: int | None, quiet: bool) -> None:
        self._verb, self._total, self._quiet = verb, total, quiet
        self._done, self._began = 0, time.monotonic()
        self._bar = tqdm(total=total, desc=verb, unit="cell", file=sys.stderr, disable=quiet or None)

    def cell(self, cell: Mapping[str, Any]) -> None:
        """Count one cell; its id and score are told where there is no terminal."""
        self._done += 1
        self._bar.update()
        if self._quiet or not self._bar.disable:
            return
        seconds = time.monotonic() - self._began
        of = "" if self._total is None else f" of {self._total}"
        left = "" if self._total is None else f", about {seconds / self._done * (self._total - self._done):.0f} s left"
        score = f", {cell['score']:.2f}" if "score" in cell else ""
        print(
            f"{self._verb}: {self._done}{of}: {cell['id']}{score} ({seconds:.0f} s{left})", file=sys.stderr, flush=True
        )

    def skip(self, cells: int) -> None:
        """Count cells that others did, or that were done before."""
        self._done += cells
        self._bar.update(cells)

    def close(self) -> None:
        """End the bar."""
        self._bar.close()
