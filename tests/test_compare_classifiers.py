"""``scripts/compare_pruners.py --glue-task`` on a small SST-2."""

import gzip

import pytest
from bert_models import hugging_face_folder
from glue_data import write_glue
from test_compare_outlook import estimate
from test_compare_pruners import script
from trainings import Here

from fairseq_headprune.files import read_json, read_lines

pytestmark = pytest.mark.slow  # trains models

RECIPE = "--cpu --optimizer adam --lr 0.003 --batch-size 16 --num-workers 0 --max-positions 24 --dropout 0.1"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A comparison of four methods at 5 of 12 heads: {"folder", "arguments", "value", "started"}."""
    folder = tmp_path_factory.mktemp("classifiers")
    data, bert = write_glue(folder / "glue"), hugging_face_folder(folder / "hf", ("0", "1"))
    words = [data, "--glue-task", "SST-2", "--bert", bert, "--work", folder / "work", "--out", folder / "r" / "sst-2"]
    words += ["--methods", "unpruned,michel,pipelined-dsp,l0,joint-dsp", "--counts", "5", "--updates", "8"]
    words += ["--recipe", RECIPE, "--splits", "dev", "--sentences", "20", "--resamples", "50", "--generate-flags=--cpu"]
    with Here().instead() as here:
        assert script(*words) == 0
    value = read_json(folder / "r" / "sst-2.json")
    return {"folder": folder, "arguments": words, "value": value, "started": here.started}


def test_every_method_keeps_the_heads_asked_for_and_is_scored(run):
    rows = {row["method"]: row for row in run["value"]["rows"]}
    assert list(rows) == ["unpruned", "michel", "pipelined-dsp", "l0", "joint-dsp"]
    dev = gzip.decompress((run["folder"] / "glue" / "SST-2" / "dev.tsv.gz").read_bytes()).decode()
    labels = [line.split("\t")[1] for line in dev.splitlines()[1:]]
    for method, row in rows.items():
        kept = sum(mask.count("1") for mask in row["kept"]["enc_self"])
        assert kept == (5 if row["count"] else 12), method
        # Accuracy, counted by hand.
        found = read_lines(run["folder"] / "work" / "hyps" / f"{row['id']}.txt")
        right = sum(mine == label for mine, label in zip(found, labels, strict=True))
        assert row["score"] == pytest.approx(100 * right / len(labels), abs=1e-4)


def test_results_say_what_was_measured_and_hold_no_places(run):
    value = run["value"]
    assert value["measure"] == "accuracy" and value["signature"] == "accuracy of SST-2, in percent"
    assert set(value["settings"]["data"]) == {"train.tsv", "dev.tsv.gz", "model.safetensors"}
    rows = {row["method"]: row for row in value["rows"]}
    assert 0 <= rows["joint-dsp"]["best"]["valid_score"] <= 100
    command = rows["joint-dsp"]["training"]["command"]
    assert "--task glue --glue-task SST-2" in command and "--bert hf" in command
    assert "--criterion sentence_prediction_dsp --heads-kept 5 --preset dsp-bert" in command
    assert str(run["folder"]) not in str([value["settings"], value["rows"]])


def test_dry_run_counts_a_part_of_train(run, tmp_path, capsys):
    words = [*run["arguments"], "--work", tmp_path / "work", "--splits", "dev,valid"]
    valid = []
    value = estimate(capsys, words, lambda session, split: valid.append(len(session.dataset("valid"))))
    # By hand: four trainings and a ranking, each on both splits; write_glue has 12 examples of dev.
    assert (value["cells"], value["answers"]) == (10, 5 * (12 + valid[0]))
    assert value["notes"][1:] == [f"with 1 ({split}, an untrained model of this size)" for split in ("dev", "valid")]


@pytest.mark.parametrize(
    "more, message",
    [
        (["--glue-task", "SST-2"], "--glue-task TASK and --bert DIR go together"),
        (["--glue-task", "SST-3", "--bert", "hf"], "SST-3"),
    ],
)
def test_wrong_tasks_are_refused(tmp_path, capsys, more, message):
    assert script(tmp_path, "--work", tmp_path / "work", "--out", tmp_path / "out", *more) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
