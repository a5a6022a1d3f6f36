"""Dividing a study among processes: each claims cells before it computes them, and the claims of a dead one lapse.

``claims.jsonl`` lists the claims; the last one of a cell counts. While it lives, a process holds the lock of its file
``workers/NAME.lock``. The system gives that lock back when the process ends, however it ends, so that nothing depends
on clocks, or on process ids, which mean nothing on other machines.
"""

import contextlib
import fcntl
import os
import secrets
import socket
import time
import weakref
from collections.abc import Callable, Container, Iterator, Sequence
from pathlib import Path

from fairseq_headprune.json_lines import append_line, json_line, locked, read_cells

#: Seconds between two looks at what the others have finished.
PAUSE = 0.2


class Claims:
    """The claims of one process in one study folder.

    Attributes:
        watch: for a process that computes nothing itself: called whenever it waits (to see that others still work).
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._name: str | None = None
        self._number = 0
        self._dead: set[str] = set()
        self.watch: Callable[[], None] | None = None

    def take(self, ids: Sequence[str], done: Callable[[], Container[str]], size: int = 1) -> list[str]:
        """Claim the first cells, ``size`` at most, that are neither done nor claimed by a process that lives.

        Args:
            ids: cells in the order in which they are wanted.
            done: returns the finished cells.

        Returns:
            The cells that are now this process's to compute; none if there is nothing to take at the moment.

        Raises:
            OSError: the disk is full or fails.
        """
        if self.watch is not None:
            return []
        with locked(self._path / "claims.jsonl") as out:
            held = self._held()
            # The claims first: what their owner finished before it died is done by now.
            finished = done()
            pack = [name for name in ids if name not in held and name not in finished][:size]
            if pack:
                self._write(out, pack, released=False)
        return pack

    def release(self, ids: Sequence[str]) -> None:
        """Give up cells that were taken and cannot be computed here."""
        with locked(self._path / "claims.jsonl") as out:
            self._write(out, ids, released=True)

    def pause(self) -> None:
        """Wait for others to finish something."""
        time.sleep(PAUSE)
        if self.watch is not None:
            self.watch()

    def once(self, name: str, exists: Callable[[], bool], make: Callable[[], None]) -> None:
        """Have something made by one process only, and wait until it is there."""
        while not exists():
            if self.take([name], tuple) and not exists():
                make()
            elif not exists():
                self.pause()

    def _held(self) -> set[str]:
        """The cells that others hold; a cell that this process took and did not finish is free to it."""
        owners: dict[str, str | None] = {}
        for claim in read_cells(self._path / "claims.jsonl").values():
            owners |= dict.fromkeys(claim["cells"], None if claim["released"] else claim["worker"])
        live = {worker for worker in set(owners.values()) if worker and worker != self._name and self._lives(worker)}
        return {name for name, worker in owners.items() if worker in live}

    def _write(self, out: int, ids: Sequence[str], released: bool) -> None:
        self._number += 1
        worker = self._registered()
        claim = {"id": f"{worker}-{self._number}", "worker": worker, "cells": list(ids), "released": released}
        append_line(out, json_line(claim))

    def _registered(self) -> str:
        """This process's name in the folder, whose lock it holds from now on."""
        if self._name is None:
            folder = self._path / "workers"
            folder.mkdir(exist_ok=True)
            name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
            path = folder / f"{name}.lock"
            _remove_dead(folder)
            handle = _locked(path)
            weakref.finalize(self, _close, handle, path)
            self._name = name
        return self._name

    def _lives(self, worker: str) -> bool:
        if worker not in self._dead and not lock_is_held(self._path / "workers" / f"{worker}.lock"):
            self._dead.add(worker)
        return worker not in self._dead


def _locked(path: Path) -> int:
    """Make a lock file and lock it; another process may take it for a dead one's in between, and remove it."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            return handle
        os.close(handle)


def _remove_dead(folder: Path) -> None:
    """Remove the lock files of processes that were killed."""
    for path in folder.glob("*.lock"):
        with contextlib.suppress(OSError):  # held, or gone meanwhile
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared, as in lock_is_held
                os.unlink(path)
            finally:
                os.close(handle)


def lock_is_held(path: Path) -> bool:
    """Whether a living process holds this lock file."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        # Shared, so that two who look at the same time do not take each other for the owner.
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def living_workers(path: Path) -> Iterator[str]:
    """Iterate over the names of the processes that work in a study folder now."""
    for lock in sorted((path / "workers").glob("*.lock")):
        if lock_is_held(lock):
            yield lock.stem


def _close(handle: int, path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    os.close(handle)
