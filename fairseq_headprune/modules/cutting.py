"""Cuts parts out of the tensors of a module, using one table of where heads and feed-forward units are stored."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

#: tensors of one attention module, or of one feed-forward block, named as in the module or the layer
Tensors = dict[str, Tensor]

PROJECTIONS = ("q_proj", "k_proj", "v_proj")

#: tensor -> the dimension along which the parts of its module are stored: head_dim entries per head, one per unit
ALONG = {f"{name}.{kind}": 0 for name in (*PROJECTIONS, "fc1") for kind in ("weight", "bias")}
ALONG |= {"out_proj.weight": 1, "fc2.weight": 1, "bias_k": 2, "bias_v": 2}

#: removed when a feed-forward block is dropped as a whole, kept if the block only loses all of its units
BLOCK_BIAS = "fc2.bias"


def take(tensor: Tensor, positions: Sequence[int | None], width: int, dim: int) -> Tensor:
    """Return a new contiguous tensor with the parts at these positions along ``dim``; None gives zeros.

    Args:
        width: number of entries along ``dim`` per part.
    """
    if None not in positions and width == 1:
        index = torch.tensor(positions, dtype=torch.long, device=tensor.device)
        return tensor.index_select(dim, index).contiguous()
    size = list(tensor.shape)
    size[dim] = len(positions) * width
    result = tensor.new_zeros(size)
    for place, position in enumerate(positions):
        if position is not None:
            result.narrow(dim, place * width, width).copy_(tensor.narrow(dim, position * width, width))
    return result


def cut(tensors: Mapping[str, Tensor], positions: Sequence[int | None], width: int, whole: bool = False) -> Tensors:
    """Return the tensors of a module reduced to these parts.

    Selects rows of q, k, v and fc1 with their biases, columns of ``out_proj`` and fc2, and ``bias_k`` and ``bias_v``;
    the output's bias is unchanged. A module without parts keeps only its output layer, with no columns.

    Args:
        positions: for each part of the result, its position in ``tensors``, or None for zeros.
        width: entries per part: head_dim for a head, 1 for a unit.
        whole: drop the feed-forward block as a whole.
    """
    result: Tensors = {}
    for name, tensor in tensors.items():
        dim = ALONG.get(name)
        if dim is None:
            if not (name.endswith("_keep") or (whole and name == BLOCK_BIAS)):
                result[name] = tensor
        elif positions or dim == 1:
            result[name] = take(tensor, positions, width, dim)
    return result


def parameters_per_part(tensors: Mapping[str, Tensor], count: int) -> int:
    """Return the number of parameters per part: head_dim * (4 d + 3) for a head of width d, 2 d + 1 for a unit."""
    return sum(tensor.numel() for name, tensor in tensors.items() if name in ALONG) // count if count else 0
