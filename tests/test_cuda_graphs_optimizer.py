"""The optimizer's part of ``--cuda-graphs``. Reference: fairseq's Adam and its half precision."""

import copy
from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from fairseq.optim import FP16Optimizer
from fairseq.optim.adam import Adam, FairseqAdam, FairseqAdamConfig

from fairseq_headprune.training.optimizer import FusedAdam, Readings, speed_up


def make_adam(parameters, **more):
    cfg = FairseqAdamConfig(adam_betas="(0.9, 0.98)", weight_decay=0.01, adam_eps=1e-6, lr=[0.01], **more)
    return FairseqAdam(cfg, parameters)


def test_the_fused_adam_gives_fairseqs_numbers_and_state():
    torch.manual_seed(1)
    sides = [[torch.nn.Parameter(torch.arange(1.0, n + 1) / n) for n in (3, 50, 7)] for _ in range(2)]
    stock, fused = (make_adam(side) for side in sides)
    assert FusedAdam.adopt(fused.optimizer) and type(stock.optimizer) is Adam
    for step in range(20):
        for pair in zip(*sides, strict=True):
            gradient = torch.randn_like(pair[0])
            for parameter in pair:
                # One has no gradient now and then, so that its steps are fewer.
                parameter.grad = None if step % 3 == 0 and len(gradient) == 7 else gradient.clone()
        stock.step()
        fused.step()
        for a, b in zip(*sides, strict=True):
            torch.testing.assert_close(b, a, rtol=2e-6, atol=1e-7)
    states = [side.state_dict()["state"] for side in (stock, fused)]
    assert all(
        states[0][n]["step"] == states[1][n]["step"] and states[0][n].keys() == states[1][n].keys() for n in range(3)
    )
    # Each goes on from the other's state.
    stock.load_state_dict(fused.state_dict())
    fused.load_state_dict(copy.deepcopy(stock.state_dict()))
    stock.step()
    fused.step()
    torch.testing.assert_close(sides[1][1], sides[0][1], rtol=2e-6, atol=1e-7)


def half_precision(parameters, flat):
    """fairseq's optimizer around Adam for parameters in bfloat16 (on a CPU, it makes no flat copy itself)."""
    common = Namespace(bf16=True, fp16_scale_window=None)
    cfg = SimpleNamespace(
        optimizer=None, common=common, optimization=Namespace(update_freq=[1]),
        distributed_training=Namespace(distributed_world_size=1),
    )  # fmt: skip
    cfg.common.model_parallel_size = 1
    if not flat:
        copies = FP16Optimizer.build_fp32_params(None, parameters, flatten=False)
        return FP16Optimizer(cfg, parameters, make_adam(copies), copies)
    whole = torch.nn.Parameter(torch.cat([p.data.float().flatten() for p in parameters]))
    whole.grad = torch.zeros_like(whole)
    return FP16Optimizer(cfg, parameters, make_adam([whole]), {None: whole})


@pytest.mark.parametrize("sizes", [(3, 50, 7), (16, 48, 8)])
@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("max_norm", [0.0, 0.5])
def test_half_precision_updates_are_fairseqs(flat, max_norm, sizes):
    torch.manual_seed(1)
    sides = [[torch.nn.Parameter((torch.arange(1.0, n + 1) / n).bfloat16()) for n in sizes] for _ in range(2)]
    stock, quick = (half_precision(side, flat) for side in sides)
    readings = Readings()
    speed_up(quick, readings)
    # In one tensor every parameter must begin at a multiple of 16 bytes, 8 numbers.
    together = len({parameter.untyped_storage().data_ptr() for parameter in sides[1]}) == 1
    assert together == (flat and sizes == (16, 48, 8))
    for step in range(5):
        gradients = [torch.randn_like(p) for p in sides[0]]
        logged = {"loss": torch.tensor(2.5), "ntokens": 7, "count": torch.tensor(3)}
        norms = []
        for optimizer, side in zip((stock, quick), sides, strict=True):
            optimizer.zero_grad()
            if optimizer is quick:
                readings.note(logged)
            for parameter, gradient in zip(side, gradients, strict=True):
                parameter.grad = None if step == 2 and len(gradient) == sizes[-1] else gradient.clone()
            optimizer._needs_sync = True
            optimizer.multiply_grads(1 / 3)
            norms.append(float(optimizer.clip_grad_norm(max_norm)))
            optimizer.step()
        assert norms[1] == pytest.approx(norms[0], rel=1e-5)
        assert logged["loss"] == 2.5 and isinstance(logged["loss"], float) and torch.is_tensor(logged["count"])
        for a, b in zip(*sides, strict=True):
            torch.testing.assert_close(b.float(), a.float(), rtol=1e-2, atol=1e-3)
    for a, b in zip(stock.fp32_optimizer.params, quick.fp32_optimizer.params, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-5, atol=1e-6)
