"""How many single weights of each head and each block survive pruning by magnitude, and how many weights a part has."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from fairseq_headprune.checkpoints import part_modules
from fairseq_headprune.choosing.magnitude import Kept
from fairseq_headprune.parts import HEADS, Part, Shape


def by_part(matrices: Mapping[str, Tensor], shape: Shape) -> dict[Part, list[Tensor]]:
    """Return the entries of the matrices that belong to each part.

    A head has its rows of the q, k and v projections and its columns of out_proj; a block has fc1 and fc2. Biases are
    left out.

    Args:
        matrices: name in the state dict -> matrix, of weights or of a mask of weights.
        shape: numbers of heads, and 1 per block, by component and layer.
    """
    found: dict[Part, list[Tensor]] = {}
    for module in part_modules(matrices):
        if module.component not in shape:
            continue
        mine = {name.removeprefix(module.prefix): matrices[name] for name in module.names(matrices)}
        mine = {name: matrix for name, matrix in mine.items() if matrix.dim() == 2}
        if module.component not in HEADS:
            found[Part(module.component, module.layer, 0)] = [mine["fc1.weight"], mine["fc2.weight"]]
            continue
        count = shape[module.component][module.layer]
        for head in range(count):
            found[Part(module.component, module.layer, head)] = [
                matrix.chunk(count, dim=1 if name == "out_proj.weight" else 0)[head] for name, matrix in mine.items()
            ]
    return found


def shares(kept: Kept, shape: Shape) -> dict[Part, float]:
    """Return the share of each part's weights that a ticket of weights keeps."""
    return {
        part: float(sum(int(entries.sum()) for entries in mine) / sum(entries.numel() for entries in mine))
        for part, mine in by_part(kept, shape).items()
    }


def sizes(matrices: Mapping[str, Tensor], shape: Shape) -> dict[Part, int]:
    """Return the number of weights of each part."""
    return {part: sum(entries.numel() for entries in mine) for part, mine in by_part(matrices, shape).items()}


def judgements(goods: list[Kept]) -> np.ndarray:
    """Return whether each weight survived in each search, (weights, searches), for agreement."""
    return np.stack([torch.cat([kept.flatten() for kept in good.values()]).numpy() for good in goods], axis=1)
