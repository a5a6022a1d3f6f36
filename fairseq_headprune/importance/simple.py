"""Scores that need no data: the size of a part's weights, and chance."""

from typing import Optional

import torch

from fairseq_headprune.choosing.chance import generator
from fairseq_headprune.importance.gradient import Values
from fairseq_headprune.importance.part_weights import weights_of
from fairseq_headprune.modules.attach import GatedParts
from fairseq_headprune.parts import COMPONENTS, FFN, HEADS


def weight_norm(gates: GatedParts, order: int = 2, ffn: Optional[str] = None) -> Values:
    """Return the L1 or L2 norm of each part's weights: rows of q, k and v (fc1), columns of ``out_proj`` (fc2).

    Args:
        ffn: ``blocks`` or ``units``: of these, too.

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
    """Return a uniform random number a part, from a generator of its own; ``ffn`` as for :func:`weight_norm`.

    The K heads with the highest scores are those that :mod:`~fairseq_headprune.choosing.random_heads` keeps with this
    seed: there the K lowest numbers of the same sequence are drawn. (1 - x is exact: ``random()`` has 53 bits.)
    """
    chance = generator(seed)
    wanted = COMPONENTS if ffn else HEADS
    shape = {c: counts for c, counts in gates.original.items() if c in wanted}
    sizes = {c: [1] * len(n) if c in FFN and ffn == "blocks" else n for c, n in shape.items()}
    return {c: [[1 - chance.random() for _ in range(n)] for n in layers] for c, layers in sizes.items()}
