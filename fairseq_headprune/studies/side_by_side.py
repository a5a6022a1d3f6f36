"""Run commands side by side, each in a process of its own, spread over the GPUs."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

#: lines of a failed command's log that are shown
_TAIL = 5


@dataclass(frozen=True)
class Command:
    """A command and the file for what it prints."""

    name: str
    words: Sequence[str]
    log: Path


def run_side_by_side(commands: Sequence[Command], at_once: int, prepare: Callable[[str], None]) -> Iterator[str]:
    """Yield the name of each command when it has succeeded, in the order they finish.

    A command that fails does not stop the others, unless none has succeeded before: no more are started then. Commands
    still running when the caller gives up are ended.

    Args:
        at_once: how many run at the same time.
        prepare: called with the name just before a command starts.

    Raises:
        RuntimeError: at the end, if some failed; the end of the first one's log is in the message.
    """
    waiting, failed, succeeded = list(commands), [], False
    running: list[tuple[Command, subprocess.Popen, str]] = []
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                command = waiting.pop(0)
                gpu = _least_used([place for _, _, place in running])
                prepare(command.name)
                running.append((command, _start(command, gpu, at_once), gpu))
            for entry in list(running):
                command, process, _ = entry
                if process.poll() is not None:
                    running.remove(entry)
                    if process.returncode:
                        failed.append(command)
                        # Where none has succeeded yet, the next ones would fail alike.
                        waiting = waiting if succeeded else []
                    else:
                        succeeded = True
                        yield command.name
            time.sleep(0.1)
    finally:
        for _, process, _ in running:
            process.terminate()
        for _, process, _ in running:
            process.wait()
    if failed:
        tail = failed[0].log.read_text(errors="replace").splitlines()[-_TAIL:]
        names = ", ".join(command.name for command in failed)
        raise RuntimeError(f"{len(failed)} failed ({names}); {failed[0].log} ends: {' | '.join(tail)}")


def visible_gpus() -> list[str]:
    """Return the values of CUDA_VISIBLE_DEVICES for one GPU each; one empty value where there is none."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return given.split(",")
    import torch

    return [str(number) for number in range(torch.cuda.device_count())] or [""]


def _least_used(in_use: Sequence[str]) -> str:
    return min(visible_gpus(), key=in_use.count)


def _start(command: Command, gpu: str, at_once: int) -> subprocess.Popen:
    import fairseq_headprune

    threads = str(max(1, (os.cpu_count() or 1) // at_once))
    root = str(Path(fairseq_headprune.__path__[0]).resolve().parent)
    paths = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu, "OMP_NUM_THREADS": threads, "PYTHONPATH": paths}
    command.log.parent.mkdir(parents=True, exist_ok=True)
    with open(command.log, "w") as log:
        return subprocess.Popen(
            list(command.words), env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
