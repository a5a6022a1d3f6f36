"""Dividing a study among processes: each claims cells before computing them; claims of dead processes lapse.

``claims.jsonl`` lists the claims; for each cell the last one counts. A process holds a lock on its file
``workers/NAME.lock`` while it runs. The operating system releases the lock when the process ends, even after SIGKILL,
so nothing depends on clocks or on process ids (which are meaningless on other machines).
"""

import contextlib
import fcntl
import os
import secrets
import socket
import time
import weakref
from collections.abc import Callable, Container, Sequence
from pathlib import Path
from typing import Any

from fairseq_headprune.json_lines import append_line, json_line, locked, read_cells

#: Seconds between two checks for cells that other processes finished.
PAUSE = 0.2


class Claims:
    """The claims of one process in one study folder.

    Attributes:
        watch: called whenever this process waits; a process that computes nothing uses it to check that workers live.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._name: str | None = None
        self._end: Callable[[], Any] = lambda: None
        self._number = 0
        self._dead: set[str] = set()
        self.watch: Callable[[], None] | None = None

    def take(
        self,
        ids: Sequence[str],
        done: Callable[[], Container[str]],
        size: int = 1,
        choose: Callable[[list[str]], list[str]] | None = None,
    ) -> list[str]:
        """Claim up to ``size`` cells that are neither done nor claimed by a running process, in the given order.

        Args:
            ids: cells in order of preference.
            done: returns the finished cells.
            choose: which of those that are free to take, if any is (default: the first ``size``).

        Returns:
            The cells that this process must now compute; empty if none is free at the moment.

        Raises:
            OSError: the disk is full or fails.
        """
        if self.watch is not None:
            return []
        with locked(self._path / "claims.jsonl") as out:
            held = self._held()
            # Read the claims before ``done``: what an owner finished before it died is then listed as done.
            finished = done()
            free = [name for name in ids if name not in held and name not in finished]
            pack = choose(free) if choose and free else free[:size]
            if pack:
                self._write(out, pack, released=False)
        return pack

    def release(self, ids: Sequence[str]) -> None:
        """Give up claimed cells that cannot be computed here."""
        with locked(self._path / "claims.jsonl") as out:
            self._write(out, ids, released=True)

    def close(self) -> None:
        """Let the claims lapse, as when the process ends: it may go on with the study, anew, or do something else."""
        self._end()
        self._name = None

    def pause(self) -> None:
        """Wait a moment for other processes to finish cells."""
        time.sleep(PAUSE)
        if self.watch is not None:
            self.watch()

    def once(self, name: str, exists: Callable[[], bool], make: Callable[[], None]) -> None:
        """Call ``make`` in only one of the processes; all of them wait until ``exists`` returns true."""
        while not exists():
            if self.take([name], tuple) and not exists():
                make()
            elif not exists():
                self.pause()

    def _held(self) -> set[str]:
        """The cells claimed by other running processes; this process may claim its own unfinished cells again."""
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
        """The name of this process in the folder; the first call also takes its lock."""
        if self._name is None:
            folder = self._path / "workers"
            folder.mkdir(exist_ok=True)
            name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
            path = folder / f"{name}.lock"
            _remove_dead(folder)
            handle = _locked(path)
            self._name, self._end = name, weakref.finalize(self, _close, handle, path)
        return self._name

    def _lives(self, worker: str) -> bool:
        if worker not in self._dead and not lock_is_held(self._path / "workers" / f"{worker}.lock"):
            self._dead.add(worker)
        return worker not in self._dead


def _locked(path: Path) -> int:
    """Create and lock a file; retry if another process removed it in between, taking it for a dead process's file."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            return handle
        os.close(handle)


def _remove_dead(folder: Path) -> None:
    """Remove lock files left by killed processes."""
    for path in folder.glob("*.lock"):
        with contextlib.suppress(OSError):  # still held, or already removed
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared, as in lock_is_held
                os.unlink(path)
            finally:
                os.close(handle)


def lock_is_held(path: Path) -> bool:
    """Whether a running process holds this lock file."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        # A shared lock, so that two processes checking at the same time do not take each other for the owner.
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _close(handle: int, path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    os.close(handle)
