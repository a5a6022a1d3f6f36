"""Dividing batches among the processes that torchrun started, so that the result is that of one process."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch.distributed as dist


@contextlib.contextmanager
def process_group(world_size: int) -> Iterator[None]:
    """Connect the ranks for a while, as torchrun's environment says; one process needs no connection."""
    if world_size < 2:
        yield
        return
    dist.init_process_group("gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()


def own_share(batches: Sequence[Any]) -> Sequence[Any]:
    """Return every n-th of these batches, for n connected ranks, from this one's on."""
    return batches[dist.get_rank() :: dist.get_world_size()] if dist.is_initialized() else batches


def in_order(parts: list[Any]) -> list[Any]:
    """Return what all ranks found, in the order of the batches that :func:`own_share` divided, on every rank.

    Sums over it do not depend on the number of ranks: they add the same numbers in the same order.
    """
    if not dist.is_initialized():
        return parts
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, parts)
    return [found[place % len(found)][place // len(found)] for place in range(sum(map(len, found)))]
