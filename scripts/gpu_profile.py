"""What a GPU does in one call: how long it works, and which operations take most of it."""

from collections.abc import Callable, Sequence
from typing import Any

import torch


def operations_on_gpu(work: Callable[[], object]) -> dict[str, Any]:
    """Profile one call on CUDA; returns what :func:`of_rows` does."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        torch.cuda.synchronize()
        work()
        torch.cuda.synchronize()
    return of_rows(found.key_averages())


def of_rows(rows: Sequence[Any], most: int = 20) -> dict[str, Any]:
    """Sum up a profile.

    Args:
        rows: averages by key: of kernels, of the operations that launched them, whose time on the device is that of
            their kernels, and of spans that are marked in the code.

    Returns:
        ``seconds``: of all kernels; what the call takes beyond it, the device is idle. ``replayed_seconds``: of these,
        kernels that no operation launched: those of CUDA graphs. ``operations``: the ones that take most, with their
        number of calls.
    """
    rows = [row for row in rows if row.self_device_time_total > 0 and not row.is_user_annotation]
    kernels = sum(row.self_device_time_total for row in rows if row.device_type.name == "CUDA") / 1e6
    called = [(row.self_device_time_total / 1e6, row.count, row.key) for row in rows if row.device_type.name == "CPU"]
    return {
        "seconds": kernels,
        "replayed_seconds": kernels - sum(took for took, _, _ in called),
        "operations": [
            {"name": name, "calls": calls, "seconds": took} for took, calls, name in sorted(called, reverse=True)[:most]
        ],
    }
