"""Magnitude pruning: prunes the weights nearest to zero, globally over all matrices of a model's layers."""

import contextlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

#: name of a matrix -> bool mask of its kept weights
Kept = dict[str, Tensor]


def layer_matrices(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the weight matrices of encoder and decoder layers by name, without embeddings, output or task layers."""
    return {name: value for name, value in model.named_parameters() if ".layers." in f".{name}" and value.dim() == 2}


def without_lowest(matrices: Mapping[str, Tensor], count: int) -> Kept:
    """Return the masks of kept weights after pruning the ``count`` smallest absolute values.

    Ties are pruned in the order of the matrices and their rows.

    Raises:
        ValueError: ``count`` is negative or exceeds the number of weights.
    """
    values = torch.cat([matrix.detach().abs().flatten() for matrix in matrices.values()])
    if not 0 <= count <= len(values):
        raise ValueError(f"cannot prune {count} of {len(values)} weights")
    kept = torch.ones_like(values, dtype=torch.bool)
    if count:
        limit = values.kthvalue(count).values
        kept[values < limit] = False
        ties = (values == limit).nonzero().flatten()
        kept[ties[: count - int((~kept).sum())]] = False
    parts = kept.split([matrix.numel() for matrix in matrices.values()])
    return {name: part.view_as(matrix) for (name, matrix), part in zip(matrices.items(), parts, strict=True)}


@contextlib.contextmanager
def zeroed(matrices: Mapping[str, Tensor], kept: Mapping[str, Tensor]) -> Iterator[None]:
    """Context manager: set the pruned weights to zero."""
    before = {name: matrix.detach().clone() for name, matrix in matrices.items()}
    try:
        with torch.no_grad():
            for name, matrix in matrices.items():
                matrix.mul_(kept[name])
        yield
    finally:
        with torch.no_grad():
            for name, matrix in matrices.items():
                matrix.copy_(before[name])
