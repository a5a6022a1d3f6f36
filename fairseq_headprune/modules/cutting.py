"""Cutting parts out of the tensors of a module, by one table of where heads and feed-forward units lie."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

#: tensors of one attention module, or of one feed-forward block, named as in the module or the layer
Tensors = dict[str, Tensor]

PROJECTIONS = ("q_proj", "k_proj", "v_proj")

#: the dimension of a tensor along which the parts of its module lie: head_dim entries a head, one a unit
ALONG = {f"{name}.{kind}": 0 for name in (*PROJECTIONS, "fc1") for kind in ("weight", "bias")}
ALONG |= {"out_proj.weight": 1, "fc2.weight": 1, "bias_k": 2, "bias_v": 2}

#: what a feed-forward block loses when it is dropped as a whole, and keeps if it only loses all of its units
BLOCK_BIAS = "fc2.bias"


def take(tensor: Tensor, positions: Sequence[int | None], width: int, dim: int) -> Tensor:
    """Return a new contiguous tensor of the parts at these positions along ``dim``; None gives zeros.

    Args:
        width: how many entries along ``dim`` belong to one part.
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
    """Return the tensors of a module that has just these parts.

    Rows of q, k, v and fc1 with their biases, columns of ``out_proj`` and fc2, ``bias_k`` and ``bias_v`` are taken; the
    output's bias stays as it is. A module without parts has an output of no columns, and nothing before it.

    Args:
        positions: for each part of the result the part (its place in ``tensors``) that it is, or None for zeros.
        width: entries of a part: head_dim of a head, 1 of a unit.
        whole: the feed-forward block is dropped as a whole.
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
    """Return how many parameters belong to one part: head_dim * (4 d + 3) to a head of width d, 2 d + 1 to a unit."""
    return sum(tensor.numel() for name, tensor in tensors.items() if name in ALONG) // count if count else 0
