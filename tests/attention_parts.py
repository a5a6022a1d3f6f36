"""What the tests of gated attention share: small modules, stock and gated, and inputs for them."""

import copy

import torch
from fairseq.modules import MultiheadAttention

from fairseq_headprune.modules.attention import attend
from fairseq_headprune.modules.multihead import GatedMultiheadAttention

B, H, T, S, D = 3, 4, 5, 6, 16
INF = float("-inf")
PAD = torch.tensor([[0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1], [1, 1, 0, 0, 0, 0]], dtype=torch.bool)
CAUSAL = torch.full((T, T), INF).triu(1)


def stock(seed=0, random_bias=True, **settings):
    """A stock module in evaluation mode, with biases that are not 0."""
    torch.manual_seed(seed)
    module = MultiheadAttention(D, H, **settings).eval()
    for name, parameter in module.named_parameters():
        if random_bias and name.endswith("bias"):
            torch.nn.init.normal_(parameter)
    return module


def gated(module):
    """A gated copy of a stock module."""
    return GatedMultiheadAttention.adopt(copy.deepcopy(module))


def inputs(*sizes, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*size, generator=generator) for size in sizes]


def close(a, b, atol=1e-5):
    return torch.allclose(a, b, atol=atol)


def split(x):
    """(time, batch, d) -> (batch, heads, time, head_dim)."""
    return x.reshape(x.size(0), x.size(1), H, D // H).permute(1, 2, 0, 3)


def contributions(module, x, pad=None):
    """Each head's part of the output, x_h W_h without the bias: (heads, time, batch, d) (Michel et al., eq. 1)."""
    q, k, v = (
        split(torch.nn.functional.linear(x, p.weight, p.bias)) for p in (module.q_proj, module.k_proj, module.v_proj)
    )
    heads = attend(q, k, v, (D // H) ** -0.5, None if pad is None else ~pad[:, None, None, :], 0.0)
    columns = module.out_proj.weight.split(D // H, dim=1)
    return torch.stack([heads[:, h].transpose(0, 1) @ columns[h].T for h in range(H)])
