"""The summary of a profile of a GPU."""

from types import SimpleNamespace

import gpu_profile
import pytest


def row(key, device, microseconds, marked=False):
    device = SimpleNamespace(name=device)
    return SimpleNamespace(
        key=key, device_type=device, count=2, self_device_time_total=microseconds, is_user_annotation=marked
    )


def test_kernels_are_counted_once():
    # By hand: kernels of 3, 4 and 5 s; the first two were launched by operations, the third by a graph. What the code
    # marks spans kernels, and is none.
    rows = [row("aten::bmm", "CPU", 3e6), row("aten::copy_", "CPU", 4e6), row("cudaGraphLaunch", "CPU", 0)]
    rows += [row("gemm", "CUDA", 3e6), row("copy", "CUDA", 4e6), row("fused", "CUDA", 5e6)]
    rows += [row("optimizer", "CUDA", 9e6, marked=True)]
    found = gpu_profile.of_rows(rows, most=1)
    assert found["seconds"] == pytest.approx(12) and found["replayed_seconds"] == pytest.approx(5)
    assert found["operations"] == [{"name": "aten::copy_", "calls": 2, "seconds": 4}]
