"""The weights that belong to one part alone."""

from typing import Any

import torch
from torch import Tensor, nn

from fairseq_headprune.modules.attach import GatedParts
from fairseq_headprune.modules.cutting import ALONG
from fairseq_headprune.parts import FFN, Part


def part_weights(root: nn.Module, count: int, biases: bool = False) -> Tensor:
    """Return each part's rows of q, k and v (of fc1) and columns of ``out_proj`` (of fc2): (parts, weights).

    Args:
        root: the attention module, or the layer of a feed-forward block.
        count: the number of parts.
        biases: with the biases of those rows.
    """
    found = []
    for name, parameter in root.named_parameters():
        if name in ALONG and (name.endswith(".weight") or (biases and name.endswith(".bias"))):
            dim = ALONG[name]
            found.append(parameter.detach().movedim(dim, 0).unflatten(0, (count, -1)).flatten(1))
    return torch.cat(found, dim=1)


def weights_of(gates: GatedParts, component: str, layer: int, module: Any, biases: bool = False) -> Tensor:
    """Return the weights of each part of a gated module; see :func:`part_weights`."""
    if not module.indices:
        return module.output_layer.weight.new_zeros(0, 1)
    root = gates.layers[component][layer] if component in FFN else module
    return part_weights(root, len(module.indices), biases)


def heads_with_broken_weights(gates: GatedParts) -> list[Part]:
    """List the heads whose own weights or biases hold NaN or infinity."""
    bad = []
    for component, layer, module in gates.items():
        finite = weights_of(gates, component, layer, module, biases=True).isfinite().all(dim=1).tolist()
        bad += [Part(component, layer, head) for head, good in zip(module.indices, finite, strict=True) if not good]
    return bad
