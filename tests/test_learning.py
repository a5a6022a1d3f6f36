"""Gates that are learned by fairseq-train: joint, pipelined, killed, resumed, in two processes, and what comes out."""

import json
import logging
import signal
import subprocess
import sys

import pytest
import tiny
import torch
from fairseq.checkpoint_utils import load_model_ensemble_and_task
from fairseq.logging import metrics
from learning import DSP, L0, flags, gate_state, same, train, weights
from living import happens
from logged import OURS, program
from tiny import SHAPE
from verbs import generated

from fairseq_headprune.checkpoints import read_state, stored_layout, stored_mask
from fairseq_headprune.gates.log import NAME, read_log
from fairseq_headprune.modules.attach import find_gates
from fairseq_headprune.parts import Mask, Part
from fairseq_headprune.removal.average import average_checkpoints
from fairseq_headprune.removal.checkpoint import slim_checkpoint


@pytest.fixture(scope="module")
def joint(trained, tmp_path_factory):
    """Joint DSP from scratch, K = 5 of 12, three epochs."""
    save = tmp_path_factory.mktemp("joint")
    return {"data": trained["data"], "save": save, "state": train(trained["data"], save, *DSP, "--heads-kept", "5")}


def kept(state):
    """How many heads the mask of a checkpoint keeps, over all components."""
    return sum(n["kept"] for n in stored_mask(state).counts().values())


def test_the_checkpoint_holds_exactly_k_heads_and_the_gates(joint):
    assert kept(joint["state"]) == 5  # --heads-kept
    assert joint["state"]["model"]["head_gates.weight"].shape == (12,)  # 6 layers x 2 heads
    assert joint["state"]["model"]._metadata["head_gates"]["kind"] == "dsp"


def test_gates_and_weights_move(joint, trained, tmp_path):
    first = train(trained["data"], tmp_path / "one", *DSP, "--heads-kept", "5", "--max-update", "1")
    assert not same(gate_state(first), gate_state(joint["state"]))
    assert not same(weights(first), weights(joint["state"]))


def test_generation_uses_the_hard_mask_by_itself(joint, tmp_path):
    """Same translations as the same weights under the same mask given by hand; others than without a mask."""
    checkpoint = joint["save"] / "checkpoint_last.pt"
    stored_mask(joint["state"]).save(tmp_path / "mask.json")
    base = [joint["data"], "--path", checkpoint, "--task", "translation_headprune", "--cpu", "--max-len-b", "12"]
    found = generated("H", *base)
    assert found == generated("H", *base, "--head-mask", tmp_path / "mask.json")
    assert found != generated("H", *base, "--head-mask", "none")


def test_none_waives_the_mask_to_start_from_and_not_the_learned_set(joint, tmp_path):
    """The settings are saved with the checkpoint, and whoever rebuilds the task from there obeys them."""
    averaged, save = tmp_path / "averaged.pt", tmp_path / "save"
    average_checkpoints([joint["save"] / "checkpoint_last.pt"] * 2, averaged)  # 5 heads by a mask, no gates
    start = ["--finetune-from-model", averaged, "--head-mask", "none", "--max-update", "1"]
    state = train(joint["data"], save, *DSP, "--heads-kept", "3", *start)
    overrides = {"data": str(joint["data"])}
    (model,), *_ = load_model_ensemble_and_task([str(save / "checkpoint_last.pt")], overrides)
    assert find_gates(model).mask() == stored_mask(state) and kept(state) == 3  # --heads-kept


def test_with_k_of_all_heads_training_is_the_same_as_without_gates(trained, tmp_path):
    """Every gate is 1 then, and the gates draw from their own stream: not one bit of the weights may differ."""
    gated = train(trained["data"], tmp_path / "gated", *DSP, "--heads-kept", "12")
    stock = ["--criterion", "label_smoothed_cross_entropy"]
    plain = train(trained["data"], tmp_path / "plain", *stock)
    assert same(weights(gated), weights(plain))


def test_gates_only_changes_no_weight(trained, tmp_path):
    start = ["--finetune-from-model", trained["checkpoint"], "--gates-only", "--heads-kept", "5"]
    state = train(trained["data"], tmp_path, *DSP, *start, "--dropout", "0.0")
    before = read_state(trained["checkpoint"])
    assert same(weights(state), weights(before))
    assert kept(state) == 5
    first = train(trained["data"], tmp_path / "first", *DSP, *start, "--max-update", "1")
    assert not torch.equal(first["model"]["head_gates.weight"], state["model"]["head_gates.weight"])


def test_a_large_penalty_closes_every_gate_and_one_line_says_that_the_source_is_not_seen(trained, tmp_path, caplog):
    """One step of Adam moves a weight by about the learning rate: 12 steps of 1 lead from 2 to about -10."""
    with caplog.at_level(logging.WARNING):
        closed = train(trained["data"], tmp_path / "a", *L0, "--l0-penalty", "100", "--gate-lr", "1")
    assert caplog.text.count("no head of encoder-decoder attention") == 1
    assert kept(closed) == 0 and closed["model"]._metadata["head_gates"]["kind"] == "l0"
    assert (closed["model"]["head_gates.weight"] < -5).all()


def test_the_penalty_does_not_depend_on_the_batch(trained, tmp_path):
    """With a penalty that outweighs the task by far, the gates' path is the penalty's, whatever the batches."""
    big = [*L0, "--l0-penalty", "1e6", "--max-update", "3"]
    whole = gate_state(train(trained["data"], tmp_path / "a", *big))
    split = gate_state(train(trained["data"], tmp_path / "b", *big, "--batch-size", "4", "--update-freq", "4"))
    assert torch.allclose(whole["head_gates.weight"], split["head_gates.weight"], atol=1e-4)


def test_accumulated_batches_give_the_gradient_of_their_union(trained, tmp_path):
    """60 pairs in one batch, or in 4 batches of 15: the same gates after one update (no dropout)."""
    one = [*DSP, "--heads-kept", "5", "--dropout", "0", "--max-update", "1", "--required-batch-size-multiple", "1"]
    whole = gate_state(train(trained["data"], tmp_path / "a", *one, "--batch-size", "60"))
    parts = gate_state(train(trained["data"], tmp_path / "b", *one, "--batch-size", "15", "--update-freq", "4"))
    assert torch.allclose(whole["head_gates.exp_avg"], parts["head_gates.exp_avg"], rtol=1e-3, atol=1e-9)
    assert whole["head_gates.exp_avg"].abs().max() > 0


def test_validation_is_done_under_the_hard_mask(joint):
    """The logged loss of the last validation is what fairseq-validate finds for the checkpoint with its stored mask."""
    lines = [json.loads(line) for line in (joint["save"] / "gates.jsonl").read_text().splitlines()]
    logged = [line["valid"]["loss"] for line in lines if "valid" in line][-1]
    call = ["--path", joint["save"] / "checkpoint_last.pt", "--batch-size", "8", "--log-format", "json", *OURS]
    said, _ = program("validate", joint["data"], *call)
    [found] = [json.loads(line)["valid_loss"] for line in said if line.startswith('{"')]
    assert float(found) == pytest.approx(logged, abs=2e-3)


def test_the_log_holds_every_update_and_the_present_set(joint):
    lines = [json.loads(line) for line in (joint["save"] / "gates.jsonl").read_text().splitlines()]
    updates = [line for line in lines if "kept" in line]
    assert [line["update"] for line in updates] == list(range(1, 13))  # --gate-log-interval 1, --max-update 12
    assert all(sum(row.count("1") for rows in line["kept"].values() for row in rows) == 5 for line in updates)
    stored = stored_mask(joint["state"]).rows
    assert updates[-1]["kept"] == {c: ["".join(map(str, row)) for row in rows] for c, rows in stored.items()}
    assert set(updates[0]["kept"]) == set(SHAPE)


def test_masks_are_refused(trained, tmp_path):
    Mask.full(SHAPE).without([Part("enc_self", 0, 1)]).save(tmp_path / "mask.json")
    with pytest.raises(ValueError, match="headprune slim"):
        train(trained["data"], tmp_path, *DSP, "--heads-kept", "5", "--head-mask", tmp_path / "mask.json")


def test_gates_of_another_kind_or_count_are_refused(joint, trained, tmp_path):
    restore = ["--restore-file", joint["save"] / "checkpoint_last.pt", "--max-update", "20"]
    with pytest.raises(ValueError, match="dsp"):
        train(trained["data"], tmp_path / "a", *L0, "--l0-penalty", "1", *restore, "--reset-optimizer")
    with pytest.raises(ValueError, match="head"):
        train(trained["data"], tmp_path / "b", *DSP, "--heads-kept", "3", "--gate-components", "enc_self", *restore)


def test_slimming_carries_the_choice_out(joint, tmp_path):
    """The slim model has the 5 heads that were kept, and no gates any more; it translates as the masked one."""
    checkpoint, slim = joint["save"] / "checkpoint_last.pt", tmp_path / "slim.pt"
    slim_checkpoint(checkpoint, slim)
    state = read_state(slim)
    assert not gate_state(state) and "head_gates" not in state["model"]._metadata
    assert len(stored_layout(state).kept()) == 5  # --heads-kept
    base = [joint["data"], "--task", "translation_headprune", "--cpu", "--max-len-b", "12", "--path"]
    masked = generated("H", *base, checkpoint)
    assert masked == generated("H", *base, slim) != generated("H", *base, checkpoint, "--head-mask", "none")


def test_a_slim_model_learns_gates_for_the_heads_it_has(joint, tmp_path):
    """Of the 5 heads of the slim model 2 are chosen."""
    slim = tmp_path / "slim.pt"
    slim_checkpoint(joint["save"] / "checkpoint_last.pt", slim)
    start = ["--finetune-from-model", slim, "--max-update", "2"]
    state = train(joint["data"], tmp_path / "tuned", *DSP, "--heads-kept", "2", *start)
    assert state["model"]["head_gates.weight"].shape == (5,)  # one gate for each head that is there
    assert kept(state) == 2 and set(stored_mask(state).kept()) < set(stored_mask(read_state(slim)).kept())


def test_training_lines_show_the_gates_as_they_are(trained, tmp_path, monkeypatch):
    shown, smoothed = [], metrics.get_smoothed_values

    def show(name):
        values = smoothed(name)
        shown.extend([values] if name == "train_inner" else [])
        return values

    monkeypatch.setattr(metrics, "get_smoothed_values", show)
    train(trained["data"], tmp_path, *L0, "--l0-target-heads", "2", "--max-update", "7", "--log-interval", "1")
    # Source: the log of the gates, which has a line an update here.
    lines = {line["update"]: line["expected"] for line in read_log(tmp_path / NAME)[1] if "expected" in line}
    assert list(lines) == list(range(1, 8)) and len(shown) == 7
    for values, expected in zip(shown, lines.values(), strict=True):
        found = {component: values[f"expected_{component}"] for component in SHAPE}
        assert found == pytest.approx(expected, abs=1e-3)
    assert len({tuple(line.values()) for line in lines.values()}) == 7


PROGRAM = "from fairseq_cli.train import cli_main; cli_main()"


def start(data, save, *more):
    """Start fairseq-train in a process of its own."""
    words = [data, *tiny.PLUGIN, "--save-dir", save, *flags(*more)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", PROGRAM, *map(str, words)], env=tiny.environment(), **quiet)


def kill_at(process, log, update):
    """SIGKILL a training once its log tells that an update is done."""

    def is_done():
        lines = log.read_text().splitlines() if log.exists() else []
        return any(json.loads(line).get("update", 0) >= update for line in lines if line.endswith("}"))

    if happens(is_done, process=process):
        process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.returncode == -signal.SIGKILL, process.stderr.read().decode()[-2000:]


@pytest.mark.parametrize("method", [[*DSP, "--heads-kept", "5"], [*L0, "--l0-target-heads", "6"]], ids=["dsp", "l0"])
def test_a_killed_and_resumed_run_ends_like_one_that_was_not(trained, tmp_path, method):
    """Killed in epoch 6 and 9 of 12 (4 updates each), with a checkpoint every 3 updates; dropout is on."""
    more = [*method, "--max-update", "48", "--tau-updates", "40"] if "--heads-kept" in method else method
    more = [*more, "--max-update", "48", "--save-interval-updates", "3", "--keep-interval-updates", "1"]
    straight = train(trained["data"], tmp_path / "straight", *more)
    save = tmp_path / "killed"
    for update in (22, 34):
        kill_at(start(trained["data"], save, *more), save / "gates.jsonl", update)
        assert (save / "checkpoint_last.pt").exists()
    resumed = train(trained["data"], save, *more)
    assert same(weights(resumed), weights(straight))
    assert same(gate_state(resumed), gate_state(straight))
    # The log is the same, too: what the killed run wrote after its last checkpoint was dropped.
    logs = [(folder / "gates.jsonl").read_text().splitlines()[1:] for folder in (save, tmp_path / "straight")]
    assert logs[0] == logs[1]


def test_two_processes_share_one_update(trained, tmp_path):
    """Two ranks with half of each batch: half as many updates an epoch as one, and the gates of accumulated batches."""
    batch = ["--heads-kept", "5", "--dropout", "0", "--max-update", "4", "--clip-norm", "0"]
    words = [trained["data"], *tiny.PLUGIN, "--save-dir", tmp_path / "two"]
    words += flags(*DSP, *batch, "--max-epoch", "1")
    spread = "--ddp-backend legacy_ddp --distributed-world-size 2 --distributed-rank $RANK --distributed-no-spawn "
    spread += "--distributed-backend gloo --distributed-init-method env://"
    command = f'exec {sys.executable} -c "{PROGRAM}" {" ".join(map(str, words))} {spread}'
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "--no-python", "bash", "-c"]
    result = tiny.run_python(*launch, command)
    assert result.returncode == 0, result.stderr[-3000:]
    two = read_state(tmp_path / "two" / "checkpoint_last.pt")
    # 4 batches of 16 an epoch: 2 updates for two ranks.
    assert two["optimizer_history"][-1]["num_updates"] == 2
    assert int(two["model"]["head_gates.updates"]) == 2
    one = train(trained["data"], tmp_path / "one", *DSP, *batch, "--max-epoch", "1", "--update-freq", "2")
    # The ranks get the batches 1, 3 and 2, 4, as accumulation does in turn: the same sums in another order.
    left, right = two["model"]["head_gates.weight"], one["model"]["head_gates.weight"]
    assert (left - right).abs().max() < 1e-3
    assert same(gate_state(two).keys() and {"heads": left.argsort()}, {"heads": right.argsort()})
    # Resumed for a second epoch: one rank reads the checkpoint, and the other gets the gates from it.
    result = tiny.run_python(*launch, command.replace("--max-epoch 1", "--max-epoch 2"))
    assert result.returncode == 0, result.stderr[-3000:]
    two = read_state(tmp_path / "two" / "checkpoint_last.pt")
    assert int(two["model"]["head_gates.updates"]) == two["optimizer_history"][-1]["num_updates"] == 4
    assert two["model"]._metadata["head_gates"]["kind"] == "dsp"
