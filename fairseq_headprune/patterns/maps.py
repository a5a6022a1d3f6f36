"""Attention maps: weighted by the norms of what is attended to, and scaled to one size for the classifier."""

import torch.nn.functional as F
from torch import Tensor

#: rows and columns of a map as the classifier sees it
SIZE = 32


def value_norms(values: Tensor, output: Tensor) -> Tensor:
    """Return the norms of the vectors that each head adds for a key: ``||f(x)||`` (Kobayashi et al. 2020).

    f(x) = (x W_V + b_V) W_O of the head; times the attention weight, it is what the key contributes to the output.

    Args:
        values: (batch, heads, src, head_dim), the value vectors.
        output: (d, heads * head_dim), the weight of the output projection.

    Returns:
        (batch, heads, src).
    """
    by_head = output.view(output.size(0), values.size(1), values.size(3))
    return (values.transpose(0, 1).flatten(1, 2) @ by_head.permute(1, 2, 0)).norm(dim=-1).view(
        values.size(1), values.size(0), -1
    ).transpose(0, 1)  # fmt: skip


def canvas(maps: Tensor) -> Tensor:
    """Scale maps of one size, (n, tgt, src), to (n, 32, 32) by averaging, with maximum 1; a map of zeros stays so."""
    small = F.adaptive_avg_pool2d(maps.float()[:, None], SIZE)[:, 0]
    return small / small.amax(dim=(1, 2), keepdim=True).clamp(min=1e-12)
