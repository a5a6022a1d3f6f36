"""Several linear projections of one input as a single matrix product: fewer kernels to launch while training."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def project(x: Tensor, linears: Sequence[nn.Module]) -> Sequence[Tensor]:
    """Apply every projection to x, (…, in) -> one (…, out) each.

    Training on a GPU is bound by kernel launches, not arithmetic, there the weights are joined for one product (and
    its backward pass); elsewhere joining them costs more than it saves. Projections with hooks (quant-noise, for
    one) or of another class than ``nn.Linear`` are always called.
    """
    if not (x.is_cuda and torch.is_grad_enabled()):
        return [linear(x) for linear in linears]
    return joined(x, linears)


def joined(x: Tensor, linears: Sequence[nn.Module]) -> Sequence[Tensor]:
    """Apply the projections as one product where nothing can tell the difference, else one by one."""
    plain = all(type(m) is nn.Linear and not (m._forward_hooks or m._forward_pre_hooks) for m in linears)
    biases = [m.bias for m in linears]
    if not plain or len({bias is None for bias in biases}) > 1:
        return [linear(x) for linear in linears]
    weight = torch.cat([m.weight for m in linears])
    bias = None if biases[0] is None else torch.cat(biases)
    return F.linear(x, weight, bias).split([m.out_features for m in linears], dim=-1)
