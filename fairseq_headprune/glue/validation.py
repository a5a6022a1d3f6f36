"""Predictions during fairseq's validation, collected from all ranks: its criterion returns only the loss."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Optional

import torch
from fairseq.distributed import utils as distributed
from torch import Tensor

from fairseq_headprune.bert.weights import HEAD


def predictions(logits: Tensor, is_regression: bool) -> Tensor:
    """Return class numbers, or scores, (examples,), on the CPU, from logits (examples, classes)."""
    return (logits.view(-1).float() if is_regression else logits.argmax(dim=-1)).cpu()


@contextmanager
def noted_logits(model: Any) -> Iterator[list[Tensor]]:
    """Record the logits of every forward pass: fairseq's criterion does not return them."""
    while not hasattr(model, "classification_heads") and hasattr(model, "module"):
        model = model.module
    found: list[Tensor] = []
    hook = model.classification_heads[HEAD].register_forward_hook(lambda _, __, logits: found.append(logits.detach()))
    try:
        yield found
    finally:
        hook.remove()


def of_all_ranks(predicted: Optional[tuple[Tensor, Tensor]]) -> list[tuple[Tensor, Tensor]]:
    """Return the predictions and labels of a step's batches on all ranks; every rank must call it.

    fairseq's own collectives only sum numbers, or need CUDA.
    """
    found = [predicted]
    if distributed.get_data_parallel_world_size() > 1:
        found = [None] * distributed.get_data_parallel_world_size()
        torch.distributed.all_gather_object(found, predicted, group=distributed.get_data_parallel_group())
    return [pair for pair in found if pair is not None]
