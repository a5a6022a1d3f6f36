"""Runs commands on this machine, each in its own process, spread over the GPUs; restarts those that die.

A command that can resume reports its progress (``progress``). If it dies it is started again, until
:data:`IDLE_ATTEMPTS` attempts in a row made no progress. Several processes may share the commands of a study: each
claims a command before starting it.
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

from fairseq_headprune.jobs import processes, template
from fairseq_headprune.jobs.claims import Claims
from fairseq_headprune.jobs.processes import last_line
from fairseq_headprune.jobs.template import CAN_FORK, Forked

#: A command is given up after this many attempts in a row that died without progress.
IDLE_ATTEMPTS = 2
#: Seconds between two checks of the running processes.
LOOK = 0.1
#: Lines of a failed command's log that are shown.
_TAIL = 5


@dataclass(frozen=True)
class Command:
    """A command, its environment, and where its output goes.

    Attributes:
        after: names of what must be finished first. For :func:`run_commands` only those of its own commands count.
        cwd: working directory (default: this process's).
        settings: environment variables added to this process's.
        output: file for stdout only; by default stdout goes to ``log`` as well.
        progress: returns a value that changes whenever the command makes progress; None: the command is not restarted.
        forked: it runs a Python module that loads fairseq: start it as a fork of a process that has loaded it.
    """

    name: str
    words: Sequence[str]
    log: Path
    after: Sequence[str] = ()
    cwd: Path | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    output: Path | None = None
    progress: Callable[[], Any] | None = None
    forked: bool = False


@dataclass
class _Attempt:
    """A running command: its process and GPU, its progress at the start, and the idle attempts before it."""

    command: Command
    process: subprocess.Popen | Forked
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
    """Yield the name of each command that succeeds, in the order they finish.

    A failure does not stop the other commands, unless none has succeeded yet: then no more are started. Commands that
    still run when the caller stops iterating, or after ``limit`` seconds, are ended. Those of this package also end if
    this process is killed (see :mod:`~fairseq_headprune.jobs.processes`).

    Args:
        at_once: how many run at the same time.
        prepare: called with the command's name before each start, restarts included.
        more: asked for further commands when a slot is free and no known command can be started.

    Raises:
        RuntimeError: at the end, if some failed; the message holds the end of the first one's log.
        TimeoutError: none failed, but some were still running after ``limit`` seconds.
    """
    waiting, running = list(commands), list[_Attempt]()
    done, failed, began = set[str](), list[Command](), time.monotonic()
    try:
        while limit is None or time.monotonic() - began < limit:
            while len(running) < at_once and not (failed and not done):
                missing = {command.name for command in [*waiting, *(entry.command for entry in running), *failed]}
                command = next((command for command in waiting if missing.isdisjoint(command.after)), None)
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
            ended = [entry for entry in running if entry.process.poll() is not None]
            # Before any of them is started again, so that it goes to the GPU that is least used without them.
            running = [entry for entry in running if entry.process.returncode is None]
            for entry in ended:
                if entry.process.returncode == 0:
                    done.add(entry.command.name)
                    yield entry.command.name
                elif (idle := _idle(entry)) is not None:
                    prepare(entry.command.name)
                    running.append(_start(entry.command, running, at_once, idle))
                else:
                    failed.append(entry.command)
            if not ended:
                time.sleep(LOOK)
    finally:
        for entry in running:
            entry.process.terminate()
        for entry in running:
            entry.process.wait()
    _report(failed, [*(entry.command for entry in running), *waiting], limit)


def _idle(died: _Attempt) -> int | None:
    """Return the number of attempts in a row without progress; None if the command should not be restarted."""
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
    gpu = processes.least_used([entry.gpu for entry in running])
    threads = os.environ.get("OMP_NUM_THREADS", str(processes.threads(at_once)))
    side_by_side = str(processes.on_fullest(at_once, len(processes.visible_gpus())))
    settings = {"CUDA_VISIBLE_DEVICES": gpu, "OMP_NUM_THREADS": threads, processes.JOBS_ON_GPU: side_by_side}
    settings |= command.settings
    reached = command.progress() if command.progress else None
    command.log.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as files:
        # Append, so that the output of earlier attempts is kept.
        log = files.enter_context(open(command.log, "a" if idle or reached else "w"))
        output = files.enter_context(open(command.output, "w")) if command.output else log
        start = template.start if command.forked and CAN_FORK else processes.start
        process = start(command.words, settings, output, log, command.cwd)
    return _Attempt(command, process, gpu, reached, idle)


def _report(failed: Sequence[Command], unfinished: Sequence[Command], limit: float | None) -> None:
    if failed:
        tail = failed[0].log.read_text(errors="replace").splitlines()[-_TAIL:]
        names = ", ".join(command.name for command in failed)
        raise RuntimeError(f"{len(failed)} failed ({names}); {failed[0].log} ends: {' | '.join(tail)}")
    if unfinished:
        names = ", ".join(command.name for command in unfinished)
        raise TimeoutError(f"not done within {limit:.0f} s: {names}")


def share_commands(
    commands: Sequence[Command],
    at_once: int,
    claims: Claims,
    finished: Callable[[], Container[str]],
    prepare: Callable[[str], Any] = lambda name: None,
    limit: float | None = None,
    together: Callable[[list[str]], list[str]] = lambda free: free[:1],
) -> Iterator[str]:
    """Yield the name of each command that succeeds here, and wait for those that other processes run.

    Whenever a slot is free, the first command is started whose ``after`` is finished and that no other process runs.

    Args:
        commands: in order of preference.
        at_once, prepare, limit: see :func:`run_commands`.
        claims: the study's claims, by command name.
        finished: returns the names of all that is finished. The caller must add each yielded name to them.
        together: given the names of the commands that may start, returns those that the command of the first of them
            does as well, so that they are not started.

    Raises:
        RuntimeError, TimeoutError: see :func:`run_commands`.
    """
    left = {command.name: command for command in commands}
    deadline = None if limit is None else time.monotonic() + limit

    def more() -> list[Command]:
        done = finished()
        ready = [name for name, command in left.items() if name not in done and all(n in done for n in command.after)]
        return [left.pop(name) for name in (claims.take(ready, finished, choose=together) if ready else [])][:1]

    def rest() -> list[str]:
        done = finished()
        return [name for name in left if name not in done]

    while rest():
        yield from run_commands((), at_once, prepare, None if deadline is None else deadline - time.monotonic(), more)
        if deadline is not None and time.monotonic() > deadline and rest():
            raise TimeoutError(f"not done within {limit:.0f} s: {', '.join(rest())}")
        if rest():
            claims.pause()
