"""The examples' scripts that train: on a tiny model, as results are made."""

import io
import os
import shutil
import subprocess
from contextlib import redirect_stdout

import pytest
import tiny
from test_stored_results import commits
from trainings import Here

from fairseq_headprune.cli import main
from fairseq_headprune.files import read_json
from fairseq_headprune.jobs import processes
from fairseq_headprune.studies.stored import recomputed_p

#: of the examples' own architectures, two layers of two heads
SMALL = "--max-update 4 " + " ".join(
    f"--{side}-layers 2 --{side}-embed-dim 32 --{side}-ffn-embed-dim 32 --{side}-attention-heads 2"
    for side in ("encoder", "decoder")
)

pytestmark = pytest.mark.slow


@pytest.fixture
def prepared(data_bin, tmp_path):
    """The made-up task as prepare.sh leaves a corpus: de-en, and the text of the test set."""
    folder = tmp_path / "out"
    (folder / "text").mkdir(parents=True)
    (folder / "data-bin").mkdir()
    for path in data_bin.glob("*.*"):
        shutil.copy(path, folder / "data-bin" / path.name.replace("xx", "de").replace("yy", "en"))
    text = (data_bin.parent / "test.yy").read_text()
    (folder / "text" / "test2016.en").write_text(text)
    return folder


def done_here(command):
    """Do a job of evidence.py: trainings in a process of their own, the rest in this one, which saves seconds."""
    words = command.words[len(processes.leashed([])) :]
    if words[0] == "bash":
        subprocess.run(words, env=processes.with_package(os.environ) | command.settings, check=True)
        return
    module, words = words[2], words[3:]
    with redirect_stdout(io.StringIO()) as output:
        if module == "fairseq_cli.generate":
            print(tiny.fairseq_here("generate", *words))
        else:
            assert main(words) == 0
    command.output.parent.mkdir(exist_ok=True)
    command.output.write_text(output.getvalue())


def test_trainings_in_several_precisions(data_bin, tmp_path):
    precision = tiny.example_script("multi30k/precision.py")
    precision.HEADS = 6
    places = ["--prepared", data_bin.parent, "--work", tmp_path / "work", "--out", tmp_path]
    words = [*places, "--updates", "3", "--train-flags=--arch transformer_gated_tiny"]
    assert tiny.run_main(precision, *words) == 0
    found = read_json(tmp_path / "precision.json")
    plain, brain = found["runs"]
    # By hand: one update of the gates for each of the model.
    assert plain["run"] == "DSP" and plain["updates"] == plain["gate_updates"] == 3 and plain["valid_loss"] > 0
    assert plain["skipped_or_repeated"] == 0 and brain["run"] == "DSP --bf16" and "updates" not in brain
    # Source: fairseq, which takes the flag for a TPU.
    assert "xla_device" in brain["error"]
    assert "--heads-kept 6" in plain["command"] and str(tmp_path) not in str(found["runs"])
    assert {"dict.xx.txt", "train.xx-yy.xx.bin", "valid.xx-yy.yy.idx", "test.xx-yy.xx.bin"} <= set(found["data_files"])
    assert found["environment"]["command"].startswith("precision.py") and found["environment"]["git"]


def test_gates_at_two_lambdas(prepared, tmp_path):
    gates = tiny.example_script("multi30k/gates.py")
    places = ["--prepared", prepared, "--work", tmp_path / "work", "--out", tmp_path]
    few = ["--updates", "4", "--jobs", "2", "--counts", "--lambdas", "0.01", "0.1"]
    tiny.run_main(gates, *places, *few, f"--train-flags={SMALL}")
    found = read_json(tmp_path / "lambda.json")
    # Source: the flags; 12 heads in all.
    assert [point["penalty"] for point in found["heads_by_penalty"]] == [0.01, 0.1]
    assert {run["heads"] for run in found["runs"]} == {12} and "train.de-en.de.bin" in found["data_files"]
    assert found["environment"]["git"] and (tmp_path / "lambda.png").exists()
    assert str(tmp_path) not in str(found)


def test_all_stages_at_once_and_again(prepared, tmp_path):
    evidence = tiny.example_script("multi30k/evidence.py")
    evidence.SETS, evidence.STUDIES = {"test2016": "test"}, {"prune-all": ["--components", "all"]}
    places = ["--prepared", prepared, "--work", tmp_path / "work", "--out", tmp_path / "results"]
    words = ["train", "evaluate", "prune", *places, "--seeds", "1", f"--train-flags={SMALL}"]
    jobs = Here(done_here)
    with jobs.instead():
        tiny.run_main(evidence, *words)
    found = {path.stem: read_json(path) for path in (tmp_path / "results").glob("*.json")}
    assert set(found) == {"train", "compare-models", "compare-steps", "scores", "prune-all"}
    assert all(list(commits(value)) for value in found.values())
    # By hand: fairseq's own model is trained by fairseq's own task, both for as long.
    stock, gated = found["train"]["runs"]
    assert [row["best_update"] for row in (stock, gated)] == [4, 4] and "gated" in gated["arch"]
    files = {"dict.de.txt", "train.de-en.de.bin", "valid.de-en.en.bin", "test.de-en.en.bin"}
    assert files <= set(found["train"]["data_files"])
    for name, origin in (("scores", found["scores"]["origin"]), ("prune-all", found["prune-all"])):
        assert origin["updates"] == 4 and files <= set(origin["data_files"]), name
    for name, tests in (("compare-models", 1), ("compare-steps", 5), ("prune-all", 10)):
        assert len(recomputed_p(found[name])) == tests
    assert str(tmp_path) not in str(found)
    # Again: the models are there, only what is missing is made.
    jobs.started.clear()
    (tmp_path / "work" / "compare-steps.json").unlink()
    with jobs.instead():
        tiny.run_main(evidence, *words)
    assert jobs.started == ["compare-steps"]
