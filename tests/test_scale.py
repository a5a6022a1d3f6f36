"""Studies on several processes: workers, torchrun, submitit's local executor and a real Slurm, with kills."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import slurm_node
import tiny
import torch
from living import happens
from verbs import BEAM, living_workers, refused, run_json

from fairseq_headprune.cli import main
from fairseq_headprune.evaluation.translate import Translator
from fairseq_headprune.jobs import processes, submitted
from fairseq_headprune.studies.folder import StudyFolder


def start(*argv, run=("-m", "fairseq_headprune")):
    command = [sys.executable, *run, *map(str, argv)]
    return subprocess.Popen(command, env=tiny.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def same_study(found, expected):
    """Whether two folders hold the same cells (apart from their time and order), masks and hypotheses."""
    cells = [StudyFolder(folder).cells() for folder in (found, expected)]
    for cell in (*cells[0].values(), *cells[1].values()):
        cell.pop("seconds")
    parts = [
        {path.name: path.read_bytes() for part in ("masks", "hyps") for path in (folder / part).glob("[!.]*")}
        for folder in (found, expected)
    ]
    return cells[0] == cells[1] and parts[0] == parts[1]


def never(*_):
    raise AssertionError("this process has nothing to compute")


def done(folder):
    path = folder / "cells.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_a_killed_study_takes_its_workers_along_and_goes_on(flags, ablated, tmp_path):
    folder = tmp_path / "s"
    for cells in (1, 4):
        study = start("ablate", *flags, "-o", folder, "--jobs", "2")
        assert happens(lambda cells=cells: done(folder) >= cells, process=study)
        study.kill()
        study.communicate()
        # Whatever its worker was about, it ends with its parent.
        assert happens(lambda: not living_workers(folder))
    document, expected = run_json("ablate", *flags, "-o", folder), ablated["document"]
    assert same_study(folder, ablated["folder"]) and document["found"] == expected["found"]
    assert [c["p_holm"] for c in document["cells"]] == [c["p_holm"] for c in expected["cells"]]


def test_jobs_start_workers_that_get_their_share_of_gpus_or_threads(tmp_path):
    # Source: by hand; this process has the first GPU.
    study = StudyFolder.open(tmp_path / "s", {})
    code = "import os; print([os.environ.get(n) for n in ('CUDA_VISIBLE_DEVICES', 'HEADPRUNE_JOBS_ON_GPU')])"
    for devices, expected in ((["3", "5"], ["5", "3", "5"]), ([], [None] * 3)):
        settings = [processes.place(number, devices, 4, {}) for number in (1, 2, 3)]
        assert [entry.get("CUDA_VISIBLE_DEVICES") for entry in settings] == expected
        assert all("OMP_NUM_THREADS" in entry for entry in settings) == (not devices)
    with processes.processes([sys.executable, "-c", code], 1, study.path, ["7"], 1):
        assert happens(lambda: processes.last_line(study.path / "workers" / "1.log"))
    assert processes.last_line(study.path / "workers" / "1.log") == "['7', '2']"


def test_a_worker_that_fails_is_named_and_the_study_is_done(flags, ablated, tmp_path, monkeypatch, capsys):
    code = "import sys; sys.exit('no memory')"
    monkeypatch.setattr(processes, "worker_command", lambda *_: [sys.executable, "-c", code])
    run_json("ablate", *flags, "-o", tmp_path / "s", "--jobs", "2")
    assert "worker 1 ended early (no memory)" in capsys.readouterr().err
    assert same_study(tmp_path / "s", ablated["folder"])


def test_prune_and_keep_one_are_divided_too(flags, tmp_path, monkeypatch, capsys):
    # Source: the studies of one process. Two workers share a pruning study, whose scores only one of them estimates.
    prune = ["prune", *flags, "--step", "25%", "--score-sentences", "20"]
    pair = [start(*prune, "-o", tmp_path / "prune", "--worker") for _ in range(2)]
    assert [process.communicate()[0] for process in pair] == ["", ""]
    keep_one = ["keep-one", *flags, "--components", "dec_self", "--select-subset", "valid"]
    capsys.readouterr()
    assert main([*map(str, keep_one), "-o", str(tmp_path / "keep-one"), "--worker"]) == 0
    assert capsys.readouterr().out == ""
    # By hand: 4 steps, and 4 heads on valid and 2 layers on test, with their unpruned cells.
    for argv, count in ((prune, 5), (keep_one, 8)):
        folder = tmp_path / argv[0]
        assert done(folder) == count
        with monkeypatch.context() as patch:
            patch.setattr(Translator, "answers", never)
            run_json(*argv, "-o", folder)
        run_json(*argv, "-o", tmp_path / "alone" / argv[0])
        assert same_study(folder, tmp_path / "alone" / argv[0])


def test_epochs_are_divided(flags, lively, tmp_path, monkeypatch):
    for epoch in (1, 2, 3):
        os.link(lively["checkpoint"], tmp_path / f"checkpoint{epoch}.pt")
    argv = ["sweep-epochs", flags[0], *BEAM, "--checkpoints", tmp_path, "--step", "1", "--score-sentences", "20"]
    pair = [start(*argv, "-o", tmp_path / "s", "--worker") for _ in range(2)]
    assert [process.communicate()[0] for process in pair] == ["", ""]
    claims = [json.loads(line) for line in (tmp_path / "s" / "claims.jsonl").read_text().splitlines()]
    # Source: by hand: one pack an epoch, each claimed once.
    assert sorted(name for claim in claims for name in claim["cells"]) == ["epoch-001", "epoch-002", "epoch-003"]
    monkeypatch.setattr(Translator, "answers", never)
    document = run_json(*argv, "-o", tmp_path / "s")
    assert [row["epoch"] for row in document["epochs"]] == [1, 2, 3]


def torchrun(*argv):
    ranks = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m", "fairseq_headprune")
    process = start(*argv, "--json", run=ranks)
    out, err = process.communicate()
    assert process.returncode == 0, err
    return json.loads(out)


def test_torchrun_divides_cells(flags, ablated, tmp_path):
    document = torchrun("ablate", *flags, "-o", tmp_path / "s")
    assert same_study(tmp_path / "s", ablated["folder"])
    assert document["found"] == ablated["document"]["found"]


@pytest.mark.parametrize("estimator", ["gradient", "confidence"])
def test_torchrun_divides_sentences(flags, estimator):
    # Source: one process; 60 sentences in batches of 7 are an uneven number of batches.
    torch.set_num_threads(1)
    argv = ["score", *flags[:3], "--cpu", "--batch-size", "7", "--estimator", estimator]
    assert torchrun(*argv) == run_json(*argv)


def test_submitits_local_executor(flags, ablated, tmp_path, monkeypatch):
    pytest.importorskip("submitit")
    monkeypatch.setattr(Translator, "answers", never)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    run_json("ablate", *flags, "-o", tmp_path / "s", "--launcher", "local", "--jobs", "2")
    assert same_study(tmp_path / "s", ablated["folder"])


def test_jobs_that_achieve_nothing_end_the_study(flags, tmp_path, monkeypatch, capsys):
    pytest.importorskip("submitit")
    monkeypatch.setattr(submitted, "LOOK", 0.1)
    code = "import sys; sys.exit('no such partition of memory')"
    monkeypatch.setattr(processes, "worker_command", lambda *_: [sys.executable, "-c", code])
    argv = ["ablate", *map(str, flags), "-o", str(tmp_path / "s"), "--launcher", "local"]
    assert main(argv) == 1
    assert "all local jobs ended without finishing a cell: " in capsys.readouterr().err


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """A cluster of one node."""
    reason = slurm_node.why_not()
    if reason:
        pytest.skip(reason)
    with slurm_node.running(tmp_path_factory.mktemp("slurm")):
        yield


def test_a_real_slurm_runs_the_study_and_a_killed_job_is_replaced(slurm, flags, ablated, tmp_path):
    folder = tmp_path / "s"
    argv = ["ablate", *flags, "-o", folder, "--launcher", "slurm", "--partition", "short", "--time", "10", "--json"]
    environment = tiny.environment()
    command = [sys.executable, "-m", "fairseq_headprune", *map(str, argv)]
    study = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert happens(lambda: done(folder) >= 2, process=study)
    # SIGKILL to the job's processes: the worker and submitit's process that started it. Neither can report anything.
    [name] = living_workers(folder)
    worker = int(name.split("-")[-2])
    parent = int(Path(f"/proc/{worker}/stat").read_text().rsplit(")", 1)[1].split()[1])
    for process in (parent, worker):
        os.kill(process, signal.SIGKILL)
    out, err = study.communicate(timeout=300)
    assert study.returncode == 0, err
    assert err.count("slurm jobs ") == 2
    assert json.loads(out)["found"] == ablated["document"]["found"]
    assert same_study(folder, ablated["folder"])
    # Source: by hand: the unpruned cell and 12 heads, none twice.
    assert done(folder) == 13


def test_the_queue_knows_which_jobs_are_left(slurm):
    sent = subprocess.run(
        ["sbatch", "--parsable", "--output=/dev/null", "--wrap", "sleep 100"], capture_output=True, text=True
    )
    job = sent.stdout.strip()
    assert submitted.queued([job, "99999"]) == {job} and submitted.queued(["99999"]) == set()
    subprocess.run(["scancel", job], check=True)
    assert happens(lambda: submitted.queued([job]) == set())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--jobs", "0"], "--jobs must be at least 1"),
        (["--partition", "x"], "--partition is for --launcher slurm"),
        (["--launcher", "slurm", "--time", "0"], "--time must be at least 1 minute"),
        (["--launcher", "pbs"], "invalid choice"),
    ],
)
def test_wrong_input_is_refused(flags, wrong, message, tmp_path, capsys):
    assert message in refused(capsys, "ablate", *flags, "-o", tmp_path / "s", *wrong)
    assert not (tmp_path / "s").exists()


def test_slurm_without_a_cluster_is_refused(flags, tmp_path, capsys, monkeypatch):
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("sbatch", "srun", "squeue"):
        (programs / name).write_text("#!/bin/sh\necho 'squeue: error: no configuration' >&2\nexit 1\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    line = refused(capsys, "ablate", *flags, "-o", tmp_path / "s", "--launcher", "slurm")
    assert "no cluster answers here (squeue: error: no configuration); run this where jobs are submitted" in line
    assert not (tmp_path / "s").exists()


def test_what_does_not_go_together_is_refused(flags, tmp_path, capsys, monkeypatch):
    argv = [*flags, "-o", tmp_path / "s"]
    assert "run it as one process" in refused(capsys, "prune", *argv, "--reestimate", "--jobs", "2")
    monkeypatch.setattr(submitted.shutil, "which", lambda name: None)
    assert "there is no sbatch" in refused(capsys, "ablate", *argv, "--launcher", "slurm")
    monkeypatch.setitem(sys.modules, "submitit", None)
    for launcher in ("local", "slurm"):
        assert "fairseq_headprune[slurm]" in refused(capsys, "ablate", *argv, "--launcher", launcher)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "omit --jobs and --launcher" in refused(capsys, "ablate", *argv, "--jobs", "2")
    assert not (tmp_path / "s").exists()
