"""Trainings of learned gates that cannot give what was asked for: refused, ended with the place, or warned of."""

import logging
import math
from types import SimpleNamespace

import pytest
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from learning import DSP, L0, train
from tiny import SHAPE

from fairseq_headprune.checkpoints import read_state
from fairseq_headprune.criterions.gated import L0Criterion, SubsetCriterion
from fairseq_headprune.criterions.settings import DSPConfig, L0Config
from fairseq_headprune.gates.log import read_log
from fairseq_headprune.learning.training import run_length, updates_in_epochs
from fairseq_headprune.learning.watch import NotFiniteError
from fairseq_headprune.parts import Mask, Part, all_heads

PLAIN = ["--criterion", "label_smoothed_cross_entropy", "--head-mask", "mask.json"]


@pytest.mark.parametrize("criterion", [SubsetCriterion, L0Criterion])
def test_fairseqs_own_task_learns_no_gates(criterion, dictionary):
    with pytest.raises(ValueError, match="TranslationTask does not know of any: give --task translation_headprune"):
        criterion.build_criterion(DSPConfig(), TranslationTask(TranslationConfig(), dictionary, dictionary))


def test_a_loss_that_is_not_finite_ends_with_update_gate_and_checkpoint(trained, tmp_path):
    # At this rate the first step ruins the weights, and the second update has NaN everywhere.
    broken = [*DSP, "--heads-kept", "5", "--lr", "1e30"]
    words = r"not finite at update 1 \(the gate of enc_self layer 0 head 0 is the first\)"
    with pytest.raises(NotFiniteError, match=f"{words}; no checkpoint was saved in .*none yet"):
        train(trained["data"], tmp_path / "none", *broken)
    more = ["--no-last-checkpoints", "--save-interval-updates", "1", "--disable-validation"]
    with pytest.raises(NotFiniteError, match="the last good checkpoint is .*checkpoint_1_1.pt"):
        train(trained["data"], tmp_path / "some", *broken, *more)


def test_a_mask_is_refused_beside_the_gates_of_a_checkpoint_too(trained, tmp_path):
    """It would have been replaced by the learned set, and noted in the checkpoint nevertheless."""
    gated = [*DSP, "--heads-kept", "5", "--max-update", "1"]
    train(trained["data"], tmp_path / "gated", *gated)
    Mask.full(SHAPE).without([Part("enc_self", 0, 1)]).save(tmp_path / "mask.json")
    start = ["--finetune-from-model", tmp_path / "gated" / "checkpoint_last.pt", "--head-mask", tmp_path / "mask.json"]
    with pytest.raises(ValueError, match="omit the mask"):
        train(trained["data"], tmp_path / "masked", *gated, *start)


@pytest.mark.parametrize("flags", [[*DSP, "--heads-kept", "5"], PLAIN], ids=["gates", "mask"])
def test_moving_averages_of_masks_are_refused(trained, tmp_path, flags, monkeypatch):
    """fairseq multiplies every number in a state dict, a mask's bits too, and would end after the first update."""
    monkeypatch.chdir(tmp_path)
    Mask.full(SHAPE).without([Part("enc_self", 0, 1)]).save("mask.json")
    with pytest.raises(ValueError, match="--store-ema is not supported with"):
        train(trained["data"], tmp_path, *flags, "--store-ema")


def temperatures(save):
    return {line["update"]: line["temperature"] for line in read_log(save / "gates.jsonl")[1] if "kept" in line}


def test_a_longer_run_does_not_heat_up_again(trained, tmp_path, caplog):
    """With --tau-updates as a share, resuming with twice the updates would begin another schedule."""
    half = [*DSP[:2], "--gate-log-interval", "1", "--heads-kept", "5", "--tau-updates", "0.75"]
    train(trained["data"], tmp_path, *half)
    with caplog.at_level(logging.WARNING):
        train(trained["data"], tmp_path, *half, "--max-update", "24")
    found = temperatures(tmp_path)
    # By hand: 9 of 12 updates to fall from 0.1 to 1e-8; 18 of 24 would give 1.1e-6 after 13.
    assert list(found) == list(range(1, 25)) and found[9] == found[13] == found[24] == 1e-8
    assert "schedule that the checkpoint was trained with" in caplog.text and "'tau_updates': 9" in caplog.text


def test_fine_tuning_begins_a_schedule_of_its_own(trained, tmp_path):
    """The trainer begins at update 0, and so does the temperature; the gates' weights are the checkpoint's."""
    flags = [*DSP, "--heads-kept", "5"]
    first = train(trained["data"], tmp_path / "first", *flags)
    start = ["--finetune-from-model", tmp_path / "first" / "checkpoint_last.pt", "--max-update", "2"]
    train(trained["data"], tmp_path / "second", *flags, *start, "--gate-lr", "1e-9", "--lr", "1e-9")
    found = temperatures(tmp_path / "second")
    # By hand, eq. 24: 0.1 falls to 1e-8 in 4 updates, so by a factor of 10 ** 1.75 in each.
    assert found == pytest.approx({1: 10**-2.75, 2: 10**-4.5})
    second = read_state(tmp_path / "second" / "checkpoint_last.pt")
    assert first["model"]["head_gates.weight"].tolist() == pytest.approx(second["model"]["head_gates.weight"].tolist())
    assert second["model"]["head_gates.updates"] == 2


def test_a_short_run_with_a_target_is_warned_of(caplog):
    # By hand: 12 updates at 0.02; 20 / 0.02 = 1000.
    criterion = L0Criterion()
    criterion.gate_config = L0Config(l0_target_heads="6")
    with caplog.at_level(logging.WARNING):
        criterion.rule(HEADS, 12)
    assert "12 updates at --gate-lr 0.02 may not reach the number: give 1000 updates" in caplog.text


def test_the_length_of_a_run():
    # By hand: 4 batches are 4 updates in the first epoch, 1 in each of the three others.
    assert updates_in_epochs(4, [1, 4], 4) == 7
    assert updates_in_epochs(5, [2], 3) == 9 and updates_in_epochs(5, [], 2) == 10
    flags = SimpleNamespace(max_update=0, max_epoch=4, update_freq=[1, 4])
    assert run_length(flags, 4) == 7 and run_length(flags, None) is None
    flags.max_update = 6
    assert run_length(flags, 4) == 6


HEADS = all_heads(SHAPE)
REFUSED = [
    (DSPConfig(), "need --heads-kept K"),
    (DSPConfig(heads_kept="2.5"), "--heads-kept 2.5: not a number of heads"),
    (DSPConfig(heads_kept="enc=3"), "--heads-kept enc=3: name each of enc_self"),
    (DSPConfig(heads_kept="13"), "--heads-kept: cannot keep 13 heads of 12"),
    (DSPConfig(heads_kept="5", tau_start=0.0), "tau-start 0: a temperature must be finite and above 0"),
    (DSPConfig(heads_kept="5", tau_start=0.1, tau_end=1.0), "tau-start 0.1 is below tau-end 1"),
    (DSPConfig(heads_kept="5", straight_through=True, tau_updates=4.0), "has no temperature: omit --tau-updates"),
    (DSPConfig(heads_kept="5", straight_through=True, tau_wait=4.0), "has no temperature: omit --tau-wait"),
    (DSPConfig(heads_kept="5", straight_through=True, gate_noise="cooling"), "is always or never there"),
    (DSPConfig(heads_kept="5", tau_wait=-1.0), "--tau-wait -1: give a number of updates, or a share"),
    (DSPConfig(heads_kept="5", gate_lr=0.0), "--gate-lr 0: "),
    (DSPConfig(heads_kept="5", gate_lr=math.inf), "--gate-lr inf: "),
    (DSPConfig(heads_kept="5", gate_init=math.nan), "--gate-init nan: "),
    (DSPConfig(heads_kept="5", gate_seed=-1), "--gate-seed -1: a seed must be 0 or more"),
    (L0Config(l0_penalty=1.0, gate_init=math.inf), "--gate-init inf: "),
    (L0Config(), "one of --l0-penalty LAMBDA and --l0-target-heads K"),
    (L0Config(l0_penalty=1.0, l0_target_heads="3"), "one of --l0-penalty LAMBDA and --l0-target-heads K"),
    (L0Config(l0_target_heads="13"), "--l0-target-heads: cannot keep 13"),
    (L0Config(l0_penalty=1.0, l0_beta=0.0), "--l0-beta 0: "),
    (L0Config(l0_penalty=-1.0), "--l0-penalty: an L0 penalty of -1"),
]


@pytest.mark.parametrize("config, words", REFUSED, ids=[words for _, words in REFUSED])
def test_errors_name_the_flag(config, words):
    criterion = SubsetCriterion() if isinstance(config, DSPConfig) else L0Criterion()
    criterion.gate_config = config
    with pytest.raises(ValueError, match=words):
        criterion.rule(HEADS, 12)


def test_the_gates_learning_rate_scales_with_the_length_of_the_run():
    """Table 2: 0.2 over 15,000 updates of cooling; in 750, a quarter of 3,000, 20 times that."""
    criterion = SubsetCriterion()
    for more, rate in (({}, 0.2), ({"scale_gate_lr": True}, 4.0), ({"scale_gate_lr": True, "gate_lr": 0.1}, 2.0)):
        criterion.gate_config = DSPConfig(heads_kept="5", **more)
        assert criterion.gate_rate(criterion.rule(HEADS, 3000)) == pytest.approx(rate)
    criterion.gate_config = DSPConfig(heads_kept="5", tau_wait=0.1)
    assert criterion.rule(HEADS, 3000).temperature.wait == 300


def test_components_that_are_not_there_are_refused():
    for asked, error in (("decoder", KeyError), ("dec_self", ValueError)):
        criterion = L0Criterion()
        criterion.gate_config = L0Config(gate_components=asked)
        with pytest.raises(error, match=asked):
            criterion.candidates([head for head in HEADS if head.component != "dec_self"])


@pytest.mark.parametrize(
    "flags, words",
    [(L0, "one of --l0-penalty"), ([*DSP, "--heads-kept", "5", "--gates-only"], "--finetune-from-model")],
)
def test_wrong_flags_end_before_the_first_update(trained, tmp_path, flags, words):
    with pytest.raises(ValueError, match=words):
        train(trained["data"], tmp_path, *flags)
    assert not list(tmp_path.glob("*.pt"))


def test_fine_tuning_takes_another_form_of_target(trained, tmp_path):
    train(trained["data"], tmp_path / "each", *L0, "--l0-target-heads", "enc_self=2,enc_dec=2,dec_self=2")
    start = ["--finetune-from-model", tmp_path / "each" / "checkpoint_last.pt", "--max-update", "2"]
    state = train(trained["data"], tmp_path / "all", *L0, "--l0-target-heads", "6", *start)
    # One price for all heads and its unit, where there were three and one.
    assert state["model"]["head_gates.multipliers"].shape == (2,) and state["model"]["head_gates.updates"] == 2
    state = train(trained["data"], tmp_path / "fixed", *L0, "--l0-penalty", "0.1", *start)
    assert state["model"]["head_gates.updates"] == 2
