"""Processes that this one starts on this machine: on a leash, on its GPUs and cores, and as workers of a study.

Processes on the leash end when their parent ends, even if the parent is killed (SIGKILL). The parent gives the child a
pipe as standard input and holds the other end (:func:`start`). The operating system closes the pipe when the parent
ends, and the child, which reads from it, notices. Commands of this package do this themselves
(:func:`end_with_parent`); any other command is run by ``python -m fairseq_headprune.jobs.processes COMMAND …``.

Workers run a study's command with ``--worker`` and share its cells until none is left.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

#: Environment variable that is set for a process whose standard input is the leash.
LEASH = "HEADPRUNE_LEASH"
#: Environment variable: how many processes of a study share the GPU of the process that gets it.
JOBS_ON_GPU = "HEADPRUNE_JOBS_ON_GPU"
#: CU_CTX_SCHED_BLOCKING_SYNC of CUDA's driver
_BLOCKING = 4


def start(words: Sequence[str], settings: Mapping[str, str], out: Any, log: Any, cwd: Path | None) -> subprocess.Popen:
    """Start a command on a leash; ``settings`` and the path of this package are added to its environment."""
    return subprocess.Popen(list(words), env=on_leash(settings), cwd=cwd, stdin=subprocess.PIPE, stdout=out, stderr=log)


def on_leash(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process whose standard input is the leash."""
    return with_package(os.environ) | {LEASH: "1", **settings}


def end_with_parent(end: Callable[[], Any] = lambda: os._exit(1)) -> None:
    """If this process was started on a leash, call ``end`` when its parent ends."""
    if os.environ.pop(LEASH, None):
        # Read the descriptor, not sys.stdin: the reading thread would still hold its lock when Python shuts down.
        threading.Thread(target=lambda: (os.read(0, 1), end()), daemon=True).start()


def leashed(words: Sequence[str]) -> list[str]:
    """Return a command line that runs another program on the leash."""
    return [sys.executable, "-m", __name__, *words]


def with_package(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which ``python -m fairseq_headprune`` finds this copy of the package."""
    root = str(Path(__file__).resolve().parents[2])
    others = environment.get("PYTHONPATH")
    return {**environment, "PYTHONPATH": f"{root}{os.pathsep}{others}" if others else root}


def visible_gpus() -> list[str]:
    """Return one value of CUDA_VISIBLE_DEVICES for each GPU; without a GPU, one empty string."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return given.split(",")
    import torch

    return [str(number) for number in range(torch.cuda.device_count())] or [""]


def gpus(cpu: bool = False) -> list[str]:
    """Return the GPUs that this process may use; empty with ``cpu`` or without a GPU."""
    import torch

    return [] if cpu or not torch.cuda.is_available() else visible_gpus()


def least_used(in_use: Sequence[str]) -> str:
    """Return the GPU with the fewest processes."""
    return min(visible_gpus(), key=in_use.count)


def on_fullest(processes: int, devices: int) -> int:
    """Return the largest number of processes per device when processes are spread evenly over devices."""
    return -(-processes // max(1, devices))


def jobs_on_gpu() -> int:
    """Return how many processes of the study that started this one share its GPU; 1 if no study did."""
    return int(os.environ.get(JOBS_ON_GPU, 1))


def sleep_while_gpu_works() -> None:
    """Let this process sleep, not spin, when it waits for a GPU that it shares: the others need the cores.

    Call it before CUDA is used. Without a driver, nothing happens.
    """
    if jobs_on_gpu() > 1:
        with contextlib.suppress(OSError):  # there is no driver
            driver, device = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
            driver.cuInit(0)
            if not driver.cuDeviceGet(ctypes.byref(device), 0):
                driver.cuDevicePrimaryCtxSetFlags_v2(device, _BLOCKING)


def threads(processes: int) -> int:
    """Return the threads of each process when the cores are divided among this many processes."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // processes)


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
            settings[JOBS_ON_GPU] = str(on_fullest(count + 1, len(gpus)))
            with open(log, "wb") as out:
                workers.append(start(command, settings, out, out, None))
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


def last_line(path: Path) -> str:
    """Return the last non-empty line of a log, or an empty string."""
    lines = path.read_text(errors="replace").split("\n") if path.exists() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _run(words: Sequence[str]) -> NoReturn:
    """Run a command in its own process group, which is ended when the parent ends or on SIGTERM."""
    # A command of this package would take its empty input for the leash, and end.
    others = {name: value for name, value in os.environ.items() if name != LEASH}
    child = subprocess.Popen(list(words), env=others, stdin=subprocess.DEVNULL, start_new_session=True)

    def end(*_: Any) -> None:
        os.killpg(child.pid, signal.SIGKILL)
        os._exit(1)

    signal.signal(signal.SIGTERM, end)
    end_with_parent(end)
    sys.exit(abs(child.wait()))


if __name__ == "__main__":
    _run(sys.argv[1:])
