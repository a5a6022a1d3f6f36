"""The weights that belong to one head alone."""

import torch
from torch import Tensor

from fairseq_headprune.modules.attach import GatedParts
from fairseq_headprune.modules.multihead import GatedMultiheadAttention
from fairseq_headprune.parts import Part


def head_weights(module: GatedMultiheadAttention) -> Tensor:
    """Return each head's rows of q, k and v and its columns of ``out_proj``, without biases: (heads, weights)."""
    if not module.num_heads:
        return module.out_proj.weight.new_zeros(0, 1)
    rows = [p.weight.view(module.num_heads, -1) for p in (module.q_proj, module.k_proj, module.v_proj)]
    columns = module.out_proj.weight.view(-1, module.num_heads, module.head_dim).transpose(0, 1).flatten(1)
    return torch.cat([*rows, columns], dim=1).detach()


def heads_with_broken_weights(gates: GatedParts) -> list[Part]:
    """List the heads whose own weights or biases hold NaN or infinity."""
    bad = []
    for component, layer, module in gates.items():
        if not module.num_heads:
            continue
        biases = [p.bias for p in (module.q_proj, module.k_proj, module.v_proj) if p.bias is not None]
        parts = [head_weights(module), *(bias.detach().view(module.num_heads, -1) for bias in biases)]
        finite = torch.cat(parts, dim=1).isfinite().all(dim=1)
        bad += [
            Part(component, layer, head)
            for head, good in zip(module.original_heads, finite.tolist(), strict=True)
            if not good
        ]
    return bad
