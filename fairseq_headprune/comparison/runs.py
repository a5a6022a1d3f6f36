"""The folder of one training of a comparison: what a stopped one goes on from, and what is kept of a finished one."""

from pathlib import Path
from typing import Any

import torch

from fairseq_headprune.checkpoints import read_state
from fairseq_headprune.files import write_json, write_with

#: of fairseq-train: nothing is written that only a training that goes on needs
BEST_ONLY = ["--no-last-checkpoints", "--no-save-optimizer-state"]


class Run:
    """One training.

    Attributes:
        best: the checkpoint that is used: the best on the validation set, under its hard mask.
        mask: the mask it is trained under, where there is one.
        done: holds facts about the training once all is there.
    """

    def __init__(self, folder: Path) -> None:
        self.best, self.mask, self.done = (folder / name for name in ("checkpoint_best.pt", "mask.json", "done.json"))
        self._last, self._trained = folder / "checkpoint_last.pt", folder / "trained"

    @property
    def stopped(self) -> bool:
        """Whether there is a checkpoint that fairseq-train goes on from."""
        return self._last.exists()

    @property
    def trained(self) -> bool:
        """Whether fairseq-train has ended well; started again it would add an update."""
        return self._trained.exists()

    def note_trained(self) -> None:
        """Remember that fairseq-train has ended well, if it left a checkpoint that can be used."""
        if self.best.exists():
            self._trained.touch()

    def settle(self, facts: dict[str, Any]) -> None:
        """Keep the best checkpoint without optimizer state, and facts about the training; drop what it goes on from."""
        state = read_state(self.best)
        if state.pop("last_optimizer_state", None) is not None:
            write_with(self.best, lambda stream: torch.save(state, stream))
        write_json(self.done, facts)
        for path in (self._last, self._trained):
            path.unlink(missing_ok=True)
