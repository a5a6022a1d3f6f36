"""Processes that help with a study: each runs the same command with ``--worker`` and takes cells until none is left."""

import contextlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fairseq_headprune.studies.folder import StudyFolder

#: Set for a process whose standard input is a pipe that its parent holds: when the pipe closes, the parent is gone.
LEASH = "HEADPRUNE_LEASH"

#: Tells a worker how many processes of the study are on its GPU.
JOBS_ON_GPU = "HEADPRUNE_JOBS_ON_GPU"

#: Seconds between two looks at submitted jobs.
LOOK = 2.0

#: Seconds that submitted jobs have to end by themselves when all is done.
_GRACE = 20.0


def worker_command(verb: str, argv: Sequence[str]) -> list[str]:
    """Return the command of a worker for the study that ``headprune VERB ARGV`` runs."""
    return [sys.executable, "-m", "fairseq_headprune", verb, *map(str, argv), "--worker"]


def stay_on_leash() -> None:
    """Where this process was started on a leash, end it when the parent that holds that ends, however it does."""
    if os.environ.pop(LEASH, None):
        # The descriptor and not sys.stdin, whose lock a thread that reads would still hold when Python shuts down.
        threading.Thread(target=lambda: (os.read(0, 1), os._exit(1)), daemon=True).start()


def jobs_on_gpu(jobs: int, gpus: int) -> int:
    """Return the number of processes on the fullest GPU when they are dealt out."""
    return -(-jobs // max(1, gpus))


@contextlib.contextmanager
def processes(
    command: Sequence[str], count: int, folder: StudyFolder, devices: Sequence[str], threads: int
) -> Iterator[None]:
    """Let ``count`` processes on this machine help meanwhile; what they print goes to ``workers/N.log``.

    Args:
        devices: GPUs that are dealt out among this process, which has the first, and the workers; none for the CPU.
        threads: of each worker, on the CPU.
    """
    workers = []
    try:
        for number in range(1, count + 1):
            environment = _environment(number, devices, threads)
            environment[JOBS_ON_GPU] = str(jobs_on_gpu(count + 1, len(devices)))
            workers.append(_start(command, _log(folder, number), environment))
        yield
    finally:
        failed = [number for number, worker in enumerate(workers, 1) if worker.poll()]
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait()
        for number in failed:
            said = last_line(_log(folder, number)) or f"status {workers[number - 1].returncode}"
            print(f"worker {number} ended early ({said}); the others did its cells", file=sys.stderr)


def _log(folder: StudyFolder, number: int) -> Path:
    path = folder.path / "workers" / f"{number}.log"
    path.parent.mkdir(exist_ok=True)
    return path


def _start(command: Sequence[str], log: Path, environment: dict[str, str]) -> subprocess.Popen:
    with open(log, "wb") as out:
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=out, env=environment)


def _environment(number: int, devices: Sequence[str], threads: int) -> dict[str, str]:
    environment = with_package(os.environ) | {LEASH: "1"}
    if devices:
        environment["CUDA_VISIBLE_DEVICES"] = devices[number % len(devices)]
    else:
        environment.setdefault("OMP_NUM_THREADS", str(threads))
    return environment


def with_package(environment: Any) -> dict[str, str]:
    """Return an environment in which ``python -m fairseq_headprune`` finds this very package."""
    root = str(Path(__file__).resolve().parents[2])
    others = environment.get("PYTHONPATH")
    return {**environment, "PYTHONPATH": f"{root}{os.pathsep}{others}" if others else root}


def last_line(path: Path) -> str:
    """Return the last line of a log that is not empty, or nothing."""
    lines = path.read_text(errors="replace").split("\n") if path.exists() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


class Submitted:
    """Workers that submitit starts: jobs of a Slurm cluster, or its local executor's processes.

    Args:
        launcher: ``slurm`` or ``local``.
        options: submitit's parameters (``slurm_partition``, ``timeout_min``, ``gpus_per_node``).
    """

    def __init__(
        self, launcher: str, command: Sequence[str], count: int, folder: StudyFolder, options: dict[str, Any]
    ) -> None:
        import submitit

        self._launcher, self._count, self._folder = launcher, count, folder
        self._executor = submitit.AutoExecutor(folder.path / "workers" / launcher, cluster=launcher)
        self._executor.update_parameters(name="headprune", **options)
        environment = {"PYTHONPATH": with_package(os.environ)["PYTHONPATH"]}
        # env is a program: what the job's own environment says (its GPUs) is kept.
        whole = ["env", *(f"{name}={value}" for name, value in environment.items()), *command]
        self._work = submitit.helpers.CommandFunction(whole, cwd=os.getcwd())
        self._jobs: list[Any] = []
        self._reached, self._looked, self._gone = -1, 0.0, False

    @contextlib.contextmanager
    def helping(self) -> Iterator[None]:
        """Submit the workers, watch over them whenever this process waits, and cancel what is left of them."""
        self._submit()
        self._folder.claims.watch = self._watch
        try:
            yield
            # With no cell left they end by themselves.
            end = time.monotonic() + _GRACE
            while self._alive() and time.monotonic() < end:
                time.sleep(LOOK / 4)
        finally:
            for job in self._alive():
                job.cancel(check=False)

    def _submit(self) -> None:
        self._reached = self._progress()
        self._jobs = [self._executor.submit(self._work) for _ in range(self._count)]
        print(f"{self._launcher} jobs {', '.join(job.job_id for job in self._jobs)}", file=sys.stderr)

    def _watch(self) -> None:
        """Submit workers again when all have ended and cells are missing; give up when they achieved nothing.

        Raises:
            RuntimeError: they ended without having finished any cell.
        """
        if time.monotonic() - self._looked < LOOK:
            return
        self._looked = time.monotonic()
        # Twice in a row: the cells that the last one finished while it ended are looked at in between.
        before, self._gone = self._gone, not self._alive()
        if not (before and self._gone):
            return
        self._gone = False
        if self._progress() == self._reached:
            logs = [path for job in self._jobs for path in (job.paths.stderr, job.paths.stdout)]
            said = next(filter(None, map(last_line, logs)), "nothing is in their logs")
            raise RuntimeError(
                f"all {self._launcher} jobs ended without finishing a cell: {said} (logs: {logs[0].parent})"
            )
        self._submit()

    def _progress(self) -> int:
        """Bytes of finished cells, those of studies within the study included."""
        return sum(path.stat().st_size for path in self._folder.path.rglob("cells.jsonl"))

    def _alive(self) -> list[Any]:
        if self._launcher == "slurm":
            # Without accounting submitit never learns that a job was killed; the queue knows.
            queue = queued([job.job_id for job in self._jobs])
            return self._jobs if queue is None else [job for job in self._jobs if job.job_id in queue]
        return [job for job in self._jobs if not job.done()]


def queued(jobs: Sequence[str]) -> set[str] | None:
    """Return those of these Slurm jobs that wait or run, None if Slurm does not answer at present."""
    command = ["squeue", "--noheader", "--format=%A", f"--jobs={','.join(jobs)}"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return None
    if found.returncode:
        return set() if "Invalid job id" in found.stderr else None
    return set(found.stdout.split())


def check_launcher(launcher: str) -> None:
    """Refuse a launcher that is not there.

    Raises:
        ValueError: submitit or Slurm is not installed, or no cluster answers; the message says what to do.
    """
    try:
        import submitit  # noqa: F401
    except ImportError as error:
        raise ValueError(
            f"--launcher {launcher} needs submitit: pip install 'fairseq_headprune[slurm]' (or use --jobs alone)"
        ) from error
    missing = [name for name in ("sbatch", "srun", "squeue") if shutil.which(name) is None]
    if launcher == "slurm" and missing:
        raise ValueError(
            f"--launcher slurm: there is no {missing[0]} on this machine; run this where jobs are submitted, or use "
            "--jobs alone"
        )
    if launcher == "slurm":
        _check_cluster()


def _check_cluster() -> None:
    try:
        asked = subprocess.run(["squeue", "--noheader"], capture_output=True, text=True, timeout=60)
        answers, why = asked.returncode == 0, (asked.stderr.strip().splitlines() or ["squeue failed"])[-1]
    except subprocess.TimeoutExpired:
        answers, why = False, "squeue has not answered for 60 seconds"
    if not answers:
        raise ValueError(
            f"--launcher slurm: no cluster answers here ({why}); run this where jobs are submitted, or use --jobs alone"
        )
