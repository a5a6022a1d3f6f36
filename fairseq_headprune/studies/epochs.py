"""The epoch checkpoints of a training run: which exist, which are readable, and whether training has ended."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fairseq_headprune.files import PathLike

_NAME = re.compile(r"checkpoint([1-9]\d*)\.pt")


def _read(path: Path) -> dict[str, Any]:
    from fairseq_headprune.checkpoints import read_state  # torch: a finished study is read without it

    return read_state(path)


def parse_epochs(text: str) -> set[int]:
    """Read a list of epochs such as ``1,2,5-10``.

    Raises:
        ValueError: an item is neither an epoch (counted from 1) nor a range of epochs.
    """
    epochs: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*([1-9]\d{0,5})\s*(?:-\s*([1-9]\d{0,5})\s*)?", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last:
            raise ValueError(f"--epochs {text!r}: {part.strip()!r} is no epoch or range of epochs such as 5-10, from 1")
        epochs |= set(range(first, last + 1))
    return epochs


def epoch_list(epochs: Iterable[int]) -> str:
    """Write epochs as :func:`parse_epochs` reads them, in ascending order."""
    runs: list[list[int]] = []
    for epoch in sorted(epochs):
        if runs and epoch == runs[-1][1] + 1:
            runs[-1][1] = epoch
        else:
            runs.append([epoch, epoch])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


class EpochCheckpoints:
    """The files ``checkpointN.pt`` of a folder to which training may still write.

    Attributes:
        skipped: epoch -> why its checkpoint is currently not used.
    """

    def __init__(self, folder: PathLike, wanted: set[int] | None = None) -> None:
        """Set the folder, and the epochs of interest (default: all).

        Raises:
            FileNotFoundError: the folder does not exist.
        """
        self.folder, self.wanted = Path(folder), wanted
        if not self.folder.is_dir():
            raise FileNotFoundError(f"--checkpoints {folder}: there is no such folder")
        self.skipped: dict[int, str] = {}
        #: epoch -> the state in which its file was last read, and why it is not used
        self._seen: dict[int, tuple[tuple[int, int], str | None]] = {}

    def readable(self) -> dict[int, Path]:
        """Return epoch -> complete checkpoint at this moment; a file is read again only if it changed."""
        found: dict[int, Path] = {}
        self.skipped = {}
        for epoch, path in sorted(self._listed()):
            try:
                reason = self._fault(epoch, path)
            except FileNotFoundError:
                continue  # training removes old checkpoints
            if reason is None:
                found[epoch] = path
            else:
                self.skipped[epoch] = reason
        return found

    def reject(self, epoch: int, reason: str) -> None:
        """Ignore a checkpoint until its file changes."""
        path = self.folder / f"checkpoint{epoch}.pt"
        if path.exists():
            self._seen[epoch] = (self._state_of(path), reason)
            self.skipped[epoch] = reason

    def refused(self) -> dict[int, tuple[int, int]]:
        """Return the epochs refused at the last check, each with the state of its file."""
        return {epoch: self._seen[epoch][0] for epoch in self.skipped}

    def missing(self, found: Iterable[int]) -> list[int]:
        """Return the epochs without a checkpoint, among the wanted ones or those up to the last one found."""
        found = set(found) | set(self.skipped)
        wanted = self.wanted if self.wanted is not None else range(1, max(found, default=0) + 1)
        return sorted(set(wanted) - found)

    def training_ended(self) -> bool:
        """Whether ``checkpoint_last.pt`` says that training reached its ``--max-epoch`` or ``--max-update``."""
        try:
            state = _read(self.folder / "checkpoint_last.pt")
        except (ValueError, OSError):
            return False  # missing, or being written
        return _ended(state)

    def _listed(self) -> Iterable[tuple[int, Path]]:
        for path in self.folder.iterdir():
            match = _NAME.fullmatch(path.name)
            if match and (self.wanted is None or int(match[1]) in self.wanted):
                yield int(match[1]), path

    def _fault(self, epoch: int, path: Path) -> str | None:
        """Return why a checkpoint cannot be used; None if it can."""
        state = self._state_of(path)
        if epoch not in self._seen or self._seen[epoch][0] != state:
            try:
                _read(path)
                self._seen[epoch] = (state, None)
            except FileNotFoundError:
                raise
            except (ValueError, OSError) as error:
                self._seen[epoch] = (state, str(error))
        return self._seen[epoch][1]

    @staticmethod
    def _state_of(path: Path) -> tuple[int, int]:
        stat = path.stat()
        return stat.st_mtime_ns, stat.st_size


def _ended(state: dict[str, Any]) -> bool:
    from fairseq_headprune.checkpoints import updates_of

    cfg = state.get("cfg") or {}
    limits = cfg.get("optimization") or {}
    position = (state.get("extra_state") or {}).get("train_iterator") or {}
    updates = updates_of(state) or 0
    max_update, max_epoch = limits.get("max_update") or 0, limits.get("max_epoch") or 0
    # A checkpoint saved at the end of an epoch holds the iterator of the next one.
    whole = position.get("epoch", 1) - 1
    return 0 < max_update <= updates or 0 < max_epoch <= whole
