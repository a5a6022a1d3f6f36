"""A training as a job: its command, its folder, sharing with other processes, and going on after it has died."""

import contextlib
import gc
import os
import signal
import threading
import time
from pathlib import Path

import pytest
import tiny
import torch
from learning import same, weights
from trainings import Here

from fairseq_headprune.checkpoints import read_state
from fairseq_headprune.files import read_json, write_json
from fairseq_headprune.jobs import train
from fairseq_headprune.jobs.claims import Claims
from fairseq_headprune.jobs.training import Run, TrainingJob, run_trainings
from fairseq_headprune.parts import Mask

pytestmark = pytest.mark.slow  # trains models

MASK = Mask.full({"enc_self": [2]}).to_dict()


def shown(**more):
    return TrainingJob("a", "/data/bin", ["--lr", "1"], 3, **more).shown({"/m/model.pt": "model.pt"}).split()


def test_the_command_follows_from_the_job():
    base = "python -m fairseq_cli.train bin --user-dir fairseq_headprune --seed 3 --save-dir runs/a".split()
    assert shown() == [*base, "--no-epoch-checkpoints", "--lr", "1"]
    once = shown(resumable=False)
    assert once[len(base) :] == "--no-epoch-checkpoints --no-last-checkpoints --no-save-optimizer-state --lr 1".split()
    masked = shown(mask=MASK, start="/m/model.pt")
    assert masked[-4:] == "--head-mask runs/a/mask.json --finetune-from-model model.pt".split()
    # By hand: what is not in places, too, is shown without the machine's folders.
    assert shown(start="/m/other.pt")[-1] == "other.pt" and shown(start="runs/b/c.pt")[-1] == "runs/b/c.pt"
    inside = TrainingJob("a", "data", ["--ticket", "/w/ticket.pt"], 3, root="/w/").shown({}).split()
    assert inside[-1] == "ticket.pt" and inside[8:10] == ["--save-dir", "runs/a"]
    slim = shown(mask=MASK, start="/m/model.pt", slim=True)
    assert slim[-2:] == ["--finetune-from-model", "runs/a/start.pt"] and "--head-mask" not in slim


def test_the_same_job_goes_on_and_another_one_begins_anew(tmp_path):
    run, job = Run(tmp_path, "runs/a"), TrainingJob("a", "data", ["--lr", "1"], 3, mask=MASK)
    run.prepare(job)
    assert run.reached() is None and run.job() == job and read_json(run.mask) == MASK
    run.last.write_text("epoch 1")
    before = run.reached()
    os.utime(run.last, (1, 1))
    assert before and run.reached() != before
    run.prepare(job)
    assert run.last.exists()
    run.prepare(TrainingJob("a", "data", ["--lr", "2"], 3))
    assert not run.last.exists()


def test_jobs_wait_for_what_they_start_from_and_each_is_done_once(tmp_path):
    """The jobs are files: each notes what was done when it started."""
    names = ["needy", "base", "other"]
    jobs = [TrainingJob(name, "data", [], 1, after="base" if name == "needy" else None) for name in names]
    other = Claims(tmp_path)
    assert other.take(["other"], tuple) == ["other"]

    def do(command):
        write_json(Run(Path(), command.words[-1]).facts, {"updates": 7})
        if command.name == "needy":
            # The other process finishes its job only now.
            write_json(Run(tmp_path, "runs/other").folder / "done.json", {"by": "another"})

    Run(tmp_path, "runs/other").prepare(jobs[2])
    with Here(do).instead() as here:
        found = {job.name: facts for job, facts in run_trainings(jobs, tmp_path, Claims(tmp_path), 1, set)}
    assert here.started == ["base", "needy"] == list(found)
    assert found["base"]["updates"] == 7 and found["base"]["command"].startswith("python -m fairseq_cli.train data")
    with Here(do).instead() as here:
        assert list(run_trainings(jobs, tmp_path, Claims(tmp_path), 1, lambda: names)) == [] and here.started == []
        # What is done, but not yet taken over by its study, is given back without being done again.
        [(job, facts)] = run_trainings(jobs, tmp_path, Claims(tmp_path), 1, lambda: {"base", "other"})
    assert job.name == "needy" and facts == found["needy"] and here.started == []


def kill_training(folder):
    """Kill the training that runs in a folder as soon as it has saved an epoch."""
    while not (folder / "runs/a/checkpoint_last.pt").exists():
        time.sleep(0.01)
    for process in Path("/proc").glob("[0-9]*"):
        # Processes end while they are listed.
        with contextlib.suppress(OSError):
            if (process / "cwd").readlink() == folder:
                os.kill(int(process.name), signal.SIGKILL)


def test_a_training_that_is_killed_goes_on_from_its_last_epoch(data_bin, tmp_path, monkeypatch, capfd):
    """Its model is that of a training that was never killed; one that fails at once is given up."""
    flags = "--task translation_headprune --arch transformer_gated_tiny --share-all-embeddings --cpu --optimizer adam "
    flags += "--lr 0.01 --batch-size 16 --num-workers 0 --max-epoch 4"
    job = TrainingJob("a", str(data_bin), flags.split(), 1, split="test", generate=[str(data_bin), "--cpu"])
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    killed.mkdir()
    whole.mkdir()
    threading.Thread(target=kill_training, args=[killed], daemon=True).start()
    [(_, facts)] = run_trainings([job], killed, Claims(killed), 1, set)
    assert "a died (" in capfd.readouterr().err and facts["resumed"] and facts["updates"] > 4
    with Here().instead():
        [(_, expected)] = run_trainings([job], whole, Claims(whole), 1, set)
    states = [read_state(folder / facts["checkpoint"]) for folder in (killed, whole)]
    assert same(*map(weights, states)) and "resumed" not in expected
    answers = [(folder / "runs/a/hypotheses.txt").read_text() for folder in (killed, whole)]
    assert answers[0] == answers[1] and answers[0].count("\n") == 8
    broken = TrainingJob("b", str(data_bin), [*flags.split(), "--no-such-flag"], 1)
    with pytest.raises(RuntimeError, match="unrecognized arguments: --no-such-flag"):
        list(run_trainings([broken], killed, Claims(killed), 1, set))
    assert capfd.readouterr().err.count("b died (") == 1


def test_a_broken_last_checkpoint_is_replaced_by_the_newest_that_can_be_read(tmp_path, capfd):
    """The files are made by hand; half of one is what a kill during fairseq's copy leaves."""
    run = Run(tmp_path, "runs/a")
    run.prepare(TrainingJob("a", "data", [], 1))
    write(run.folder / "checkpoint_1_3.pt", updates=3, at=1)
    write(run.best, updates=7, at=2)
    write(run.folder / "checkpoint2.pt", updates=9, at=3, whole=False)
    write(run.last, updates=9, at=4)
    train.mend(run)
    assert updates(run.last) == 9 and capfd.readouterr().err == ""
    write(run.last, updates=9, at=4, whole=False)
    train.mend(run)
    assert updates(run.last) == 7
    said = f"{run.last} cannot be read (killed while it was written?); "
    assert capfd.readouterr().err == said + "goes on from checkpoint_best.pt\n"
    for path in run.folder.glob("*.pt"):
        path.write_bytes(b"")
    train.mend(run)
    assert not run.last.exists()
    assert capfd.readouterr().err == said + "and no other checkpoint can: the training begins anew\n"


def write(path, updates, at, whole=True):
    torch.save({"model": {}, "cfg": {}, "optimizer_history": [{"num_updates": updates}]}, path)
    if not whole:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    os.utime(path, (at, at))


def updates(path):
    return read_state(path)["optimizer_history"][-1]["num_updates"]


def test_processes_that_load_batches_end_at_once():
    """By hand: collected in a reference cycle, a DataLoader of torch waits 5 seconds for its process."""
    loader = torch.utils.data.DataLoader(list(range(4)), num_workers=1, persistent_workers=True)
    assert [int(batch) for batch in loader] == [0, 1, 2, 3]
    loader._iterator.cycle, [process] = loader._iterator, loader._iterator._workers
    began = time.monotonic()
    train.end_loaders()
    assert not process.is_alive() and process.exitcode == 0
    del loader, process
    gc.collect()
    assert time.monotonic() - began < 4


def test_a_training_does_not_load_the_compiler():
    code = "import sys, torch; from fairseq_headprune.jobs import train; train.skip_dynamo()\n"
    code += "torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))]).zero_grad(); print('torch._dynamo' in sys.modules)"
    assert tiny.run_python("-c", code).stdout.split() == ["False"]
