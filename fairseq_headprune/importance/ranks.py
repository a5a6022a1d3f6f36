"""Divides batches among the processes of torchrun, with the same result as a single process."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch.distributed as dist


@contextlib.contextmanager
def process_group(world_size: int) -> Iterator[None]:
    """Context manager: connect the ranks as torchrun's environment specifies; a single process needs no connection."""
    if world_size < 2:
        yield
        return
    dist.init_process_group("gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()


def own_share(batches: Sequence[Any]) -> Sequence[Any]:
    """Return this rank's batches: every n-th one of n ranks, starting at the rank's number."""
    return batches[dist.get_rank() :: dist.get_world_size()] if dist.is_initialized() else batches


def gather_in_order(parts: list[Any]) -> list[Any]:
    """Gather the results of all ranks, in the order of the batches that :func:`own_share` divided, on every rank.

    Sums over them do not depend on the number of ranks: the same numbers are added in the same order.
    """
    if not dist.is_initialized():
        return parts
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, parts)
    return [found[place % len(found)][place // len(found)] for place in range(sum(map(len, found)))]
