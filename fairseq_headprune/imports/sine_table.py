"""Marian's table of positions."""

import torch
from torch import Tensor


def halves(count: int, width: int) -> Tensor:
    """Return the table (count, width): sin(p / 10000^(2 i / width)) for i < width / 2, then the cosines."""
    place = torch.arange(count, dtype=torch.float64)[:, None]
    exponents = 2 * torch.div(torch.arange(width), 2, rounding_mode="floor").double() / width
    angles = place / torch.pow(torch.tensor(10000.0, dtype=torch.float64), exponents)
    return torch.cat([angles[:, 0::2].sin(), angles[:, 1::2].cos()], dim=1).float()
