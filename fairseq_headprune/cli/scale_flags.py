"""The flags that run a study in several processes, and how each process uses them."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

from fairseq_headprune.cli.common import check_least
from fairseq_headprune.jobs import processes
from fairseq_headprune.jobs.processes import (
    end_with_parent,
    gpus,
    jobs_on_gpu,
    on_fullest,
    sleep_while_gpu_works,
    threads,
)
from fairseq_headprune.jobs.submitted import Submitted, check_launcher

LAUNCHERS = ("processes", "local", "slurm")


def add_scale_flags(parser: Any) -> None:
    """Add the flags to a parser."""
    group = parser.add_argument_group("scale")
    group.add_argument("--jobs", type=int, default=1, metavar="N", help="processes that share the study's cells")
    add_launcher_flags(group)
    add_dry_run_flag(group)


def add_dry_run_flag(group: Any) -> None:
    """Add ``--dry-run`` to a parser or group."""
    text = "say what will be done, with an estimate of time and memory measured here in seconds, and end"
    group.add_argument("--dry-run", action="store_true", help=text)


def add_launcher_flags(group: Any, gpus_flag: str = "--gpus") -> None:
    """Add the flags that set how processes are started to a parser or group."""
    add = group.add_argument
    add(
        "--launcher",
        choices=LAUNCHERS,
        default="processes",
        help="what starts them: processes on this machine's cores or GPUs, submitit's local executor, or Slurm jobs "
        "through submitit",
    )
    add("--partition", metavar="NAME", help="of the Slurm jobs (default: the cluster's)")
    add("--time", type=int, metavar="MINUTES", help="limit of each Slurm job (default: 60)")
    add(gpus_flag, dest="gpus", type=int, metavar="N", help="GPUs of each Slurm job (default: 0)")
    add(
        "--worker",
        action="store_true",
        help="only take cells of a study that runs elsewhere on this file system, and print no result",
    )


def rank() -> tuple[int, int]:
    """Return this process's rank and the number of ranks under torchrun; (0, 1) without it."""
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def take_place(args: Any) -> None:
    """Check the flags and set this process's role and GPU, before the model is loaded.

    Under torchrun all ranks except the first are workers (``args.worker``), each on the GPU of its local rank.
    ``args.jobs_on_gpu`` is set to the number of the study's processes on this process's GPU, as far as known.

    Raises:
        ValueError: a number out of range, incompatible flags, or an unavailable launcher.
    """
    ranks = rank()[1]
    check_least(1, args, "jobs")
    if ranks > 1 and (args.jobs > 1 or args.launcher != "processes"):
        raise ValueError(f"torchrun has started {ranks} processes already; omit --jobs and --launcher")
    check_launcher_flags(args)
    use_local_rank(args.cpu)
    args.jobs_on_gpu = _jobs_on_gpu(args)
    if ranks > 1:
        args.worker = args.worker or rank()[0] > 0
    elif args.jobs > 1 and not args.worker and not gpus(args.cpu) and "OMP_NUM_THREADS" not in os.environ:
        import torch

        torch.set_num_threads(threads(args.jobs))


def check_launcher_flags(args: Any) -> None:
    """Check the launcher flags; a worker also arranges to end with its parent (see ``jobs/processes.py``).

    Raises:
        ValueError: a Slurm flag without Slurm, a number out of range, or an unavailable launcher.
    """
    if args.launcher != "slurm":
        for flag in ("partition", "time", "gpus"):
            if getattr(args, flag) is not None:
                raise ValueError(f"--{flag} is for --launcher slurm")
    elif min(args.time if args.time is not None else 1, (args.gpus or 0) + 1) < 1:
        raise ValueError("--time must be at least 1 minute and --gpus at least 0")
    if args.worker:
        end_with_parent()
        sleep_while_gpu_works()
    elif args.launcher != "processes":
        check_launcher(args.launcher)


def _jobs_on_gpu(args: Any) -> int:
    """Number of this study's processes that share this process's GPU."""
    here = len(gpus(args.cpu))
    if rank()[1] > 1:
        return on_fullest(int(os.environ.get("LOCAL_WORLD_SIZE", 1)), here)
    if args.worker:
        return jobs_on_gpu()
    mine = on_fullest(args.jobs, here) if args.launcher == "processes" else 1
    # A study of one of several models that are searched side by side is no worker, but not alone either.
    return max(mine, jobs_on_gpu())


def use_local_rank(cpu: bool) -> None:
    """Under torchrun, use the GPU of the local rank."""
    import torch

    if rank()[1] > 1 and not cpu and torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())


@contextlib.contextmanager
def helpers(verb: str, argv: Sequence[str], args: Any, folder: Any, trains: bool = False) -> Iterator[None]:
    """Run the additional processes that the flags request for a study during the block.

    Args:
        trains: the study's cells are trainings; this process itself runs ``--jobs`` of them at a time on this machine.
    """
    command = processes.worker_command(verb, argv)
    if args.worker or (trains and args.launcher == "processes"):
        yield
    elif args.launcher == "processes":
        with processes.processes(command, args.jobs - 1, folder.path, gpus(args.cpu), threads(args.jobs)):
            yield
    else:
        options: dict[str, Any] = {"timeout_min": args.time or 60}
        if args.launcher == "slurm":
            options |= {"slurm_partition": args.partition} if args.partition else {}
            options |= {"gpus_per_node": args.gpus} if args.gpus else {}
        with Submitted(args.launcher, command, args.jobs, folder.path, folder.claims, options).helping():
            yield


def trainings_at_once(args: Any) -> int:
    """Return how many trainings this process runs at the same time: one per GPU if a launcher started it."""
    return max(1, len(gpus())) if args.worker and args.launcher != "processes" else args.jobs


def several(args: Any) -> bool:
    """Whether several processes share the study."""
    return args.worker or args.jobs > 1 or args.launcher != "processes" or rank()[1] > 1
