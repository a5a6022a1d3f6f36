"""Gates folded into out_proj's columns, against gates on the heads' outputs."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from fairseq_headprune.learning.learned import LearnedGates, gate_columns
from fairseq_headprune.modules.attention import apply_gate
from fairseq_headprune.parts import Part

#: heads and width of a head, of each module
ALIKE, UNEVEN = [(4, 3), (4, 3), (4, 3)], [(4, 3), (2, 3), (3, 5)]


def outputs(modules, dtype=torch.float32):
    """Heads' outputs (batch, heads, tgt, width) and out_proj's weight of each module, and a gate a head."""
    generator = torch.Generator().manual_seed(1)
    heads = [torch.randn(2, count, 5, width, generator=generator).to(dtype) for count, width in modules]
    weights = [torch.randn(7, count * width, generator=generator).to(dtype) for count, width in modules]
    gate = torch.rand(sum(count for count, _ in modules), generator=generator)
    gate[1], gate[2] = 0.0, 1.0
    return heads, [w.requires_grad_() for w in weights], gate.requires_grad_()


def merged(heads):
    return heads.permute(2, 0, 1, 3).flatten(2)


@pytest.mark.parametrize("modules", [ALIKE, UNEVEN], ids=["alike", "uneven"])
def test_values_and_gradients_are_those_of_gates_on_the_heads(modules):
    # Source: apply_gate on each module's heads before the projection, by autograd.
    counts = [count for count, _ in modules]
    heads, weights, gate = outputs(modules)
    scaled = gate_columns(gate, weights, counts)
    found = [F.linear(merged(h), w) for h, w in zip(heads, scaled, strict=True)]
    parts = gate.split(counts)
    expected = [F.linear(merged(apply_gate(h, g, None)), w) for h, g, w in zip(heads, parts, weights, strict=True)]
    torch.testing.assert_close(found, expected)
    mine = torch.autograd.grad(sum(x.square().sum() for x in found), [gate, *weights])
    theirs = torch.autograd.grad(sum(x.square().sum() for x in expected), [gate, *weights])
    torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


def test_modules_may_be_run_backwards_one_by_one_and_weights_may_be_frozen():
    # Source: as above; activation checkpointing makes one backward pass a layer through the same scaled weights.
    heads, weights, gate = outputs(UNEVEN)
    weights[0].requires_grad_(False)
    scaled = gate_columns(gate, weights, [4, 2, 3])
    losses = [F.linear(merged(h), w).square().sum() for h, w in zip(heads, scaled, strict=True)]
    expected = torch.autograd.grad(sum(losses), [gate, *weights[1:]], retain_graph=True)
    for loss in losses:
        loss.backward(retain_graph=True)
    assert weights[0].grad is None
    torch.testing.assert_close((gate.grad, weights[1].grad, weights[2].grad), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_gates_gradient_is_summed_in_float32(dtype):
    # Source: the same in float64. In half precision each of the 2,100 terms would round, and small ones vanish.
    heads, weights, gate = outputs([(3, 100)], dtype)
    (scaled,) = gate_columns(gate, weights, [3])
    assert scaled.dtype == dtype
    upstream = torch.randn(7, 300, generator=torch.Generator().manual_seed(2)).to(dtype) * 1e-4
    scaled.backward(upstream)
    expected = (upstream.double() * weights[0].double()).view(7, 3, 100).sum((0, 2))
    assert gate.grad.dtype == torch.float32
    torch.testing.assert_close(gate.grad.double(), expected, rtol=1e-5, atol=1e-9)


def test_weights_that_a_hook_changes_are_refused():
    # As --quant-noise-pq does it: fairseq changes the weights in a hook before the projection.
    module = SimpleNamespace(indices=[0], out_proj=torch.nn.Linear(4, 4))
    module.out_proj.register_forward_pre_hook(lambda *_: None)
    gates = SimpleNamespace(items=lambda: [("enc_self", 0, module)])
    with pytest.raises(ValueError, match="enc_self layer 0: .*--quant-noise-pq"):
        LearnedGates(gates, SimpleNamespace(heads=[Part("enc_self", 0, 0)]))
