"""The weights that belong to a single part, and scores that need no data: the norm of these weights, and random."""

from typing import Any, Optional

import torch
from torch import Tensor

from fairseq_headprune.choosing.random_heads import generator
from fairseq_headprune.importance.settings import Values
from fairseq_headprune.modules.attach import GatedParts
from fairseq_headprune.modules.cutting import ALONG
from fairseq_headprune.parts import COMPONENTS, FFN, HEADS, Part


def weights_of(gates: GatedParts, component: str, layer: int, module: Any, biases: bool = False) -> Tensor:
    """Return the rows of q, k and v (or fc1) and columns of ``out_proj`` (or fc2) of each part: (parts, weights).

    Args:
        module: the gated module of this component and layer.
        biases: include the biases of those rows.
    """
    count, found = len(module.indices), []
    if not count:
        return module.output_layer.weight.new_zeros(0, 1)
    root = gates.layers[component][layer] if component in FFN else module
    for name, parameter in root.named_parameters():
        if name in ALONG and (name.endswith(".weight") or (biases and name.endswith(".bias"))):
            dim = ALONG[name]
            found.append(parameter.detach().movedim(dim, 0).unflatten(0, (count, -1)).flatten(1))
    return torch.cat(found, dim=1)


def heads_with_broken_weights(gates: GatedParts) -> list[Part]:
    """List the heads whose own weights or biases contain NaN or infinity."""
    bad = []
    for component, layer, module in gates.items():
        finite = weights_of(gates, component, layer, module, biases=True).isfinite().all(dim=1).tolist()
        bad += [Part(component, layer, head) for head, good in zip(module.indices, finite, strict=True) if not good]
    return bad


def weight_norm(gates: GatedParts, order: int = 2, ffn: Optional[str] = None) -> Values:
    """Return the L1 or L2 norm of each part's weights: rows of q, k and v (fc1), columns of ``out_proj`` (fc2).

    Args:
        ffn: ``blocks`` or ``units``: also score these.

    Raises:
        ValueError: ``order`` is neither 1 nor 2.
    """
    if order not in (1, 2):
        raise ValueError(f"the norm's order is 1 or 2, not {order!r}")
    values: Values = {}
    for component, layer, module in gates.items(COMPONENTS if ffn else HEADS):
        weights = weights_of(gates, component, layer, module).double()
        if component in FFN and ffn == "blocks":
            weights = weights.flatten()[None]
        values.setdefault(component, []).append(torch.linalg.vector_norm(weights, ord=order, dim=1).tolist())
    return values


def random_scores(gates: GatedParts, seed: int, ffn: Optional[str] = None) -> Values:
    """Return a uniform random number per part, from a separate generator; ``ffn`` as for :func:`weight_norm`.

    The K highest-scored heads are those that :mod:`~fairseq_headprune.choosing.random_heads` keeps with this seed: they
    have the K lowest numbers of the same sequence. (1 - x is exact: ``random()`` has 53 bits.)
    """
    chance = generator(seed)
    wanted = COMPONENTS if ffn else HEADS
    shape = {c: counts for c, counts in gates.original.items() if c in wanted}
    sizes = {c: [1] * len(n) if c in FFN and ffn == "blocks" else n for c, n in shape.items()}
    return {c: [[1 - chance.random() for _ in range(n)] for n in layers] for c, layers in sizes.items()}
