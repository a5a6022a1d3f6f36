"""Workers started by submitit: Slurm jobs, or processes of its local executor."""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fairseq_headprune.jobs.claims import Claims
from fairseq_headprune.jobs.processes import last_line, with_package

#: Seconds between two checks of the submitted jobs.
LOOK = 2.0
#: Seconds that submitted jobs are given to end by themselves when the study is done.
_GRACE = 20.0


class Submitted:
    """Submits the workers of a study, and resubmits them if all have ended while cells are missing.

    Args:
        launcher: ``slurm`` or ``local``.
        folder: the study's folder.
        claims: the claims of the process that waits for the workers.
        options: submitit's parameters (``slurm_partition``, ``timeout_min``, ``gpus_per_node``).
    """

    def __init__(
        self, launcher: str, command: Sequence[str], count: int, folder: Path, claims: Claims, options: dict[str, Any]
    ) -> None:
        import submitit

        self._launcher, self._count, self._folder, self._claims = launcher, count, folder, claims
        self._executor = submitit.AutoExecutor(folder / "workers" / launcher, cluster=launcher)
        self._executor.update_parameters(name="headprune", **options)
        # Set variables by the program env, so that the rest of the job's own environment (its GPUs) is kept.
        whole = ["env", f"PYTHONPATH={with_package(os.environ)['PYTHONPATH']}", *command]
        self._work = submitit.helpers.CommandFunction(whole, cwd=os.getcwd())
        self._jobs: list[Any] = []
        self._reached: Any = None
        self._looked, self._gone = 0.0, False

    @contextlib.contextmanager
    def helping(self) -> Iterator[None]:
        """Submit the workers, check them whenever this process waits, and cancel those left at the end."""
        self._submit()
        self._claims.watch = self._watch
        try:
            yield
            # Workers end by themselves when no cell is left.
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
        """Resubmit the workers if all have ended while cells are missing.

        Raises:
            RuntimeError: they ended without finishing a single cell or epoch.
        """
        if time.monotonic() - self._looked < LOOK:
            return
        self._looked = time.monotonic()
        # Two checks in a row: cells that the last worker finished just before it ended are read in between.
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

    def _progress(self) -> tuple[int, list[int]]:
        """Bytes of all lists of cells (nested studies included), and the times when trainings last saved something."""
        cells = sum(path.stat().st_size for path in self._folder.rglob("cells.jsonl"))
        kept = [path for name in ("done.json", "checkpoint_last.pt") for path in self._folder.glob(f"runs/*/{name}")]
        return cells, sorted(path.stat().st_mtime_ns for path in kept if path.exists())

    def _alive(self) -> list[Any]:
        if self._launcher == "slurm":
            # Without Slurm's accounting submitit does not notice that a job was killed, so ask the queue.
            queue = queued([job.job_id for job in self._jobs])
            return self._jobs if queue is None else [job for job in self._jobs if job.job_id in queue]
        return [job for job in self._jobs if not job.done()]


def queued(jobs: Sequence[str]) -> set[str] | None:
    """Return which of these Slurm jobs are pending or running; None if Slurm does not answer at the moment."""
    command = ["squeue", "--noheader", "--format=%A", f"--jobs={','.join(jobs)}"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return None
    if found.returncode:
        return set() if "Invalid job id" in found.stderr else None
    return set(found.stdout.split())


def check_launcher(launcher: str) -> None:
    """Check that a launcher can be used.

    Raises:
        ValueError: submitit or Slurm is not installed, or no cluster answers; the message says what to do.
    """
    try:
        import submitit  # noqa: F401
    except ImportError as error:
        raise ValueError(
            f"--launcher {launcher} needs submitit: pip install 'fairseq_headprune[slurm]' (or use --jobs alone)"
        ) from error
    if launcher == "slurm":
        here = "run this where jobs are submitted, or use --jobs alone"
        missing = [name for name in ("sbatch", "srun", "squeue") if shutil.which(name) is None]
        if missing:
            raise ValueError(f"--launcher slurm: there is no {missing[0]} on this machine; {here}")
        why = _why_no_cluster()
        if why:
            raise ValueError(f"--launcher slurm: no cluster answers here ({why}); {here}")


def _why_no_cluster() -> str | None:
    try:
        asked = subprocess.run(["squeue", "--noheader"], capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        return "squeue has not answered for 60 seconds"
    return (asked.stderr.strip().splitlines() or ["squeue failed"])[-1] if asked.returncode else None
