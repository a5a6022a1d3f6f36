"""Joined projections against the projections called one by one."""

import pytest
import torch
from fairseq.modules.quant_noise import quant_noise
from torch import nn

from fairseq_headprune.modules.projection import joined, project


def linears(bias=True):
    torch.manual_seed(1)
    return [nn.Linear(6, size, bias=bias) for size in (8, 8, 4)]


@pytest.mark.parametrize("bias", [True, False])
def test_one_product_equals_one_by_one_with_its_gradients(bias):
    x, modules = torch.randn(5, 3, 6, requires_grad=True), linears(bias)
    found = []
    for outputs in (joined(x, modules), [module(x) for module in modules]):
        loss = sum((output * torch.arange(1.0, output.size(-1) + 1)).square().sum() for output in outputs)
        parameters = [p for module in modules for p in module.parameters()]
        found.append((outputs, torch.autograd.grad(loss, [x, *parameters])))
    for one, other in zip(*[(*outputs, *gradients) for outputs, gradients in found], strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_hooks_and_mixed_biases_are_not_gone_round():
    x, modules = torch.randn(2, 6), linears()
    seen = []
    modules[1].register_forward_hook(lambda *_: seen.append(1))
    quant_noise(modules[0], 0.5, 2)  # fairseq's quantisation noise is a forward pre-hook
    assert len(joined(x, modules)) == 3 and seen == [1]
    mixed = [nn.Linear(6, 4, bias=False), nn.Linear(6, 4)]
    for one, module in zip(joined(x, mixed), mixed, strict=True):
        assert torch.equal(one, module(x))


def test_without_a_gpu_each_projection_is_called(monkeypatch):
    def refuse(*_):
        raise AssertionError("joined on the CPU")

    monkeypatch.setattr("fairseq_headprune.modules.projection.joined", refuse)
    x, modules = torch.randn(2, 6), linears()
    assert all(torch.equal(one, module(x)) for one, module in zip(project(x, modules), modules, strict=True))
