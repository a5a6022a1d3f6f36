"""Assigning this machine's GPUs and cores to processes."""

import os
from collections.abc import Sequence


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


def threads(processes: int) -> int:
    """Return the threads of each process when the cores are divided among this many processes."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // processes)
