"""``--cuda-graphs``: padded passes, recordings, the optimizer's part; on the CPU, where a recording is run anew."""

import copy
from types import SimpleNamespace

import fairseq.utils
import pytest
import tiny
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.nan_detector import NanDetector
from fairseq.optim import AMPOptimizer, MemoryEfficientFP16Optimizer
from test_cuda_graphs_optimizer import make_adam

from fairseq_headprune.cuda_graphs import AssumePadding, PlainRecorder
from fairseq_headprune.modules.attach import find_gates
from fairseq_headprune.parts import Part
from fairseq_headprune.training import fast
from fairseq_headprune.training.passes import PaddedPass, Passes
from fairseq_headprune.training.quick import ModeSwitch, QuickSeed
from fairseq_headprune.training.recording import BatchShape, PaddedBatch, Recordings, padded, shape_of

DICTIONARY = tiny.make_dictionary()
ROWS = BatchShape(3, 7, 6)


def make_criterion():
    task = SimpleNamespace(target_dictionary=DICTIONARY)
    return LabelSmoothedCrossEntropyCriterion(task, sentence_avg=False, label_smoothing=0.1)


def make_passes(model, recorder=None):
    """What runs batches of a model, and the work it does with each."""
    work = PaddedPass(model, make_criterion(), [p for p in model.parameters() if p.requires_grad])
    return Passes(work, model, recorder, DICTIONARY.pad(), DICTIONARY.eos()), work


def make_model(dtype=torch.float64):
    return tiny.make_model(encoder_attention_heads=4, decoder_attention_heads=4).to(dtype).train()


def eager(model, batch):
    """Loss and gradients, as fairseq computes them."""
    model.zero_grad()
    loss, _, logged = make_criterion()(model, batch)
    loss.backward()
    return logged, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((1, 1, 1), (16, 4, 4)),
        ((16, 8, 9), (16, 8, 12)),
        ((170, 23, 32), (176, 24, 32)),
        ((5, 29, 33), (16, 30, 40)),
        ((5, 30, 61), (16, 30, 61)),
    ],
)
def test_shapes_are_padded_to_multiples_within_the_models_lengths(shape, expected):
    assert padded(BatchShape(*shape), 30, 60) == expected


def test_recordings_are_bounded_and_the_least_used_one_goes():
    found = Recordings(kept=2, worth=2, lead=3)
    often, seldom, third = (BatchShape(16, 8, 8 * n) for n in range(1, 4))
    assert found.get(often) is None and not found.is_due(often)
    assert found.get(often) is None and found.is_due(often)
    for shape in (often, seldom):
        found.add(shape, shape)
    found.get(seldom)  # used once, the other one twice
    for uses in range(1, 5):
        assert found.get(third) is None and found.is_due(third) == (uses == 4)
    found.add(third, third)
    assert len(found) == 2 and found.get(seldom) is None and found.get(often) == often
    assert not found.is_due(seldom)


def test_more_shapes_than_recordings_do_not_drop_each_other():
    found, recorded = Recordings(kept=2, worth=2, lead=8), []
    for _ in range(50):
        for shape in (BatchShape(16, 8, 8 * n) for n in range(1, 4)):
            if found.get(shape) is None and found.is_due(shape):
                found.add(shape, shape)
                recorded.append(shape)
    # By hand: the third shape is never used more often than the two that were there first.
    assert len(recorded) == 2


def test_a_padded_batch_holds_the_sentences_and_rows_of_one_token():
    batch = tiny.make_batch()
    assert shape_of(batch) == ROWS
    padded_batch = PaddedBatch(BatchShape(5, 8, 8), batch, DICTIONARY.pad(), DICTIONARY.eos())
    for _ in range(2):  # nothing is left of a batch before
        padded_batch.load(batch)
    inputs, target = padded_batch.sample["net_input"], padded_batch.sample["target"]
    assert torch.equal(inputs["src_tokens"][:3, :7], batch["net_input"]["src_tokens"])
    assert torch.equal(target[:3, :6], batch["target"]) and target.ne(DICTIONARY.pad()).sum() == batch["ntokens"]
    for name in ("src_tokens", "prev_output_tokens"):
        assert inputs[name][3:].ne(DICTIONARY.pad()).sum(1).tolist() == [1, 1]


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("pruned", [(), (Part("enc_self", 0, 1), Part("dec_self", 1, 3))])
def test_padding_changes_neither_loss_nor_gradients(dtype, limit, pruned):
    model = make_model(dtype)
    find_gates(model).set_mask(find_gates(model).full().without(pruned))
    logged, expected = eager(model, tiny.make_batch())
    model.zero_grad(set_to_none=True)
    passes, work = make_passes(model, PlainRecorder())
    for times in range(1, 4):  # eagerly, recorded, replayed: gradients add up
        passes.run(tiny.make_batch(), BatchShape(16, 8, 8))
        torch.testing.assert_close(work.numbers[0], logged["loss"].to(work.numbers.dtype), rtol=1e-5, atol=0)
        torch.testing.assert_close(work.numbers[1], logged["nll_loss"].to(work.numbers.dtype), rtol=1e-5, atol=0)
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
    passes.run(tiny.make_batch(), BatchShape(16, 8, 8))
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, 64 * expected[name], rtol=1e-9, atol=1e-12)


def test_another_mask_makes_recordings_void_and_the_same_one_does_not():
    model = make_model()
    gates = find_gates(model)
    mask = gates.full().without([Part("enc_self", 0, 1)])
    passes, work = make_passes(model, PlainRecorder())
    counts = []
    for changed in (None, None, mask, None, copy.deepcopy(mask)):
        if changed is not None:
            gates.set_mask(changed)
        passes.run(tiny.make_batch(), BatchShape(16, 8, 8))
        counts.append(work.numbers[0].item())
    assert counts[0] == counts[1] != counts[2] == counts[3] == counts[4]


@pytest.mark.parametrize(("learned", "made"), [(False, 2), (True, 1)])
def test_masks_of_learned_gates_leave_recordings_as_they_are(learned, made, monkeypatch):
    """They change with every validation, and have no effect in training."""
    model, recorded = make_model(), []
    monkeypatch.setattr(PlainRecorder, "record", lambda self, work: recorded.append(work) or work)
    work = make_passes(model)[1]
    passes = Passes(work, model, PlainRecorder(), DICTIONARY.pad(), DICTIONARY.eos(), learned)
    gates = find_gates(model)
    for mask in (gates.full(), gates.full().without([Part("dec_self", 1, 0)])):
        gates.set_mask(mask)
        for _ in range(3):
            passes.run(tiny.make_batch(), BatchShape(16, 8, 8))
    assert len(recorded) == made


def test_what_cannot_be_recorded_runs_all_the_same():
    class Failing(PlainRecorder):
        def record(self, work):
            raise RuntimeError("operation not permitted\nmore")

    passes, work = make_passes(make_model(), Failing())
    for _ in range(3):
        passes.run(tiny.make_batch(), BatchShape(16, 8, 8))
    assert passes.failure == "operation not permitted" and work.numbers[0] > 0 and not passes.recordings


@pytest.mark.parametrize("masked", [False, True])
def test_where_memory_runs_out_half_as_many_passes_are_recorded(masked, caplog):
    # By hand: there is room for 3 recordings at first; half of these is 1, half of 1 is none. Results are those of
    # passes that are not recorded.
    class Limited(PlainRecorder):
        room, made, renewed = 3, 0, 0

        def renew(self):
            self.room, self.made, self.renewed = 1, 0, self.renewed + 1

        def record(self, work):
            if self.made == self.room:
                try:
                    raise torch.OutOfMemoryError("no memory\nmore")
                except RuntimeError:
                    if masked:  # as where the end of a recording fails, too
                        raise RuntimeError("no memory") from None
                    raise
            self.made += 1
            return work

    recorder, shapes = Limited(), [BatchShape(16, 8, 8 + 4 * number) for number in range(4)]
    passes, work = make_passes(make_model(), recorder)
    plain, expected = make_passes(make_model(), None)
    kept = []
    for shape in [shape for shape in shapes for _ in (1, 2)] + [shapes[3], shapes[2]] * 5:
        passes.run(tiny.make_batch(), shape)
        plain.run(tiny.make_batch(), shape)
        assert torch.equal(work.numbers, expected.numbers)
        kept.append(len(passes.recordings))
    assert kept[:8] == [0, 1, 1, 2, 2, 3, 3, 0] and kept[8:10] == [1, 1]
    assert recorder.renewed == 1 and passes.failure is None
    assert "out of memory with 3 recordings; from now on 1 are kept" in caplog.text
    for _ in range(20):  # often enough to be recorded instead of the last one, for which there is no room beside it
        passes.run(tiny.make_batch(), shapes[0])
    assert passes.failure == "no memory" and not passes.recordings


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


def test_what_is_not_finite_is_sought_module_by_module(recorded):
    model, parameters = make_model(), [torch.nn.Parameter(torch.ones(2))]
    training = fast.FastTraining("on", DICTIONARY.pad(), DICTIONARY.eos())
    training.begin(model, make_criterion(), make_adam(parameters))
    assert training.takes(tiny.make_batch(), False)
    with NanDetector(model):  # fairseq's: a replay would call none of its hooks
        assert not training.takes(tiny.make_batch(), False)
    assert training.takes(tiny.make_batch(), False) and not training.takes(tiny.make_batch(), True)


def reasons(model=None, criterion=None, optimizer=None):
    parameters = [torch.nn.Parameter(torch.ones(2))]
    return fast.why_not(model or make_model(), criterion or make_criterion(), optimizer or make_adam(parameters))


def test_several_gpus_are_a_reason(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    assert reasons() == "training on several GPUs"


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
    hooked = make_model()
    hooked.encoder.register_forward_hook(lambda *_: None)
    assert "hook of a module" in reasons(hooked)
    assert reasons(SimpleNamespace()) == "the model SimpleNamespace"
    # Its convolutions also read padding, which a linear layer with a bias has changed: the loss depends on the batch.
    more = dict.fromkeys(("weight_dropout", "relu_dropout", "input_dropout"), 0.0)
    for side in ("encoder", "decoder"):
        more |= {f"{side}_layers": 1, f"{side}_kernel_size_list": [3], f"{side}_conv_type": "lightweight"}
    light = tiny.make_model("lightconv_iwslt_de_en", **more, decoder_glu=True, encoder_glu=True, weight_softmax=True)
    assert reasons(light) == "the model LightConvModel"
    adaptive = make_model()
    adaptive.decoder.adaptive_softmax = object()
    assert reasons(adaptive) == "adaptive softmax"
    assert fast.why_not_batch({"net_input": tiny.make_batch()["net_input"]}) == "batches with no target"
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
