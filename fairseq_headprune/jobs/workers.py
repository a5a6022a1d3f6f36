"""Workers: processes that run a study's command with ``--worker`` and share its cells until none is left."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fairseq_headprune.jobs import devices, leash
from fairseq_headprune.jobs.scheduler import last_line

#: Environment variable: how many processes of the study share the worker's GPU.
JOBS_ON_GPU = "HEADPRUNE_JOBS_ON_GPU"


def worker_command(verb: str, argv: Sequence[str]) -> list[str]:
    """Return the command of a worker for the study that ``headprune VERB ARGV`` runs."""
    return [sys.executable, "-m", "fairseq_headprune", *verb.split(), *map(str, argv), "--worker"]


@contextlib.contextmanager
def processes(command: Sequence[str], count: int, folder: Path, gpus: Sequence[str], threads: int) -> Iterator[None]:
    """Run ``count`` workers for a study on this machine; each logs to ``workers/N.log``.

    Args:
        gpus: shared by this process, which uses the first, and the workers; empty for the CPU.
        threads: threads of each worker on the CPU.
    """
    workers: list[subprocess.Popen] = []
    logs = [folder / "workers" / f"{number}.log" for number in range(1, count + 1)]
    try:
        for number, log in enumerate(logs, 1):
            log.parent.mkdir(exist_ok=True)
            settings = place(number, gpus, threads, os.environ)
            settings[JOBS_ON_GPU] = str(devices.on_fullest(count + 1, len(gpus)))
            with open(log, "wb") as out:
                workers.append(leash.start(command, settings, out, out, None))
        yield
    finally:
        failed = [place for place, worker in enumerate(workers) if worker.poll()]
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait()
        for number in failed:
            said = last_line(logs[number]) or f"status {workers[number].returncode}"
            print(f"worker {number + 1} ended early ({said}); the others did its cells", file=sys.stderr)


def place(number: int, gpus: Sequence[str], threads: int, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that assign the ``number``-th worker its GPU or its number of threads."""
    if gpus:
        return {"CUDA_VISIBLE_DEVICES": gpus[number % len(gpus)]}
    return {"OMP_NUM_THREADS": environment.get("OMP_NUM_THREADS", str(threads))}
