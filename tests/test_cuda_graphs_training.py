"""Whole trainings with ``--cuda-graphs``, on the CPU, where a recording is run anew. Reference: those without."""

import json
from itertools import cycle

import check_graphs
import fairseq_cli.train
import glue_data
import learning
import numpy as np
import pytest
import tiny
import torch
from fairseq import checkpoint_utils
from fairseq.logging import metrics
from logged import log_lines, train

from fairseq_headprune.checkpoints import read_state
from fairseq_headprune.parts import Mask, Part
from fairseq_headprune.training import fast
from fairseq_headprune.training.optimizer import FusedAdam


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
    "ste": ("--criterion", "label_smoothed_cross_entropy_dsp", "--straight-through", "--heads-kept", "4"),
    "gates-only": (*learning.DSP, "--heads-kept", "4", "--gates-only"),
    "curriculum": ("--curriculum", "2", "--validate-interval-updates", "3"),
    "mask": ("--head-mask", "mask.json", "--weight-decay", "0.1", "--validate-interval-updates", "3"),
}  # fmt: skip


@pytest.mark.parametrize("more", TRAININGS.values(), ids=TRAININGS)
def test_a_training_is_the_same_as_without(data_bin, tmp_path, recorded, monkeypatch, more):
    monkeypatch.chdir(tmp_path)
    Mask.full(tiny.SHAPE).without([Part("enc_self", 0, 1), Part("dec_self", 1, 0)]).save("mask.json")
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


HALF = {
    "overflow": ("--fp16-init-scale", "4194304", "--clip-norm", "0.3", "--store-ema"),
    "window": ("--fp16-scale-window", "3", "--fp16-no-flatten-grads", "--update-freq", "2", "--weight-decay", "0.1"),
    "gates": (*learning.DSP, "--heads-kept", "4", "--fp16-init-scale", "4194304"),
    "sgd": ("--optimizer", "sgd", "--momentum", "0.9", "--ignore-prefix-size", "1"),
}


@pytest.mark.parametrize("more", HALF.values(), ids=HALF)
def test_half_precision_skips_updates_and_scales_the_loss_as_without(data_bin, tmp_path, recorded, monkeypatch, more):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)  # fairseq's copies of the weights are on the CPU
    monkeypatch.setattr(torch.Tensor, "cuda", lambda self: self)
    flags = ["--fp16", "--lr", "1e-3", "--dropout", "0", "--log-format", "json", "--log-interval", "1", *more]
    sides = {}
    for name, mode in (("off", ()), ("on", ("--cuda-graphs", "on"))):
        state, lines = train(data_bin, tmp_path / name, *flags, *mode)
        updates = [json.loads(line[line.index("{") :]) for line in lines if '"gnorm"' in line]
        sides[name] = state, updates, sum("gradient overflow detected" in line for line in lines)
    (stock, expected, skipped), (state, updates, mine) = sides.values()
    assert mine == skipped and (skipped > 0) == ("--fp16-init-scale" in more)
    assert [u["loss_scale"] for u in updates] == [u["loss_scale"] for u in expected] and len(updates) == 12
    assert state["last_optimizer_state"]["loss_scale"] == stock["last_optimizer_state"]["loss_scale"]
    for name, limit in {"gnorm": 0.02, "loss": 5e-3, "nll_loss": 5e-3}.items():
        assert [float(u[name]) for u in updates] == pytest.approx([float(u[name]) for u in expected], rel=limit)


MIXED = {
    "plain": (), "half": ("--fp16", "--fp16-init-scale", "16"), "no flat copy": ("--fp16", "--fp16-no-flatten-grads"),
    "gates": (*learning.DSP, "--heads-kept", "4"),
}  # fmt: skip


@pytest.mark.parametrize("more", MIXED.values(), ids=MIXED)
def test_passes_of_one_update_add_up_recorded_or_not(data_bin, tmp_path, recorded, monkeypatch, more):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)  # as above
    monkeypatch.setattr(torch.Tensor, "cuda", lambda self: self)
    # Of two passes an update: none is recorded, the second, the first, none, both.
    reasons = cycle(["it is odd", "it is odd", "it is odd", None, None])
    monkeypatch.setattr(fast, "why_not_batch", lambda sample: next(reasons))
    flags = "--lr 1e-3 --dropout 0 --update-freq 2 --log-format json --log-interval 1".split()
    norms = []
    for name, mode in (("off", ()), ("on", ("--cuda-graphs", "on"))):
        _, lines = train(data_bin, tmp_path / name, *flags, *mode, *more)
        norms.append([json.loads(line[line.index("{") :])["gnorm"] for line in lines if '"gnorm"' in line])
    assert len(norms[0]) == 12 and any("it is odd cannot be recorded" in line for line in lines)
    assert [float(norm) for norm in norms[1]] == pytest.approx([float(norm) for norm in norms[0]], rel=0.02)


EAGER = {
    "layerdrop": ("--encoder-layerdrop", "0.3"), "activation checkpointing": ("--checkpoint-activations",),
    "quantization noise (or another hook of a module)": ("--quant-noise-pq", "0.1"),
    "--report-accuracy": ("--report-accuracy",), "--amp": ("--amp",), "--use-bmuf": ("--use-bmuf",),
    "--memory-efficient-fp16 and --memory-efficient-bf16": ("--memory-efficient-fp16",),
    "the criterion LabelSmoothedCrossEntropyCriterionWithAlignment":
        ("--criterion", "label_smoothed_cross_entropy_with_alignment"),
}  # fmt: skip


@pytest.mark.parametrize("reason", EAGER)
def test_what_is_not_recorded_trains_eagerly_and_one_line_says_why(data_bin, tmp_path, recorded, reason):
    flags = ["--lr", "1e-4", "--dropout", "0", "--max-update", "5", *EAGER[reason]]
    stock, _ = train(data_bin, tmp_path / "off", *flags)
    for mode, times in (("on", 1), ("auto", 0)):
        found, said = train(data_bin, tmp_path / mode, "--cuda-graphs", mode, *flags)
        assert sum("cannot be recorded" in line for line in said) == times
        assert sum(f"--cuda-graphs: {reason} cannot be recorded; it runs eagerly" in line for line in said) == times
        assert difference(stock, found) < 2e-5


def test_classifiers_train_eagerly_with_the_faster_optimizer(tuned, tmp_path, recorded, monkeypatch):
    steps, fused = [], FusedAdam._fused
    monkeypatch.setattr(FusedAdam, "_fused", lambda self, *given: steps.append(given[2]) or fused(self, *given))
    states, said = {}, {}
    flags = ["--bert", tuned / "hf", "--lr", "1e-4", "--max-update", "4", "--max-positions", "20", "--clip-norm", "1"]
    for mode in ("off", "on"):
        metrics.reset()
        with log_lines() as said[mode]:
            glue_data.train(tuned / "glue", tmp_path / mode, "SST-2", *flags, "--dropout", "0", "--cuda-graphs", mode)
        states[mode] = read_state(tmp_path / mode / "checkpoint_last.pt")
    assert steps == [1, 2, 3, 4] and difference(*states.values()) < 2e-5
    line = "--cuda-graphs: the criterion SentencePredictionCriterion cannot be recorded; it runs eagerly"
    assert [said[mode].count(line) for mode in ("off", "on")] == [0, 1]


STOPPED = {
    "plain": (), "l0": (*learning.L0, "--l0-penalty", "0.01"),
    "update-freq": ("--update-freq", "3", "--clip-norm", "0.5", "--lr-scheduler", "inverse_sqrt"),
    "other orders": ("--update-ordered-indices-seed",),
}  # fmt: skip


@pytest.mark.parametrize("more", STOPPED.values(), ids=STOPPED)
def test_a_training_that_was_interrupted_ends_like_one_that_was_not(data_bin, tmp_path, recorded, more):
    # In the middle of an epoch: it has 4 batches.
    flags = ["--cuda-graphs", "on", "--dropout", "0.3", "--save-interval-updates", "5", *more]
    whole, _ = train(data_bin, tmp_path / "whole", *flags)
    train(data_bin, tmp_path / "part", *flags, "--max-update", "5")
    resumed, _ = train(data_bin, tmp_path / "part", *flags)
    assert learning.same(whole["model"], resumed["model"])
    expected, found = (side["last_optimizer_state"]["state"] for side in (whole, resumed))
    assert all(torch.equal(expected[n]["exp_avg_sq"], found[n]["exp_avg_sq"]) for n in expected) and expected
    assert [side["lr_scheduler_state"] for side in whole["optimizer_history"][-1:]] == [
        side["lr_scheduler_state"] for side in resumed["optimizer_history"][-1:]
    ]


@pytest.mark.parametrize("mode", ["off", "on"])
def test_order_holds_beside_validation_on_the_training_set_and_after_a_stop(data_bin, tmp_path, recorded, mode):
    # The first epoch is not shuffled, the others are; fairseq alone would validate with the training's iterator.
    flags = f"--cuda-graphs {mode} --curriculum 1 --valid-subset valid,train --save-interval-updates 5".split()
    whole, _ = train(data_bin, tmp_path / "whole", *flags)
    train(data_bin, tmp_path / "part", *flags, "--max-update", "5")
    resumed, _ = train(data_bin, tmp_path / "part", *flags)
    assert learning.same(whole["model"], resumed["model"])
    # 12 updates are three epochs of 4 batches.
    assert [state["extra_state"]["train_iterator"]["epoch"] for state in (whole, resumed)] == [4, 4]


def new_process(monkeypatch):
    """Forget what fairseq-train keeps in attributes of its functions."""
    for function in (fairseq_cli.train.should_stop_early, checkpoint_utils.save_checkpoint):
        monkeypatch.setattr(function, "__dict__", {})


@pytest.mark.parametrize("stop", [8, 12])
def test_patience_counts_on_after_a_stop(data_bin, tmp_path, monkeypatch, stop):
    # The learning rate is so large that no validation is better than an early one; 4 updates are an epoch.
    flags = ["--patience", "3", "--lr", "3", "--max-update", "60", "--dropout", "0"]
    new_process(monkeypatch)
    whole, said = train(data_bin, tmp_path / "whole", *flags)
    end = whole["optimizer_history"][-1]["num_updates"]
    assert end < 60 and any("early stop" in line for line in said)
    for limit in (str(stop), "60"):
        new_process(monkeypatch)
        resumed, _ = train(data_bin, tmp_path / "part", *flags, "--max-update", limit)
    assert resumed["optimizer_history"][-1]["num_updates"] == end and learning.same(whole["model"], resumed["model"])
    # A training that starts from it counts for itself.
    new_process(monkeypatch)
    start = ["--finetune-from-model", tmp_path / "part" / "checkpoint_last.pt", "--max-update", "4"]
    tuned, _ = train(data_bin, tmp_path / "tuned", *flags, *start)
    assert tuned["task_state"]["patience"]["runs"] == 0


def test_fairseqs_buckets_are_refused_in_words_where_they_fail(data_bin, tmp_path):
    # Source: fairseq 0.12's get_buckets calls numpy.percentile with an argument that numpy 2 no longer has.
    if np.lib.NumpyVersion(np.__version__) < "2.0.0":
        train(data_bin, tmp_path, "--num-batch-buckets", "2", "--max-update", "2")
        return
    with pytest.raises(ValueError, match="--num-batch-buckets 2: fairseq's buckets need numpy 1, this is numpy 2"):
        train(data_bin, tmp_path, "--num-batch-buckets", "2")


@pytest.mark.slow
def test_the_check_of_a_gpu_runs_and_finds_a_difference(recorded, monkeypatch, capsys):
    flags = ["--cpu", "--json", "--arch", "tiny", "--max-tokens", "200", "--batches", "1"]
    assert tiny.run_main(check_graphs, *flags, "--cases", "fp32,fp32-dsp,fp32-dropout") == 0
    assert [check["ok"] for check in json.loads(capsys.readouterr().out)] == [True] * 3
    monkeypatch.setattr(check_graphs, "LIMITS", {"fp32": (1e-5, 0.0)})
    assert tiny.run_main(check_graphs, *flags, "--cases", "fp32") == 1


def test_an_optimizer_state_goes_over_to_a_training_without(data_bin, tmp_path, recorded):
    train(data_bin, tmp_path / "run", "--cuda-graphs", "on", "--max-update", "6")
    state, _ = train(data_bin, tmp_path / "run")
    assert state["optimizer_history"][-1]["num_updates"] == 12
