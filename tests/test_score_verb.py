"""``headprune score`` on a tiny checkpoint."""

import json
import os
import shlex
import shutil

import pytest
from tiny import SHAPE
from verbs import refused, run_json

from fairseq_headprune.cli import main
from fairseq_headprune.files import sha256
from fairseq_headprune.parts import Mask, Part
from fairseq_headprune.parts.scores import Scores
from fairseq_headprune.provenance import environment


def flags(run):
    return [run["data"], "--path", run["checkpoint"], "--cpu"]


def values(document):
    return [v for rows in document["scores"].values() for row in rows for v in row]


def test_the_document_is_the_score_file(lively, tmp_path):
    argv = ["score", *flags(lively), "--score-sentences", "20", "--score-seed", "0", "-o", tmp_path / "scores.json"]
    argv += ["--preset", "michel-2019"]
    figure = ["--figure", str(tmp_path / "map.svg")]
    found = run_json(*argv, *figure)
    assert found == json.loads((tmp_path / "scores.json").read_text())
    # Source: the file format in the documentation.
    assert {"format", "scores", "estimator", "reduction", "normalize", "sentences", "data", "checkpoint"} <= set(found)
    assert (found["format"], found["estimator"]) == ("headprune.scores/2", "gradient")
    assert (found["reduction"], found["normalize"], found["loss"]) == ("sentence", "layer", "sum")
    assert found["sentences"] == 20
    assert (found["data"]["split"], found["data"]["of"], found["data"]["seed"]) == ("train", 60, 0)
    name = "train.xx-yy.xx.bin"
    assert found["data"]["sha256"][name] == sha256(lively["data"] / name)
    checkpoint = str(lively["checkpoint"])
    assert found["checkpoint"] == {"path": checkpoint, "sha256": sha256(lively["checkpoint"])}
    # Source: what was called, in what, with what.
    assert found["origin"]["updates"] > 0 and {"dict.xx.txt", "train.xx-yy.xx.bin"} <= set(
        found["origin"]["data_files"]
    )
    assert found["environment"] == environment(shlex.join(["headprune", *map(str, argv), *figure, "--json"]))
    assert found["precision"] == "fp32"
    assert Scores.load(tmp_path / "scores.json").shape == SHAPE
    # Source: the definition of the paper's normaliser: l2 norm 1 in every module.
    for rows in found["scores"].values():
        for row in rows:
            assert sum(v * v for v in row) == pytest.approx(1)
    assert (tmp_path / "map.png").read_bytes()[:4] == b"\x89PNG" and "<svg" in (tmp_path / "map.svg").read_text()


def test_zero_sentences_means_all_and_gen_subset_names_the_split(lively):
    found = run_json("score", *flags(lively), "--score-sentences", "0", "--gen-subset", "valid")
    assert found["sentences"] == 8 and found["data"]["split"] == "valid"
    # Source: the rule of examples/normalizers/README.md and its results.
    assert found["normalize"] == "none"


def test_the_seed_draws_the_subset(lively):
    argv = ["score", *flags(lively), "--score-sentences", "3", "--normalize", "none"]
    first, second = (values(run_json(*argv, "--score-seed", seed)) for seed in "01")
    assert first == values(run_json(*argv, "--score-seed", "0")) != second


@pytest.mark.parametrize("estimator", ["fisher", "confidence", "weight-norm", "random"])
def test_other_estimators(lively, estimator):
    found = run_json("score", *flags(lively), "--estimator", estimator, "--score-sentences", "5", "--normalize", "none")
    assert found["estimator"] == estimator and len(values(found)) == 12 and min(values(found)) > 0
    assert found["sentences"] == (5 if estimator in ("fisher", "confidence") else 0)
    assert (found["reduction"] is not None) == (estimator == "fisher")
    if estimator in ("confidence", "random"):
        assert max(values(found)) <= 1


def test_pruned_heads_are_not_ranked(lively, tmp_path):
    dropped = [Part("enc_self", 0, 1), Part("dec_self", 1, 0), Part("dec_self", 1, 1)]
    Mask.full(SHAPE).without(dropped).save(tmp_path / "mask.json")
    argv = [*flags(lively), "--score-sentences", "5", "--head-mask", tmp_path / "mask.json"]
    argv += ["--normalize", "layer"]
    found = run_json("score", *argv, "--figure", tmp_path / "map")
    assert [rows for rows in found["scores"]["dec_self"]][1] == [None, None]
    assert found["scores"]["enc_self"][0] == [1.0, None] and values(found).count(None) == 3
    assert (tmp_path / "map.png").exists()


def test_a_stock_checkpoint_is_scored_with_a_table(trained_stock, capsys):
    assert main(["score", *map(str, flags(trained_stock)), "--score-sentences", "5"]) == 0
    text = capsys.readouterr().out
    assert "Enc-Enc (enc_self)" in text and "Dec-Dec (dec_self)" in text and "5 sentences" in text
    assert sha256(trained_stock["checkpoint"])[:12] in text


def test_wrong_input_is_refused_before_the_work(lively, tmp_path, capsys):
    argv = ["score", *flags(lively)]
    assert "there is no folder" in refused(capsys, *argv, "-o", tmp_path / "no" / "scores.json")
    os.mkfifo(tmp_path / "pipe.png")
    for more in (["-o", tmp_path / "pipe.png"], ["--figure", tmp_path / "pipe"]):
        assert "pipe.png is no regular file" in refused(capsys, *argv, *more)
    shutil.copy(lively["checkpoint"], tmp_path / "model.pt")
    whole = (tmp_path / "model.pt").read_bytes()
    mine = ["score", lively["data"], "--path", tmp_path / "model.pt", "--cpu", "-o", tmp_path / "model.pt"]
    assert "model.pt is the input" in refused(capsys, *mine) and (tmp_path / "model.pt").read_bytes() == whole
    assert "cannot draw -1 sentences" in refused(capsys, *argv, "--score-sentences", "-1")
    assert "label smoothing" in refused(capsys, *argv, "--loss", "label-smoothed", "--score-label-smoothing", "1")
    Mask.full({"enc_self": [2, 2]}).save(tmp_path / "mask.json")
    assert "0 layers of enc_dec" in refused(capsys, *argv, "--head-mask", tmp_path / "mask.json")
