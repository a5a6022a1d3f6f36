"""This machine's devices, dealt out among processes."""

import os
from collections.abc import Sequence


def visible_gpus() -> list[str]:
    """Return the values of CUDA_VISIBLE_DEVICES for one GPU each; one empty value where there is none."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return given.split(",")
    import torch

    return [str(number) for number in range(torch.cuda.device_count())] or [""]


def gpus(cpu: bool = False) -> list[str]:
    """Return the GPUs that this process may compute on; none with ``cpu``, or where there is none."""
    import torch

    return [] if cpu or not torch.cuda.is_available() else visible_gpus()


def least_used(in_use: Sequence[str]) -> str:
    """Return the GPU on which the fewest processes are."""
    return min(visible_gpus(), key=in_use.count)


def on_fullest(processes: int, devices: int) -> int:
    """Return the number of processes on the fullest of these devices when they are dealt out."""
    return -(-processes // max(1, devices))


def threads(processes: int) -> int:
    """Return how many threads each of so many processes has when the cores are dealt out."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // processes)
