"""``scripts/compare_pruners.py`` on a tiny task; trainings and translations run in this process."""

import json
import runpy
import sys

import pytest
import tiny
from fairseq import checkpoint_utils
from fairseq.logging import metrics
from fairseq_cli import train
from learning import same, weights
from verbs import generated

from fairseq_headprune.checkpoints import read_state, stored_mask
from fairseq_headprune.comparison import driver, translate
from fairseq_headprune.comparison.masks import random_mask
from fairseq_headprune.comparison.methods import DEFAULT
from fairseq_headprune.comparison.runs import Run
from fairseq_headprune.files import read_json, read_lines
from fairseq_headprune.parts import Mask

SCRIPT = str(tiny.ROOT / "scripts" / "compare_pruners.py")
RECIPE = "--cpu --optimizer adam --lr 0.01 --batch-size 16 --share-all-embeddings --num-workers 0 --dropout 0.1 "
RECIPE += "--label-smoothing 0.1"
SHAPE = {"enc_self": [2, 2], "enc_dec": [2, 2], "dec_self": [2, 2]}
BEAM = ["--beam", "5", "--max-len-b", "10", "--cpu"]


def script(*words):
    """Run the script here; return its exit status."""
    before, sys.argv = sys.argv, [SCRIPT, *map(str, words)]
    try:
        runpy.run_path(SCRIPT, run_name="__main__")
    except SystemExit as leave:
        return leave.code or 0
    finally:
        sys.argv = before


class Here:
    """Stands in for ``run_commands``: runs trainings and translations in this process, and notes which."""

    def __init__(self):
        self.started = []

    def __call__(self, commands, at_once, prepare, limit=None):
        for command in commands:
            prepare(command.name)
            self.started.append(command.name)
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(command.cwd)
                if "fairseq_cli.train" in command.words:
                    # What fairseq keeps of one training for the next of the same process.
                    metrics.reset()
                    vars(checkpoint_utils.save_checkpoint).pop("best", None)
                    tiny.fairseq_here("train", *command.words[command.words.index("fairseq_cli.train") + 1 :])
                else:
                    translate.run(read_json(command.words[3]))
            yield command.name


def arguments(data, folder):
    settings = ["--arch", "transformer_gated_tiny", "--recipe", RECIPE, "--updates", "12", "--counts", "5"]
    settings += ["--step", "4", "--sentences", "20", "--resamples", "50", "--splits", "test,valid"]
    return [data, "--work", folder / "work", "--out", folder / "results" / "compare", *settings,
            "--generate-flags", " ".join(BEAM[2:])]  # fmt: skip


@pytest.fixture(scope="module")
def run(data_bin, tmp_path_factory):
    """A comparison of all methods at 5 of 12 heads: {"folder", "arguments", "value", "started"}."""
    folder = tmp_path_factory.mktemp("compare")
    words = arguments(data_bin, folder)
    with pytest.MonkeyPatch.context() as patch:
        here = Here()
        patch.setattr(driver, "run_commands", here)
        assert script(*words) == 0
    value = read_json(folder / "results" / "compare.json")
    return {"folder": folder, "arguments": words, "value": value, "started": here.started, "data": data_bin}


def rows(run):
    return {row["method"]: row for row in run["value"]["rows"]}


def test_every_method_is_trained_translated_and_tested(run):
    found = rows(run)
    assert list(found) == DEFAULT and len(run["value"]["rows"]) == len(DEFAULT)
    for method, row in found.items():
        # The number of heads asked for is the number that is kept.
        assert sum(mask.count("1") for layers in row["kept"].values() for mask in layers) == (row["count"] or 12)
        assert len(read_lines(run["folder"] / "work" / "hyps" / f"{row['id']}.txt")) == 8, method
    points = {point["method"]: point for point in run["value"]["points"]}
    assert all(("p_holm" in point) == (method != "unpruned") for method, point in points.items())
    assert run["value"]["environments"] and run["value"]["signature"].startswith("nrefs:1|")
    assert (run["folder"] / "results" / "compare-valid.json").exists()
    assert (run["folder"] / "results" / "compare.svg").exists()


def test_provenance_says_how_each_model_was_trained(run):
    found = rows(run)
    command = found["joint-dsp"]["training"]["command"]
    assert command.startswith("python -m fairseq_cli.train data-bin --user-dir fairseq_headprune ")
    assert "--heads-kept 5 --preset dsp-mt --tau-updates 0.25" in command and str(run["folder"]) not in command
    # 4 batches an epoch: pipelined DSP's one epoch, and 12 updates for the others at most.
    assert found["pipelined-dsp"]["best"]["updates"] == 4 and found["joint-dsp"]["best"]["updates"] in (8, 12)
    # All checkpoints of joint methods are from the second half of the run.
    assert all(found[m]["best"]["updates"] >= 6 for m in ("unpruned", "l0", "ste", "joint-dsp", "random-start"))
    assert found["michel"]["estimates"] == 2 and found["michel"]["training"] is None
    assert found["l0"]["changed"] == abs(found["l0"]["learned"] - 5) and found["ste"]["changed"] == 0


def test_pipelined_pruning_changes_no_weight_and_random_masks_are_trained_under(run):
    runs = run["folder"] / "work" / "runs"
    states = {n: read_state(runs / n / "checkpoint_best.pt") for n in ("unpruned-1", "pipelined-dsp-5-1")}
    assert same(weights(states["unpruned-1"]), weights(states["pipelined-dsp-5-1"]))
    drawn = random_mask(SHAPE, 5, 1)
    assert stored_mask(read_state(runs / "random-start-5-1" / "checkpoint_best.pt")) == drawn
    found = rows(run)
    assert found["random-start"]["kept"] == found["random-after"]["kept"]
    assert Mask.load(run["folder"] / "work" / "masks" / "random-after-5-1@test.json") == drawn


def test_translations_are_fairseq_s(run):
    """fairseq-generate on the checkpoint, which holds the learned set."""
    work = run["folder"] / "work"
    argv = [run["data"], "--path", work / "runs/joint-dsp-5-1/checkpoint_best.pt", "--task", "translation_headprune"]
    lines = generated("D", *argv, *BEAM, "--gen-subset", "valid")
    assert read_lines(work / "hyps" / "joint-dsp-5-1@valid.txt") == lines


def test_started_again_it_does_what_is_missing_and_no_more(run, monkeypatch, capsys):
    here = Here()
    monkeypatch.setattr(driver, "run_commands", here)
    assert script(*run["arguments"], "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert here.started == [] and [value["split"] for value in printed] == ["test", "valid"]
    assert printed[0] == run["value"] | {"command": run["value"]["command"] + " --json"}
    # One more number of heads for the ranking: no training, one translation process.
    assert script(*run["arguments"], "--counts", "5,2", "--methods", "unpruned,michel") == 0
    assert len(here.started) == 1 and here.started[0].startswith("translate-")
    kept = rows({"value": read_json(run["folder"] / "results" / "compare.json")})["michel"]["kept"]
    assert sum(mask.count("1") for layers in kept.values() for mask in layers) == 2


def test_a_stopped_training_goes_on(run, tmp_path, monkeypatch):
    """The checkpoint is that of the training that was never stopped, gates and dropout included, bit for bit."""

    def stop_in_the_third_epoch(cfg, trainer, task, iterator, train=train.train):
        if iterator.next_epoch_idx == 3:
            raise KeyboardInterrupt
        return train(cfg, trainer, task, iterator)

    words = [*arguments(run["data"], tmp_path), "--methods", "unpruned,joint-dsp", "--stages", "train"]
    monkeypatch.setattr(driver, "run_commands", Here())
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(train, "train", stop_in_the_third_epoch)
        script(*words)
    stopped, whole = tmp_path / "work" / "runs" / "unpruned-1", run["folder"] / "work" / "runs"
    assert (stopped / "checkpoint_last.pt").exists() and not (stopped / "done.json").exists()
    assert script(*words) == 0
    for name in ("unpruned-1", "joint-dsp-5-1"):
        found, expected = (read_state(f / name / "checkpoint_best.pt") for f in (stopped.parent, whole))
        assert same(weights(found), weights(expected)) and "last_optimizer_state" not in found
        # Nothing of what a training goes on from is left.
        left = {path.name for path in (stopped.parent / name).iterdir()} - {"gates.jsonl"}
        assert left == {"checkpoint_best.pt", "done.json"}
    assert read_json(stopped / "done.json")["resumed"]
    assert "resumed" not in read_json(stopped.parent / "joint-dsp-5-1" / "done.json")


def test_a_training_that_had_ended_is_not_started_again(run, tmp_path, monkeypatch):
    """Killed between the end of fairseq-train and what follows: an update more would be another model."""
    words = [*arguments(run["data"], tmp_path), "--methods", "unpruned", "--stages", "train"]
    monkeypatch.setattr(driver, "run_commands", Here())
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Run, "settle", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        script(*words)
    here = Here()
    monkeypatch.setattr(driver, "run_commands", here)
    assert script(*words) == 0 and here.started == []
    found = [folder / "work/runs/unpruned-1/checkpoint_best.pt" for folder in (tmp_path, run["folder"])]
    assert same(*(weights(read_state(path)) for path in found))


def test_other_settings_need_another_folder(run, capsys):
    assert script(*run["arguments"], "--updates", "20") == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert "updates is 12 there and 20 now" in line and line.startswith("compare_pruners.py: ")


@pytest.mark.parametrize(
    "more, message",
    [
        (["--counts", "13"], "--counts 13: the model has 12 heads"),
        (["--counts", "5,2,5"], "--counts: 5 is given twice"),
        (["--seeds", "1,1", "--dry-run"], "--seeds: 1 is given twice"),
        (["--seeds=-1", "--dry-run"], "--seeds: name one or more, each 0 or above"),
        (["--methods", "magic"], "unknown method 'magic'"),
        (["--jobs", "0"], "--jobs 0: it must be at least 1"),
        (["--stages", "cook"], "--stages cook: known are train"),
        (["--train-flags", "--no-such-flag 1"], "fairseq-train would refuse its flags: unrecognized"),
        (["--references", "a"], "1 --references for 2 --splits"),
        (["--references", "no-file,no-file"], "--references no-file: there is no such file"),
        (["--tokenize", "magic"], "--tokenize magic: known are none, zh"),
        (["--resamples", "0"], "--resamples 0: it must be at least 1"),
        (["--alpha", "3"], "--alpha must be between 0 and 1, got 3"),
        (["--splits", "nosplit"], "holds no nosplit.*"),
        (["--methods", "l0-lambda"], "--lambdas and the method l0-lambda go together"),
        (["--methods", "l0", "--lambdas", "0.1"], "--lambdas and the method l0-lambda go together"),
        (["--methods", "l0-lambda", "--lambdas", "0.1,-1", "--dry-run"], "--lambdas -1: a penalty must be finite"),
    ],
)
def test_wrong_flags_are_refused_before_anything_starts(data_bin, tmp_path, capsys, more, message):
    assert script(*arguments(data_bin, tmp_path), *more) == 2
    assert message in capsys.readouterr().err.splitlines()[-1] and not (tmp_path / "work").exists()


def test_dry_run_prints_the_commands(data_bin, tmp_path, capsys):
    assert script(*arguments(data_bin, tmp_path), "--dry-run") == 0
    value = json.loads(capsys.readouterr().out)
    assert value["shape"] == SHAPE and not (tmp_path / "work").exists()
    found = {training["name"]: training for training in value["trainings"]}
    assert list(found) == [f"{name}-1" for name in ("unpruned", "pipelined-dsp-5", "l0-5", "ste-5", "joint-dsp-5",
                                                    "random-start-5")]  # fmt: skip
    pipelined = found["pipelined-dsp-5-1"]
    assert pipelined["after"] == "unpruned-1"
    assert pipelined["command"][-2:] == ["--finetune-from-model", "runs/unpruned-1/checkpoint_best.pt"]


def test_a_training_without_a_checkpoint_is_told(data_bin, tmp_path, monkeypatch, capsys):
    def leave_nothing(commands, at_once, prepare, limit=None):
        for command in commands:
            prepare(command.name)
            yield command.name

    monkeypatch.setattr(driver, "run_commands", leave_nothing)
    assert script(*arguments(data_bin, tmp_path), "--methods", "unpruned") == 1
    assert "left no best checkpoint" in capsys.readouterr().err
    assert not list(tmp_path.glob("work/runs/*/done.json"))
