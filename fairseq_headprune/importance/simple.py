"""Scores that need no data: the size of a head's weights, and chance."""

import torch

from fairseq_headprune.choosing.chance import generator
from fairseq_headprune.importance.gradient import Values
from fairseq_headprune.importance.head_weights import head_weights
from fairseq_headprune.modules.attach import GatedParts


def weight_norm(gates: GatedParts, order: int = 2) -> Values:
    """Return the L1 or L2 norm of each head's weights: its rows of q, k and v and its columns of ``out_proj``.

    Raises:
        ValueError: ``order`` is neither 1 nor 2.
    """
    if order not in (1, 2):
        raise ValueError(f"the norm's order is 1 or 2, not {order!r}")
    values: Values = {}
    for component, _, module in gates.items():
        norms = torch.linalg.vector_norm(head_weights(module).double(), ord=order, dim=1)
        values.setdefault(component, []).append(norms.tolist())
    return values


def random_scores(gates: GatedParts, seed: int) -> Values:
    """Return a uniform random number a head, from a generator of its own.

    The K heads with the highest scores are those that :mod:`~fairseq_headprune.choosing.random_heads` keeps with this
    seed: there the K lowest numbers of the same sequence are drawn. (1 - x is exact: ``random()`` has 53 bits.)
    """
    chance = generator(seed)
    return {c: [[1 - chance.random() for _ in range(n)] for n in layers] for c, layers in gates.shape.items()}
