"""``scripts/compare_pruners.py`` on a tiny task; trainings and translations run in this process."""

import gc
import json
import shutil

import pytest
import tiny
from fairseq_cli import train
from learning import same, weights
from tiny import SHAPE
from trainings import Here
from verbs import count_masks, generated

from fairseq_headprune.checkpoints import read_state, stored_mask
from fairseq_headprune.cli import main
from fairseq_headprune.files import read_json, read_lines, sha256
from fairseq_headprune.jobs import train as jobs_train
from fairseq_headprune.jobs.methods import DEFAULT
from fairseq_headprune.jobs.training import Run, TrainingJob
from fairseq_headprune.parts import Mask
from fairseq_headprune.studies.folder import StudyFolder
from fairseq_headprune.studies.pruners.answers import random_mask
from fairseq_headprune.studies.stored import recomputed_p

pytestmark = pytest.mark.slow  # trains models

SCRIPT = str(tiny.ROOT / "scripts" / "compare_pruners.py")
RECIPE = "--cpu --optimizer adam --lr 0.01 --batch-size 16 --share-all-embeddings --num-workers 0 --dropout 0.1 "
RECIPE += "--label-smoothing 0.1"
BEAM = ["--beam", "5", "--max-len-b", "10", "--cpu"]


def script(*words):
    """Run the script here; return its exit status."""
    return tiny.run_script(SCRIPT, *words)


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
    with Here().instead() as here:
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
    # One training each: its sentences are tested.
    assert all(("sentences" in point) == (method != "unpruned") for method, point in points.items())
    assert run["value"]["environments"] and run["value"]["signature"].startswith("nrefs:1|")
    assert (run["folder"] / "results" / "compare-valid.json").exists()
    assert (run["folder"] / "results" / "compare.svg").exists()


def test_p_can_be_computed_again_from_the_counts_of_sentences(run):
    # Source: p of the table, of one training each. The file is the one that the result names.
    counts = run["folder"] / "results" / "compare-statistics.json"
    assert run["value"]["statistics_file"] == {"name": counts.name, "sha256": sha256(counts)}
    found = {name.split("-5-1@")[0]: values["p"] for name, values in recomputed_p(read_json(counts)).items()}
    assert found == {p["method"]: p["sentences"]["p"] for p in run["value"]["points"] if "sentences" in p}


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


def test_variants_keep_heads_that_other_methods_chose(run, tmp_path):
    """By hand: the longest chain of trainings first, a ranking before trainings, other models at the end, in one go."""
    once, layers = "michel+none+once", "learned-start+layers+mask=1"
    words = [*arguments(run["data"], tmp_path), "--tune", "4", "--tune-flags", "--lr 0.02", "--splits", "test"]
    methods = ["unpruned", once, f"{once}+tuned", "random-after+order=2", "joint-dsp", layers]
    learned, early = tmp_path / "work/masks/joint-dsp-5-1@test.json", []

    def do(command):
        if command.name == f"{layers}-5-1":
            early.append(learned.read_bytes())
            assert "joint-dsp-5-1@test" not in StudyFolder(tmp_path / "work").cells()
        here.run(command)

    with (here := Here(do)).instead():
        assert script(*words, "--methods", ",".join(methods)) == 0
    assert here.started[:2] == ["joint-dsp-5-1", "unpruned-1"] and here.started[2] == f"translate-{once}-1"
    assert here.started[3:5] == [f"{layers}-5-1", f"{once}+tuned-5-1"] and len(here.started) == 6
    # The learned heads are trained before their own model is translated, which finds the same.
    assert [learned.read_bytes()] == early
    found = rows({"value": read_json(tmp_path / "results" / "compare.json")})
    assert found[f"{once}+tuned"]["kept"] == found[once]["kept"] and found[once]["estimates"] == 1
    learned, drawn = ([[row.count("1") for row in found[m]["kept"][c]] for c in SHAPE] for m in ("joint-dsp", layers))
    assert learned == drawn
    assert Mask.load(tmp_path / "work/masks/random-after+order=2-5-1@test.json") == random_mask(SHAPE, 5, 2)
    command = found[f"{once}+tuned"]["training"]["command"]
    assert "--lr 0.02 --max-update 4 " in command and "--finetune-from-model runs/unpruned-1/" in command
    assert found[f"{once}+tuned"]["updates"] == 16 and "--max-update 12 " in found[layers]["training"]["command"]


def test_masks_of_a_model_are_translated_together(run, tmp_path, monkeypatch):
    """Source: by hand: the unpruned model with four random masks, then two of the ranking; all in one process."""
    methods = "unpruned,michel,random-after+order=1,random-after+order=2"
    words = [*arguments(run["data"], tmp_path), "--methods", methods, "--counts", "5,2", "--splits", "test"]
    packs = count_masks(monkeypatch)
    with Here().instead() as here:
        assert script(*words, "--stages", "train,translate") == 0
    assert here.started == ["unpruned-1", "translate-michel-1"] and packs == [5, 2]
    # Source: those of the comparison of all methods, whose random heads are of the same seed.
    found = read_lines(tmp_path / "work" / "hyps" / "random-after+order=1-5-1@test.txt")
    assert found == read_lines(run["folder"] / "work" / "hyps" / "random-after-5-1@test.txt")


def test_translations_are_fairseq_s(run):
    """fairseq-generate on the checkpoint, which holds the learned set."""
    work = run["folder"] / "work"
    argv = [run["data"], "--path", work / "runs/joint-dsp-5-1/checkpoint_best.pt", "--task", "translation_headprune"]
    lines = generated("D", *argv, *BEAM, "--gen-subset", "valid")
    assert read_lines(work / "hyps" / "joint-dsp-5-1@valid.txt") == lines
    assert lines != generated("D", *argv, *BEAM, "--gen-subset", "valid", "--head-mask", "none")


def test_started_again_it_does_what_is_missing_and_no_more(run, capsys):
    with Here().instead() as here:
        assert main(["compare-pruners", *map(str, run["arguments"]), "--json"]) == 0
        printed = json.loads(capsys.readouterr().out)
        assert here.started == [] and [value["split"] for value in printed] == ["test", "valid"]
        # The verb says its own name; all else is the script's.
        command = run["value"]["command"].replace("scripts/compare_pruners.py", "headprune compare-pruners", 1)
        assert printed[0] == run["value"] | {"command": command + " --json"}
        # One more number of heads for the ranking: no training, one translation process.
        assert script(*run["arguments"], "--counts", "5,2", "--methods", "unpruned,michel") == 0
    assert len(here.started) == 1 and here.started[0].startswith("translate-")
    # The results are of what was named, whatever else the folder holds.
    found = rows({"value": read_json(run["folder"] / "results" / "compare.json")})
    assert set(found) == {"unpruned", "michel"}
    kept = found["michel"]["kept"]
    assert sum(mask.count("1") for layers in kept.values() for mask in layers) == 2


def test_without_its_checkpoints_a_study_goes_on_with_what_needs_none(run, tmp_path):
    # As on another machine, to which only the small files were copied.
    study = shutil.copytree(run["folder"] / "work", tmp_path / "work", ignore=shutil.ignore_patterns("*.pt"))
    with Here().instead() as here:
        words = [*arguments(run["data"], tmp_path), "--methods", "unpruned,joint-dsp,random-start+mask=2"]
        assert script(*words) == 0
    assert {path.parent.name for path in study.glob("runs/*/*.pt")} == {"random-start+mask=2-5-1"}
    assert here.started[0] == "random-start+mask=2-5-1" and all(
        name.startswith("translate") for name in here.started[1:]
    )


def test_a_stopped_training_goes_on(run, tmp_path):
    """The checkpoint is that of the training that was never stopped, gates and dropout included, bit for bit."""

    def stop_in_the_third_epoch(cfg, trainer, task, iterator, train=train.train):
        if iterator.next_epoch_idx == 3:
            raise KeyboardInterrupt
        return train(cfg, trainer, task, iterator)

    words = [*arguments(run["data"], tmp_path), "--methods", "unpruned,joint-dsp", "--stages", "train"]
    stopped, whole = tmp_path / "work" / "runs" / "unpruned-1", run["folder"] / "work" / "runs"
    with Here().instead() as here:
        with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(train, "train", stop_in_the_third_epoch)
            script(*words)
        assert (stopped / "checkpoint_last.pt").exists() and not (stopped / "done.json").exists()
        gc.collect()  # what was interrupted in this process holds its claims until then
        # Stopped again between the end of fairseq-train and what follows: an update more would be another model.
        with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(jobs_train, "_settle", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
            script(*words)
        assert (stopped / "trained").exists()
        gc.collect()
        assert script(*words) == 0 and here.started == ["unpruned-1"] * 3 + ["joint-dsp-5-1"]
    for name in ("unpruned-1", "joint-dsp-5-1"):
        found, expected = (read_state(f / name / "checkpoint_best.pt") for f in (stopped.parent, whole))
        assert same(weights(found), weights(expected)) and "last_optimizer_state" not in found
        # Nothing of what a training goes on from is left.
        assert not list((stopped.parent / name).glob("checkpoint_last.pt"))
    assert read_json(stopped / "done.json")["resumed"]
    assert "resumed" not in read_json(stopped.parent / "joint-dsp-5-1" / "done.json")


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
        (["--seeds=-1", "--dry-run"], "--seeds must be at least 0, got -1"),
        (["--seeds", ","], "--seeds: ',': give whole numbers as in 1,16"),
        (["--counts", "5,x"], "--counts: '5,x': give whole numbers as in 1,16"),
        (["--lambdas", "x"], "--lambdas: 'x': give numbers as in 0.01,0.1"),
        (["--methods", "magic"], "unknown method 'magic'"),
        (["--methods", "michel+max"], "michel has no option 'max'; it has sentence|token"),
        (["--methods", "ste+long"], "need --tune UPDATES"),
        (["--methods", "learned-start"], "learned-start takes the heads of joint-dsp, seed 1: compare these, too"),
        (["--jobs", "0"], "--jobs must be at least 1, got 0"),
        (["--stages", "cook"], "--stages cook: known are train"),
        (["--train-flags", "--no-such-flag 1"], "fairseq-train would refuse its flags: unrecognized"),
        (["--tune-flags=--no-such-flag"], "fairseq-train would refuse its flags: unrecognized"),
        (["--generate-flags", "--beem 3"], "unrecognized arguments: --beem 3 (did you mean --beam?)"),
        (["--references", "a"], "1 --references for 2 --splits"),
        (["--references", "no-file,no-file"], "--references no-file: there is no such file"),
        (["--tokenize", "magic"], "--tokenize magic: known are none, zh"),
        (["--resamples", "0"], "--resamples must be at least 1, got 0"),
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


def test_a_training_that_leaves_nothing_fails(tmp_path):
    with pytest.MonkeyPatch.context() as patch, pytest.raises(RuntimeError, match="left no best checkpoint"):
        patch.chdir(tmp_path)
        patch.setattr(jobs_train, "_train", lambda job, run: None)
        Run(tmp_path, "runs/a").prepare(TrainingJob("a", "data", [], 1))
        jobs_train.do("runs/a")
    assert not list(tmp_path.glob("runs/*/facts.json"))
