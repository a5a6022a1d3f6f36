"""``headprune compare`` of GLUE predictions. Reference: counts by hand, resamples scored one by one by scikit-learn."""

import json

import numpy as np
import pytest
from scipy.stats import rankdata
from verbs import refused, run_json

from fairseq_headprune.cli import main
from fairseq_headprune.evaluation.paired_tests import compare
from fairseq_headprune.files import sha256
from fairseq_headprune.glue.catalogue import TASKS
from fairseq_headprune.glue.metrics import label_subject, scores
from fairseq_headprune.glue.predictions import Predictions, load_predictions

LABELS = ["1"] * 10 + ["0"] * 10


def flipped(*places):
    return [label if place not in places else "10"[int(label)] for place, label in enumerate(LABELS)]


#: right on 10 of 20, and against it: one lost and nine gained; itself; five gained
SYSTEMS = {"base": flipped(*range(10)), "nine": flipped(0, 19), "same": flipped(*range(10)), "five": flipped(*range(5))}


def write(path, predictions, task="SST-2", metric="accuracy", labels=LABELS, ids=None, split="dev"):
    ids = list(range(len(labels))) if ids is None else ids
    Predictions(TASKS[task], split, metric, ids, labels, predictions, {"checkpoint": {"sha256": "x"}}).save(path)
    return path


@pytest.fixture
def files(tmp_path):
    return [write(tmp_path / f"{name}.json", predictions) for name, predictions in SYSTEMS.items()]


def test_counts_and_p_by_hand(files):
    """Differences of 1 -1, 9 1, 10 0: t = 0.4 / sqrt((10 - 20 * 0.16) / 19 / 20); McNemar 22/1024 and 2/32."""
    value = run_json("compare", *files, "--resamples", 200, "--seed", 0)
    base, nine, same, five = value["systems"]
    assert [row["score"] for row in value["systems"]] == pytest.approx([50, 90, 50, 75])
    assert (base["t_test"], base["mcnemar"], base["p"], value["examples"]) == (None, None, 1, 20)
    assert (nine["mcnemar"]["lost"], nine["mcnemar"]["gained"], five["mcnemar"]["gained"]) == (1, 9, 5)
    assert nine["t_test"]["t"] == pytest.approx(0.4 / np.sqrt((10 - 20 * 0.16) / 19 / 20))
    tests = [row["mcnemar"] for row in (nine, same, five)]
    assert [test["p"] for test in tests] == pytest.approx([22 / 1024, 1, 2 / 32])
    assert [test["p_holm"] for test in tests] == pytest.approx([66 / 1024, 1, 4 / 32])
    for result in (same, same["t_test"], same["mcnemar"]):
        assert (result["p"], result["p_holm"], result["significant"]) == (1, 1, "")
    assert nine["t_test"]["p_holm"] == pytest.approx(3 * nine["t_test"]["p"]) and nine["t_test"]["significant"] == "*"
    assert (nine["sha256"], nine["checkpoint"]) == (sha256(files[1]), {"sha256": "x"})
    assert (value["seed"], value["resamples"], value["t_test_of"]) == (0, 200, "correctness")


@pytest.mark.parametrize(
    "task, metric",
    [("MRPC", "accuracy+f1"), ("CoLA", "matthews"), ("MNLI", "accuracy"), ("STS-B", "pearson"), ("STS-B", "spearman")],
)
def test_bootstrap_against_resamples_one_by_one(task, metric):
    task, draw, resamples = TASKS[task], np.random.default_rng(3), 100
    if task.is_regression:
        target = draw.uniform(0, 5, 40)
        systems = [target + draw.normal(scale=scale, size=40) for scale in (1, 1.2)]
        texts = [values.tolist() for values in (target, *systems)]
    else:
        target = draw.integers(len(task.labels), size=40)
        systems = [np.where(draw.random(40) < share, target, 0) for share in (0.5, 0.6)]
        texts = [[task.labels[i] for i in values] for values in (target, *systems)]
    found = compare(label_subject(task, metric, texts[0], {"a": texts[1], "b": texts[2]}), resamples, seed=7)[1]
    if metric == "spearman":  # the ranks are those of the whole split
        target, systems, metric = rankdata(target), [rankdata(values) for values in systems], "pearson"
    rows = np.random.default_rng(7).integers(0, 40, size=(resamples, 40))
    sampled = np.array([[scores(task, metric, s[row], target[row])["score"] for s in systems] for row in rows])
    delta = (sampled[:, 1] - sampled[:, 0]).round(9)
    expected = min(1, 2 * (min((delta <= 0).sum(), (delta >= 0).sum()) + 1) / (resamples + 1))
    assert found.bootstrap.p == pytest.approx(expected) and 0 < expected < 1
    assert found.bootstrap.ci == pytest.approx(np.quantile(sampled[:, 1], [0.025, 0.975]))


def test_scores_are_tested_by_squared_errors(tmp_path):
    """Errors 1, 1, 2 and 0, 1, 1: differences -1, 0, -3, mean -4/3, variance 7/3, t = -4/3 / sqrt(7/9)."""
    rows = {"a": [2.0, 3.0, 1.0], "b": [1.0, 1.0, 4.0]}
    paths = [write(tmp_path / n, p, "STS-B", "pearson+spearman", labels=[1.0, 2.0, 3.0]) for n, p in rows.items()]
    value = run_json("compare", *paths, "--metric", "pearson", "--resamples", 20)
    row = value["systems"][1]
    assert row["t_test"]["t"] == pytest.approx(-4 / 3 / np.sqrt(7 / 9)) and row["mcnemar"] is None
    assert (value["metric"], value["t_test_of"]) == ("pearson", "squared error")
    assert main(["compare", *map(str, paths), "--resamples", "20"]) == 0


def test_tables(files, capsys, monkeypatch):
    monkeypatch.chdir(files[0].parent)
    command = ["compare", *(file.name for file in files)]
    assert main(command) == 0
    text = capsys.readouterr().out.splitlines()
    assert text[0].split() == "system accuracy 95% interval lost gained t-test McNemar bootstrap".split()
    nine = next(line for line in text if line.startswith(files[1].name))
    assert nine.split()[3:5] == ["1", "9"] and "0.021 (0.064)" in nine
    assert any(line.startswith(f"{files[2].name}: McNemar: no example that only one of the two") for line in text)
    assert "20 examples" in "".join(text) and "1000 resamples, seed 12345" in "".join(text)
    assert main([*command, "--format", "markdown"]) == 0
    assert sum(line.startswith("|") for line in capsys.readouterr().out.splitlines()) == 6
    assert main([*command, "--format", "latex"]) == 0
    latex = capsys.readouterr().out
    assert latex.startswith(r"\begin{tabular}{lrrrrrrr}") and r"\underline" in latex
    assert all(line.startswith("%") for line in latex.splitlines()[latex.splitlines().index(r"\end{tabular}") + 1 :])


def test_files_that_cannot_be_compared(files, tmp_path, capsys):
    def says(predictions=LABELS, **settings):
        return refused(capsys, "compare", files[0], write(tmp_path / "other.json", predictions, **settings))

    assert "has 3 examples" in (line := says(LABELS[:3], labels=LABELS[:3])) and "has 20: not the same" in line
    assert "of the task RTE" in says(["entailment"], task="RTE", labels=["entailment"])
    assert "of the split train" in says(split="train")
    assert "the id of example 1 is 1 in" in says(ids=list(range(1, 21)))
    assert "the label of example 1 is 0 in" in says(labels=["0", *LABELS[1:]])
    assert "choose with --metric" in says(metric="f1")
    one = write(tmp_path / "one.json", ["1"], labels=["1"])
    assert "at least 2 examples, got 1" in refused(capsys, "compare", one, one)
    assert "--alpha must be" in refused(capsys, "compare", *files, "--alpha", "2")
    assert "SST-2 knows accuracy" in refused(capsys, "compare", *files, "--metric", "bleu")
    assert "resamples must be at least 1" in refused(capsys, "compare", *files, "--resamples", "0")
    assert "required: OTHER.json" in refused(capsys, "compare", files[0])
    assert "missing.json" in refused(capsys, "compare", files[0], tmp_path / "missing.json")
    (tmp_path / "text").write_text("a line\n")
    assert "text: not a JSON file" in refused(capsys, "compare", files[0], tmp_path / "text")


def test_damaged_files(files, tmp_path, capsys):
    value, path = json.loads(files[0].read_text()), tmp_path / "damaged.json"

    def says(text=None, **changes):
        path.write_text(text or json.dumps({**value, **changes}))
        return refused(capsys, "compare", files[0], path)

    assert 'the prediction of example 0 is "2"; the labels of SST-2 are "0", "1"' in says(predictions=["2"] * 20)
    assert "the label of example 0 is 1; the labels" in says(labels=[1] * 20)
    assert "20 ids, 20 labels, 19 predictions" in says(predictions=LABELS[:19])
    assert "an id is there twice" in says(ids=[0] * 20)
    assert '"labels" is missing or not a list' in says(labels=None)
    assert "no task 'X' in GLUE" in says(task="X")
    assert "there is no example" in says(ids=[], labels=[], predictions=[])
    assert "upgrade" in says(format="headprune.predictions/2")
    assert "not a JSON file" in says(files[0].read_text()[:90])
    regression = {"task": "STS-B", "metric": "pearson", "labels": [1.0] * 20, "predictions": [float("nan")] * 20}
    assert "is nan; STS-B needs a finite number" in says(**regression)


def test_files_of_a_label_a_line(files, tmp_path, capsys):
    """The same as the files with ids, under --glue-task."""
    texts = [tmp_path / f"{name}.txt" for name in ("labels", *SYSTEMS)]
    for path, lines in zip(texts, (LABELS, *SYSTEMS.values()), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines))
    value, same = run_json("compare", "--glue-task", "sst-2", *texts), run_json("compare", *files)
    for row, expected in zip(value["systems"], same["systems"], strict=True):
        assert [row[key] for key in ("score", "p", "t_test")] == [expected[key] for key in ("score", "p", "t_test")]
    assert (value["labels"], value["split"]) == ({"name": str(texts[0]), "sha256": sha256(texts[0])}, None)

    def says(text, *more, task="SST-2"):
        texts[2].write_text(text)
        return refused(capsys, "compare", f"--glue-task={task}", *texts[:3], *more)

    assert f"{texts[2]}: 1 predictions for 20 labels" in says("1\n")
    assert 'the prediction of example 0 is "2"; the labels of SST-2' in says("2\n" * 20)
    assert "is 'x'; STS-B needs a finite number" in says("x\n" * 20, task="STS-B")
    assert "'nan'" in says("nan\n" * 20, task="STS-B")
    assert "no task of GLUE" in says("1\n" * 20, task="X")
    assert "--bleu is for translations" in says("1\n" * 20, "--bleu", "tok")
    assert "needs the labels and two predictions" in refused(capsys, "compare", "--glue-task", "RTE", *texts[:2])


def test_a_file_for_each_split_and_scores(tuned, tmp_path, capsys):
    def command(task):
        return ["evaluate", tuned / "glue", "--path", tuned / task / "checkpoint_last.pt", "--cpu", "--predictions"]

    assert "there are 2 splits to score; name an existing folder" in refused(capsys, *command("MNLI"), tmp_path / "x")
    assert not list(tmp_path.iterdir())
    run_json(*command("MNLI"), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["MNLI-dev_matched.json", "MNLI-dev_mismatched.json"]
    assert load_predictions(tmp_path / "MNLI-dev_mismatched.json").split == "dev_mismatched"
    scored = run_json(*command("STS-B"), tmp_path / "sts.json")["results"][0]["scores"]
    read = load_predictions(tmp_path / "sts.json")
    assert read.labels == [number % 11 / 2 for number in range(10)]  # as written
    found = scores(read.task, read.metric, np.array(read.predictions), np.array(read.labels))
    assert found == pytest.approx(scored)
