"""Run commands side by side, each in a process of its own, spread over the GPUs."""

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fairseq_headprune.studies.workers import LEASH, with_package

#: lines of a failed command's log that are shown
_TAIL = 5


@dataclass(frozen=True)
class Command:
    """A command and the file for what it prints.

    Attributes:
        after: name of a command that must have succeeded before, where it is one of those that are run.
        cwd: the folder it runs in (default: this process's).
        settings: environment variables, beside this process's.
        output: a file for its stdout alone; else that goes to ``log``, too.
    """

    name: str
    words: Sequence[str]
    log: Path
    after: str | None = None
    cwd: Path | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    output: Path | None = None


def run_side_by_side(
    commands: Sequence[Command], at_once: int, prepare: Callable[[str], None], limit: float | None = None
) -> Iterator[str]:
    """Yield the name of each command when it has succeeded, in the order they finish.

    A command that fails does not stop the others, unless none has succeeded before: no more are started then. Commands
    still running when the caller gives up, or after ``limit`` seconds, are ended. Those of this package, trainings with
    its plugin too, end with this process even where it is killed (see
    :func:`~fairseq_headprune.studies.workers.stay_on_leash`).

    Args:
        at_once: how many run at the same time.
        prepare: called with the name just before a command starts.

    Raises:
        RuntimeError: at the end, if some failed; the end of the first one's log is in the message.
        TimeoutError: none failed, but some had not ended after ``limit`` seconds.
    """
    waiting, failed, done = list(commands), [], set()
    known = {command.name for command in commands}
    running: list[tuple[Command, subprocess.Popen, str]] = []
    began = time.monotonic()
    try:
        while limit is None or time.monotonic() - began < limit:
            while len(running) < at_once and (command := _next(waiting, known - done)):
                waiting.remove(command)
                gpu = _least_used([place for _, _, place in running])
                prepare(command.name)
                running.append((command, _start(command, gpu, at_once), gpu))
            if not running:
                break
            for entry in [entry for entry in running if entry[1].poll() is not None]:
                running.remove(entry)
                command, process, _ = entry
                if process.returncode == 0:
                    done.add(command.name)
                    yield command.name
                else:
                    failed.append(command)
                    # Where none has succeeded yet, the next ones would fail alike.
                    waiting = waiting if done else []
            time.sleep(0.1)
    finally:
        for _, process, _ in running:
            process.terminate()
        for _, process, _ in running:
            process.wait()
    _report(failed, [*(command for command, _, _ in running), *waiting], limit)


def visible_gpus() -> list[str]:
    """Return the values of CUDA_VISIBLE_DEVICES for one GPU each; one empty value where there is none."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return given.split(",")
    import torch

    return [str(number) for number in range(torch.cuda.device_count())] or [""]


def _next(waiting: Sequence[Command], missing: set[str]) -> Command | None:
    """The first command that comes after none of those that are missing."""
    return next((command for command in waiting if command.after not in missing), None)


def _report(failed: Sequence[Command], unfinished: Sequence[Command], limit: float | None) -> None:
    if failed:
        tail = failed[0].log.read_text(errors="replace").splitlines()[-_TAIL:]
        names = ", ".join(command.name for command in failed)
        raise RuntimeError(f"{len(failed)} failed ({names}); {failed[0].log} ends: {' | '.join(tail)}")
    if unfinished:
        names = ", ".join(command.name for command in unfinished)
        raise TimeoutError(f"not done within {limit:.0f} s: {names}")


def _least_used(in_use: Sequence[str]) -> str:
    return min(visible_gpus(), key=in_use.count)


def _start(command: Command, gpu: str, at_once: int) -> subprocess.Popen:
    threads = str(max(1, (os.cpu_count() or 1) // at_once))
    environment = with_package(os.environ) | {"CUDA_VISIBLE_DEVICES": gpu, "OMP_NUM_THREADS": threads}
    command.log.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as files:
        log = files.enter_context(open(command.log, "w"))
        output = files.enter_context(open(command.output, "w")) if command.output else log
        # The pipe closes with this process, however it ends, and with it what stays on the leash.
        return subprocess.Popen(
            list(command.words), env={**environment, LEASH: "1", **command.settings}, cwd=command.cwd,
            stdin=subprocess.PIPE, stdout=output, stderr=log,
        )  # fmt: skip
