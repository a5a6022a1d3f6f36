"""What learned gates add to an update under ``--cuda-graphs``: few launches; and the numbers of a slow reference."""

import argparse

import bench_host
import numpy as np
import pytest
import recording
import torch
from fairseq.logging import metrics

from fairseq_headprune.gates import subset
from fairseq_headprune.gates.learner import GateLearner
from fairseq_headprune.gates.rules import SubsetRule
from fairseq_headprune.gates.subset import Temperature, soft_top_k
from fairseq_headprune.learning import training
from fairseq_headprune.learning.learned import gate_columns
from fairseq_headprune.parts import Part
from fairseq_headprune.speed.measure import operations
from fairseq_headprune.training.passes import PaddedPass

#: as in transformer_iwslt_de_en: 6 + 6 layers of 4 heads
HEADS = [Part(c, layer, head) for c in ("enc_self", "enc_dec", "dec_self") for layer in range(6) for head in range(4)]


def slow(r, k, tau, gradient):
    """Eqs. 14 to 19 one softmax after the other, the projection by bisection; the gradient by autograd, bounded."""
    if 2 * k > len(r):
        gates, by_r = slow(-r, len(r) - k, tau, gradient)
        return 1 - gates, by_r
    first = torch.tensor(r, requires_grad=True)
    scores, total = first, torch.zeros(len(r), dtype=torch.float64)
    for _ in range(k):
        step = torch.softmax(scores / tau, 0)
        total, scores = total + step, scores + torch.log1p(-step)
    gates, inner = total.detach().numpy(), gradient
    if gates.max() > 1 + 1e-9:
        low, high = 0.0, 1.0
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (middle, high) if np.minimum(gates + middle, 1).sum() < k else (low, middle)
        gates = np.minimum(gates + low, 1)
        inner = np.where(gates < 1, gradient - gradient[gates < 1].mean(), 0.0)
    by_r = torch.autograd.grad(total, first, torch.tensor(inner))[0].numpy()
    return gates, by_r * min(1, np.linalg.norm(inner) / tau / np.linalg.norm(by_r))


@pytest.mark.parametrize("tau", [1000.0, 10.0, 1.0, 0.1])
@pytest.mark.parametrize("k", [4, 12, 36, 48, 70])
def test_gates_and_gradients_are_those_of_the_slow_reference(k, tau):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        r, gradient = rng.normal(size=72) + rng.gumbel(size=72), rng.normal(size=72)
        expected, by_r = slow(r, k, tau, gradient)
        gates, pullback = soft_top_k(r, k, tau)
        assert gates == pytest.approx(expected, abs=1e-6)
        assert pullback(gradient) == pytest.approx(by_r, rel=1e-6, abs=1e-6)
        pullback.ahead()
        assert pullback(gradient) == pytest.approx(by_r, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("kept", [24, {"enc_self": 4, "enc_dec": 20, "dec_self": 12}])
def test_a_prepared_step_runs_no_softmax_backwards_and_each_one_forwards_once(monkeypatch, kept):
    """Rounds forwards: 24, or the smaller of kept and dropped: 4 + 4 + 12."""
    learner = GateLearner(SubsetRule(HEADS, kept, Temperature(0.1, 0.1, 100)), HEADS, 0.2, seed=1)
    plain = GateLearner(SubsetRule(HEADS, kept, Temperature(0.1, 0.1, 100)), HEADS, 0.2, seed=1)
    backwards, softmaxes, rounds = subset._backwards, subset._softmaxes, []
    monkeypatch.setattr(subset, "_softmaxes", lambda r, k, tau: [rounds.append(k), softmaxes(r, k, tau)][1])
    for update in range(20):
        gates, expected = learner.begin(), plain.begin()
        assert np.allclose(gates, expected, rtol=0, atol=1e-6)
        gradient = np.random.default_rng(update).normal(size=72)
        plain.step(gradient)
        learner.prepare()
        with monkeypatch.context() as patch:
            patch.delattr(subset, "_backwards")
            learner.step(gradient)
        assert torch.allclose(learner.weight, plain.weight, rtol=0, atol=1e-6)
    assert backwards is subset._backwards and sum(rounds) == 2 * 20 * (24 if kept == 24 else 20)


def test_a_matrix_whose_products_could_overflow_is_not_used(monkeypatch):
    rng = np.random.default_rng(1)
    pullback = soft_top_k(rng.normal(size=72), 24, 0.1)[1]
    gradient = rng.normal(size=72)
    expected, backwards = pullback(gradient), subset._backwards
    with monkeypatch.context() as patch:
        patch.setattr(subset, "_backwards", lambda *given: backwards(*given) * 1e110)
        pullback.ahead()
    assert (pullback(gradient) == expected).all()


@pytest.mark.parametrize("used", [(0, 1, 2, 3), (0, 2), (1,), ()])
def test_columns_are_scaled_as_head_by_head(used):
    """Two shapes of weights, 4 x (2 heads x 3) and 4 x (3 heads x 2), and some that no output depends on."""
    torch.manual_seed(1)
    gate = torch.rand(10, requires_grad=True)
    weights = [torch.randn(4, 6, requires_grad=True) for _ in range(4)]
    counts, places = [2, 3, 2, 3], [0, 2, 5, 7]
    found = gate_columns(gate, weights, counts)
    expected = [
        weight * gate[place : place + count].repeat_interleave(6 // count)
        for weight, place, count in zip(weights, places, counts, strict=True)
    ]
    assert all(torch.equal(mine, other) for mine, other in zip(found, expected, strict=True))
    if used:
        sides = (sum((side[n] ** 3).sum() for n in used) for side in (found, expected))
        mine, other = (torch.autograd.grad(side, [gate, *weights], allow_unused=True) for side in sides)
        for left, right in zip(mine, other, strict=True):
            assert left is right is None or torch.allclose(left, right, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("dtype", "expected"), [(torch.float32, 6), (torch.bfloat16, 8)])
def test_columns_of_equal_modules_are_scaled_by_few_operations(dtype, expected):
    """Counted: two stacks, three products and a sum; in half precision also two conversions."""
    gate = torch.rand(12, requires_grad=True)
    weights = [torch.randn(4, 8, dtype=dtype, requires_grad=True) for _ in range(3)]
    gradients = [torch.randn(4, 8, dtype=dtype) for _ in range(3)]

    def work():
        torch.autograd.grad(gate_columns(gate, weights, [4] * 3), [gate, *weights], gradients)

    assert operations(work) == expected


@pytest.fixture(scope="module")
def trainers():
    """Makes the trainer of a kind of gates, which has made enough updates to have recorded its batch."""
    with recording.on_cpu():
        args = argparse.Namespace(**bench_host.DATA)
        task, batch = bench_host.task_and_batch(args)

        def make(kind, kept=""):
            metrics.reset()
            trainer = bench_host.make_trainer(args, task, kind, kept)
            for _ in range(3):
                trainer.train_step([batch])
            assert trainer.task._fast.passes.recordings
            return trainer, batch

        yield make


def counted(trainer, batch, monkeypatch):
    """Operations of an update inside the recorded pass and outside it, and its waits for the device."""
    inside, waits, work, to_cpu = [], [], PaddedPass.__call__, torch.Tensor.cpu
    with monkeypatch.context() as patch:
        patch.setattr(PaddedPass, "__call__", lambda self, given: inside.append(operations(lambda: work(self, given))))
        patch.setattr(torch.Tensor, "cpu", lambda self: [waits.append(1), to_cpu(self)][1])
        total = operations(lambda: trainer.train_step([batch]))
    return inside[0], total - inside[0], len(waits)


def test_gates_add_few_operations_to_an_update_whatever_k_is(trainers, monkeypatch):
    """Counted.

    Inside: gates are copied to the device, weights are stacked and scaled, gradients stacked, scaled, multiplied by
    weights, and summed. Outside: the norm, which is on the CPU by then, is checked.
    """
    inside, outside, waits = counted(*trainers(None), monkeypatch)
    assert waits == 1  # the norm, with all else that is read
    for kind, kept in (("l0", ""), ("ste", "12"), ("dsp", "4"), ("dsp", "12"), ("dsp", "48")):
        mine = counted(*trainers(kind, kept), monkeypatch)
        assert mine[0] - inside <= 7 and mine[1] - outside <= 1 and mine[2] == waits, (kind, kept, mine)


def test_what_is_logged_is_computed_for_lines_only(trainers, monkeypatch):
    trainer, batch = trainers("l0")
    calls, original = [], training.gate_metrics
    monkeypatch.setattr(training, "gate_metrics", lambda learner: [calls.append(1), original(learner)][1])
    with metrics.aggregate("train_inner"):
        for _ in range(3):
            trainer.train_step([batch])
    assert not calls
    line = metrics.get_smoothed_values("train_inner")
    # 6 layers of 4 heads; at log_alpha 2.5 all are open.
    assert calls == [1] and line["heads_enc_self"] == line["heads_dec_self"] == 24 and "loss" in line
