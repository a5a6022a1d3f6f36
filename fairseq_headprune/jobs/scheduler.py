"""Runs commands on this machine, each in a process of its own, dealt out over the GPUs; what dies is started again.

A command that can go on after a stop says how far it has come (``progress``). When it dies it is started again, as long
as it gets further: it is given up after :data:`IDLE_ATTEMPTS` attempts in a row that got no further. Several processes
may share the commands of a study: each claims a command before it starts it.
"""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairseq_headprune.jobs import devices, leash
from fairseq_headprune.jobs.claims import Claims

#: Attempts in a row that get no further, after which a command that died is given up.
IDLE_ATTEMPTS = 2
#: Seconds between two looks at what runs.
LOOK = 0.1
#: Lines of a failed command's log that are shown.
_TAIL = 5


@dataclass(frozen=True)
class Command:
    """A command and the file for what it prints.

    Attributes:
        after: name of a command that must have succeeded before, where it is one of those that are run.
        cwd: the folder it runs in (default: this process's).
        settings: environment variables, beside this process's.
        output: a file for its stdout alone; else that goes to ``log``, too.
        progress: returns how far it has come; a value that differs from the one before means further. None: a command
            that is not started again.
    """

    name: str
    words: Sequence[str]
    log: Path
    after: str | None = None
    cwd: Path | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    output: Path | None = None
    progress: Callable[[], Any] | None = None


@dataclass
class _Attempt:
    """A command that runs: its process and GPU, how far it had come, and how many attempts got no further so far."""

    command: Command
    process: subprocess.Popen
    gpu: str
    reached: Any
    idle: int


def run_commands(
    commands: Sequence[Command],
    at_once: int,
    prepare: Callable[[str], None] = lambda name: None,
    limit: float | None = None,
    more: Callable[[], Sequence[Command]] = lambda: (),
) -> Iterator[str]:
    """Yield the name of each command when it has succeeded, in the order they finish.

    A command that fails does not stop the others, unless none has succeeded before: no more are started then. Commands
    still running when the caller gives up, or after ``limit`` seconds, are ended. Those of this package end with this
    process even where it is killed (see :mod:`~fairseq_headprune.jobs.leash`).

    Args:
        at_once: how many run at the same time.
        prepare: called with the name just before a command starts, for the first time or again.
        more: asked for further commands when a place is free and none of those that are known can be started.

    Raises:
        RuntimeError: at the end, if some failed; the end of the first one's log is in the message.
        TimeoutError: none failed, but some had not ended after ``limit`` seconds.
    """
    waiting, running = list(commands), list[_Attempt]()
    done, failed, began = set[str](), list[Command](), time.monotonic()
    try:
        while limit is None or time.monotonic() - began < limit:
            while len(running) < at_once and not (failed and not done):
                missing = {command.name for command in [*waiting, *(entry.command for entry in running), *failed]}
                command = next((command for command in waiting if command.after not in missing), None)
                if command is None:
                    found = more()
                    if not found:
                        break
                    waiting += found
                    continue
                waiting.remove(command)
                prepare(command.name)
                running.append(_start(command, running, at_once))
            if not running:
                break
            for entry in [entry for entry in running if entry.process.poll() is not None]:
                running.remove(entry)
                if entry.process.returncode == 0:
                    done.add(entry.command.name)
                    yield entry.command.name
                elif (idle := _idle(entry)) is not None:
                    prepare(entry.command.name)
                    running.append(_start(entry.command, running, at_once, idle))
                else:
                    failed.append(entry.command)
            time.sleep(LOOK)
    finally:
        for entry in running:
            entry.process.terminate()
        for entry in running:
            entry.process.wait()
    _report(failed, [*(entry.command for entry in running), *waiting], limit)


def _idle(died: _Attempt) -> int | None:
    """Return how many attempts in a row got no further if a command that died is to be started again, else None."""
    command = died.command
    if command.progress is None:
        return None
    idle = 0 if command.progress() != died.reached else died.idle + 1
    if idle >= IDLE_ATTEMPTS:
        return None
    said = last_line(command.log) or f"status {died.process.returncode}"
    print(f"{command.name} died ({said}); it is started again", file=sys.stderr)
    return idle


def _start(command: Command, running: Sequence[_Attempt], at_once: int, idle: int = 0) -> _Attempt:
    gpu = devices.least_used([entry.gpu for entry in running])
    threads = os.environ.get("OMP_NUM_THREADS", str(devices.threads(at_once)))
    settings = {"CUDA_VISIBLE_DEVICES": gpu, "OMP_NUM_THREADS": threads, **command.settings}
    reached = command.progress() if command.progress else None
    command.log.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as files:
        # What an attempt that died said is kept above what the next one says.
        log = files.enter_context(open(command.log, "a" if idle or reached else "w"))
        output = files.enter_context(open(command.output, "w")) if command.output else log
        process = leash.start(command.words, settings, output, log, command.cwd)
    return _Attempt(command, process, gpu, reached, idle)


def _report(failed: Sequence[Command], unfinished: Sequence[Command], limit: float | None) -> None:
    if failed:
        tail = failed[0].log.read_text(errors="replace").splitlines()[-_TAIL:]
        names = ", ".join(command.name for command in failed)
        raise RuntimeError(f"{len(failed)} failed ({names}); {failed[0].log} ends: {' | '.join(tail)}")
    if unfinished:
        names = ", ".join(command.name for command in unfinished)
        raise TimeoutError(f"not done within {limit:.0f} s: {names}")


def last_line(path: Path) -> str:
    """Return the last line of a log that is not empty, or nothing."""
    lines = path.read_text(errors="replace").split("\n") if path.exists() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def share_commands(
    commands: Sequence[Command],
    at_once: int,
    claims: Claims,
    finished: Callable[[], Container[str]],
    prepare: Callable[[str], Any] = lambda name: None,
    limit: float | None = None,
) -> Iterator[str]:
    """Yield the name of each command that has succeeded here; those that other processes run are waited for.

    Args:
        commands: in the order in which they are wanted; one that names another (``after``) waits for that.
        at_once, prepare, limit: see :func:`run_commands`.
        claims: those of the study, on the commands' names.
        finished: returns the names of the commands that are done. The caller makes sure that a name that was yielded
            becomes one of them.

    Raises:
        RuntimeError, TimeoutError: see :func:`run_commands`.
    """
    left = {command.name: command for command in commands}
    deadline = None if limit is None else time.monotonic() + limit

    def more() -> list[Command]:
        done = finished()
        ready = [name for name, command in left.items() if command.after is None or command.after in done]
        return [left.pop(name) for name in claims.take(ready, lambda: done)]

    def rest() -> list[str]:
        done = finished()
        return [name for name in left if name not in done]

    while rest():
        yield from run_commands((), at_once, prepare, None if deadline is None else deadline - time.monotonic(), more)
        if deadline is not None and time.monotonic() > deadline and rest():
            raise TimeoutError(f"not done within {limit:.0f} s: {', '.join(rest())}")
        if rest():
            claims.pause()
