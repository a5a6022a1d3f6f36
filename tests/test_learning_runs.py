"""Runs that learn gates and are killed, resumed, or spread over two processes."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import tiny
from learning import DSP, L0, flags, gate_state, same, train, weights

from fairseq_headprune.checkpoints import read_state

PROGRAM = "from fairseq_cli.train import cli_main; cli_main()"


def start(data, save, *more):
    """Start fairseq-train in a process of its own."""
    env = {**os.environ, "PYTHONPATH": str(tiny.ROOT), "OMP_NUM_THREADS": "1"}
    words = [data, "--user-dir", tiny.ROOT / "fairseq_headprune", "--save-dir", save, *flags(*more)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", PROGRAM, *map(str, words)], env=env, **quiet)


def kill_at(process, log, update):
    """SIGKILL a training once its log tells that an update is done."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        lines = log.read_text().splitlines() if log.exists() else []
        if any(json.loads(line).get("update", 0) >= update for line in lines if line.endswith("}")):
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.01)
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
    words = [trained["data"], "--user-dir", tiny.ROOT / "fairseq_headprune", "--save-dir", tmp_path / "two"]
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
