"""``--cuda-graphs``: padded passes, recordings, the optimizer's part; on the CPU, where a recording is run anew."""

import copy
import importlib
import json
import sys
from types import SimpleNamespace

import fairseq.utils
import learning
import pytest
import tiny
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.logging import metrics
from fairseq.optim import AMPOptimizer, MemoryEfficientFP16Optimizer
from test_cuda_graphs_optimizer import make_adam
from test_task import log_lines

from fairseq_headprune.modules.attach import find_gates
from fairseq_headprune.parts import Mask, Part
from fairseq_headprune.training import fast
from fairseq_headprune.training.fast import ModeSwitch, QuickSeed
from fairseq_headprune.training.passes import Passes, Work
from fairseq_headprune.training.recording import (
    AssumePadding,
    PaddedBatch,
    PlainRecorder,
    Recordings,
    Shape,
    padded,
    shape_of,
)

DICTIONARY = tiny.make_dictionary()
ROWS = Shape(3, 7, 6)


@pytest.fixture
def recorded(monkeypatch):
    """Let a CPU record passes, which it runs anew each time."""
    monkeypatch.setattr(fast, "CudaRecorder", PlainRecorder)
    monkeypatch.setattr(fast, "_device", lambda model: None)
    monkeypatch.setattr(fairseq.utils, "set_torch_seed", fairseq.utils.set_torch_seed)


def make_criterion():
    task = SimpleNamespace(target_dictionary=DICTIONARY)
    return LabelSmoothedCrossEntropyCriterion(task, sentence_avg=False, label_smoothing=0.1)


def make_passes(model, recorder=None):
    """What runs batches of a model, and the work it does with each."""
    work = Work(model, make_criterion(), [p for p in model.parameters() if p.requires_grad])
    return Passes(work, model, recorder, DICTIONARY.pad(), DICTIONARY.eos()), work


def make_model(dtype=torch.float64, mask=None):
    model = tiny.make_model(encoder_attention_heads=4, decoder_attention_heads=4).to(dtype).train()
    if mask is not None:
        find_gates(model).set_mask(mask)
    return model


def eager(model, batch):
    """Loss and gradients, as fairseq computes them."""
    model.zero_grad()
    loss, _, logged = make_criterion()(model, batch)
    loss.backward()
    return logged, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((1, 1, 1), (16, 8, 8)), ((16, 8, 9), (16, 8, 16)), ((170, 23, 24), (176, 24, 24)), ((5, 30, 61), (16, 30, 61))],
)
def test_shapes_are_padded_to_multiples_within_the_models_lengths(shape, expected):
    assert padded(Shape(*shape), 30, 60) == expected


def test_recordings_are_bounded_and_the_one_longest_unused_goes():
    found = Recordings(kept=2, worth=2)
    shapes = [Shape(16, 8, 8 * n) for n in range(1, 4)]
    assert found.get(shapes[0]) is None and not found.is_due(shapes[0])
    assert found.get(shapes[0]) is None and found.is_due(shapes[0])
    for shape in shapes[:2]:
        found.add(shape, shape)
    assert found.get(shapes[0]) == shapes[0]
    found.add(shapes[2], shapes[2])
    assert len(found) == 2 and found.get(shapes[1]) is None and found.get(shapes[0]) == shapes[0]
    # The dropped one has to prove its worth again.
    assert not found.is_due(shapes[1])


def test_a_padded_batch_holds_the_sentences_and_rows_of_one_token():
    batch = tiny.make_batch()
    assert shape_of(batch) == ROWS
    padded_batch = PaddedBatch(Shape(5, 8, 8), batch, DICTIONARY.pad(), DICTIONARY.eos())
    for _ in range(2):  # nothing is left of a batch before
        padded_batch.load(batch)
    inputs, target = padded_batch.sample["net_input"], padded_batch.sample["target"]
    assert torch.equal(inputs["src_tokens"][:3, :7], batch["net_input"]["src_tokens"])
    assert torch.equal(target[:3, :6], batch["target"]) and target.ne(DICTIONARY.pad()).sum() == batch["ntokens"]
    for name in ("src_tokens", "prev_output_tokens"):
        assert inputs[name][3:].ne(DICTIONARY.pad()).sum(1).tolist() == [1, 1]


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("mask", [None, Mask.full(learning.SHAPE)])
def test_padding_changes_neither_loss_nor_gradients(dtype, limit, mask):
    shape = {component: [4, 4] for component in learning.SHAPE}
    mask = None if mask is None else Mask.full(shape).without([Part("enc_self", 0, 1), Part("dec_self", 1, 3)])
    model = make_model(dtype, mask)
    logged, expected = eager(model, tiny.make_batch())
    model.zero_grad(set_to_none=True)
    passes, work = make_passes(model, PlainRecorder())
    for times in range(1, 4):  # eagerly, recorded, replayed: gradients add up
        passes.run(tiny.make_batch(), Shape(16, 8, 8))
        torch.testing.assert_close(work.losses[0], logged["loss"].to(work.losses.dtype), rtol=1e-5, atol=0)
        torch.testing.assert_close(work.losses[1], logged["nll_loss"].to(work.losses.dtype), rtol=1e-5, atol=0)
        wanted = times * torch.cat([expected[name].flatten() for name, _ in model.named_parameters()])
        gradient = torch.cat([p.grad.flatten() for p in model.parameters()])
        assert (gradient - wanted).norm() <= limit * wanted.norm()
    assert len(passes.recordings) == 1
    work.gradients.clear()
    assert all(not p.grad.any() for p in model.parameters())


def test_the_loss_scale_is_a_tensor():
    model = make_model()
    _, expected = eager(model, tiny.make_batch())
    model.zero_grad(set_to_none=True)
    passes, work = make_passes(model)
    work.scale.fill_(64.0)
    passes.run(tiny.make_batch(), Shape(16, 8, 8))
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, 64 * expected[name], rtol=1e-9, atol=1e-12)


def test_another_mask_makes_recordings_void_and_the_same_one_does_not():
    model = make_model()
    shape, gates = {component: [4, 4] for component in learning.SHAPE}, find_gates(model)
    mask = Mask.full(shape).without([Part("enc_self", 0, 1)])
    passes, work = make_passes(model, PlainRecorder())
    counts = []
    for changed in (None, None, mask, None, copy.deepcopy(mask)):
        if changed is not None:
            gates.set_mask(changed)
        passes.run(tiny.make_batch(), Shape(16, 8, 8))
        counts.append(work.losses[0].item())
    assert counts[0] == counts[1] != counts[2] == counts[3] == counts[4]
    learned = Passes(work, model, PlainRecorder(), 1, 2, learned=True)
    assert "head_keep" not in {name for _, name in learned._places}


def test_what_cannot_be_recorded_runs_all_the_same():
    class Failing:
        def record(self, work):
            raise RuntimeError("operation not permitted\nmore")

    passes, work = make_passes(make_model(), Failing())
    for _ in range(3):
        passes.run(tiny.make_batch(), Shape(16, 8, 8))
    assert passes.failure == "operation not permitted" and work.losses[0] > 0 and not passes.recordings


def test_padding_is_assumed_without_asking():
    with AssumePadding():
        there = torch.zeros(3).eq(1).any()
        assert there and bool(there)
        assert not torch.tensor(False)
        assert torch.equal(torch.zeros(2, 2).eq(1).any(dim=0), torch.tensor([False, False]))


def test_modes_and_seeds_are_as_before():
    model = make_model()
    ModeSwitch.install(model)
    assert not any(m.training for m in model.eval().modules())
    model.encoder.train()
    assert all(m.training for m in model.train().modules())
    twin = copy.deepcopy(model)
    twin.eval()
    assert model.encoder.layers[0].training and not twin.encoder.layers[0].training
    fairseq.utils.set_torch_seed(7)
    expected = torch.rand(3)
    before = torch.get_rng_state()
    with QuickSeed(7):
        assert torch.equal(torch.rand(3), expected)
    assert torch.equal(torch.get_rng_state(), before)


def reasons(model=None, criterion=None, optimizer=None):
    parameters = [torch.nn.Parameter(torch.ones(2))]
    return fast.why_not(model or make_model(), criterion or make_criterion(), optimizer or make_adam(parameters))


def test_what_is_not_recorded_has_a_reason(monkeypatch):
    assert reasons() == "training on the CPU"
    monkeypatch.setattr(fast, "_device", lambda model: None)
    assert reasons() is None
    accuracy = make_criterion()
    accuracy.report_accuracy = True
    assert "--report-accuracy" in reasons(criterion=accuracy)
    assert "criterion" in reasons(criterion=SimpleNamespace())
    assert reasons(tiny.make_model(encoder_layerdrop=0.2)) == "layerdrop"
    assert reasons(tiny.make_model(checkpoint_activations=True)) == "activation checkpointing"
    assert "quantization noise" in reasons(tiny.make_model(quant_noise_pq=0.1, quant_noise_pq_block_size=8))
    assert "prefix" in fast.why_not_batch({"net_input": {**tiny.make_batch()["net_input"], "prefix": 1}, "target": 1})
    assert fast.why_not_batch(tiny.make_batch()) is None


@pytest.mark.parametrize("kind", [AMPOptimizer, MemoryEfficientFP16Optimizer])
def test_optimizers_with_a_way_of_their_own_are_left_alone(recorded, kind):
    optimizer = kind.__new__(kind)
    methods = {name: getattr(optimizer, name) for name in ("clip_grad_norm", "zero_grad", "step")}
    training = fast.FastTraining("auto", 1, 2)
    training.begin(make_model(), make_criterion(), optimizer)
    assert training.passes is None and {name: getattr(optimizer, name) for name in methods} == methods
    training.note({"loss": torch.tensor(1.0)})
    assert not training._readings._waiting
    assert kind is not AMPOptimizer or reasons(optimizer=optimizer) == "--amp"


def train(data, save, *more):
    metrics.reset()
    base = ["--criterion", "label_smoothed_cross_entropy"]
    with log_lines() as lines:
        return learning.train(data, save, *base, *more), lines


def difference(left, right):
    mine, other = learning.weights(left), learning.weights(right)
    return max(float((mine[name] - other[name]).abs().max()) for name in mine)


def test_on_a_cpu_nothing_changes_and_one_line_says_why(data_bin, tmp_path):
    stock, _ = train(data_bin, tmp_path / "off")
    on, said = train(data_bin, tmp_path / "on", "--cuda-graphs", "on")
    auto, silent = train(data_bin, tmp_path / "auto", "--cuda-graphs", "auto")
    assert learning.same(stock["model"], on["model"]) and learning.same(stock["model"], auto["model"])
    assert sum("--cuda-graphs: training on the CPU cannot be recorded" in line for line in said) == 1
    assert not any("recorded" in line for line in silent)


TRAININGS = {
    "plain": (), "update-freq": ("--update-freq", "2", "--clip-norm", "0.5", "--sentence-avg"),
    "l0": (*learning.L0, "--l0-penalty", "0.01"), "dsp": (*learning.DSP, "--heads-kept", "4"),
    "gates-only": (*learning.DSP, "--heads-kept", "4", "--gates-only"),
}  # fmt: skip


@pytest.mark.parametrize("more", TRAININGS.values(), ids=TRAININGS)
def test_a_training_is_the_same_as_without(data_bin, tmp_path, recorded, more):
    if "--gates-only" in more:
        train(data_bin, tmp_path / "start")
        more = (*more, "--finetune-from-model", tmp_path / "start" / "checkpoint_last.pt")
    rate = ["--lr", "1e-4", "--dropout", "0"]
    stock, _ = train(data_bin, tmp_path / "off", *more, *rate)
    found, said = train(data_bin, tmp_path / "on", "--cuda-graphs", "on", *more, *rate)
    assert sum("CUDA graphs: batches are padded" in line for line in said) == 1
    assert found["optimizer_history"][-1]["num_updates"] == stock["optimizer_history"][-1]["num_updates"]
    assert difference(stock, found) < 2e-5
    for name, value in learning.gate_state(stock).items():
        torch.testing.assert_close(learning.gate_state(found)[name], value, rtol=1e-3, atol=1e-6)
    losses = [state["extra_state"]["val_loss"] for state in (stock, found)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-3)


@pytest.mark.parametrize("more", [(), (*learning.L0, "--l0-penalty", "0.01")], ids=["plain", "l0"])
def test_a_training_that_was_interrupted_ends_like_one_that_was_not(data_bin, tmp_path, recorded, more):
    flags = ["--cuda-graphs", "on", "--dropout", "0.3", "--save-interval-updates", "6", *more]
    whole, _ = train(data_bin, tmp_path / "whole", *flags)
    train(data_bin, tmp_path / "part", *flags, "--max-update", "6")
    resumed, _ = train(data_bin, tmp_path / "part", *flags)
    assert learning.same(whole["model"], resumed["model"])


@pytest.mark.slow
def test_the_check_of_a_gpu_runs_and_finds_a_difference(recorded, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(tiny.ROOT / "scripts"))
    check_graphs = importlib.import_module("check_graphs")
    flags = ["--cpu", "--json", "--arch", "tiny", "--max-tokens", "200", "--batches", "1"]
    monkeypatch.setattr(sys, "argv", ["check_graphs.py", *flags, "--cases", "fp32,fp32-dsp,fp32-dropout"])
    assert check_graphs.main() == 0
    assert [check["ok"] for check in json.loads(capsys.readouterr().out)] == [True] * 3
    monkeypatch.setattr(check_graphs, "LIMITS", {"fp32": (1e-5, 0.0)})
    monkeypatch.setattr(sys, "argv", ["check_graphs.py", *flags, "--cases", "fp32"])
    assert check_graphs.main() == 1


def test_an_optimizer_state_goes_over_to_a_training_without(data_bin, tmp_path, recorded):
    train(data_bin, tmp_path / "run", "--cuda-graphs", "on", "--max-update", "6")
    state, _ = train(data_bin, tmp_path / "run")
    assert state["optimizer_history"][-1]["num_updates"] == 12
