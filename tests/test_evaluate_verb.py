"""``evaluate``, ``slim`` and ``export`` of a BERT checkpoint. Reference: the model's own forward under a mask."""

import json
import shutil
import sys

import numpy as np
import pytest
import torch
import transformers  # its classes are loaded on first use, which takes seconds
from fairseq import checkpoint_utils
from glue_data import MASK, logits, train
from verbs import refused, run_json

from fairseq_headprune.checkpoints import read_state, stored_mask
from fairseq_headprune.cli import main
from fairseq_headprune.cli.evaluate import below_chance
from fairseq_headprune.files import sha256
from fairseq_headprune.glue.catalogue import TASKS
from fairseq_headprune.glue.predictions import load_predictions
from fairseq_headprune.parts import Mask


def evaluate(root, task, *flags, path=None):
    path = path or root / task / "checkpoint_last.pt"
    return run_json("evaluate", root / "glue", "--path", path, "--cpu", *flags)


def test_scores_are_those_of_the_models_predictions(tuned):
    path = tuned / "SST-2" / "checkpoint_last.pt"
    value = evaluate(tuned, "SST-2")
    found, targets = logits(path, "dev")
    [result] = value["results"]
    assert result["scores"]["accuracy"] == pytest.approx(100 * (found.argmax(1) == targets).mean())
    assert (result["split"], value["metric"], value["mask"]["given"]) == ("dev", "accuracy", None)
    assert (result["data"]["examples"], result["data"]["limit"]) == (12, 20)  # as in training
    assert value["environment"]["command"].startswith("headprune evaluate")
    assert value["updates"] > 0 and {"train.tsv", "dev.tsv.gz"} <= set(value["data_files"])
    masked = evaluate(tuned, "SST-2", "--head-mask", tuned / "mask.json", "--gen-subset", "train")
    found, targets = logits(path, "train", MASK)
    assert masked["results"][0]["scores"]["score"] == pytest.approx(100 * (found.argmax(1) == targets).mean())
    assert masked["mask"]["components"] == {"enc_self": {"kept": 4, "total": 12}}


def test_scores_below_chance_are_told():
    """Of 40 labels a draw has at most 9 right with probability 0.0003, at most 10 with 0.0011 (binomial)."""
    targets = np.array([0, 1] * 20)
    right = [np.where(np.arange(40) < count, targets, 1 - targets) for count in (9, 10, 40)]
    said = [below_chance(TASKS["SST-2"], predicted, targets) for predicted in right]
    assert "9 of 40 labels are right, fewer than by chance (50.0%)" in said[0] and said[1:] == ["", ""]


def test_predictions_are_compared(tuned, tmp_path):
    """The files that evaluate writes, with and without a mask; scores and counts from the logits of both."""
    path, files = tuned / "SST-2" / "checkpoint_last.pt", [tmp_path / "whole.json", tmp_path / "masked.json"]
    whole = evaluate(tuned, "SST-2", "--gen-subset", "train", "--predictions", files[0])
    evaluate(tuned, "SST-2", "--gen-subset", "train", "--predictions", files[1], "--head-mask", tuned / "mask.json")
    value = run_json("compare", *files, "--resamples", "50")
    (found, targets), (pruned, _) = logits(path, "train"), logits(path, "train", MASK)
    right = [(values.argmax(1) == targets) for values in (found, pruned)]
    assert [row["score"] for row in value["systems"]] == pytest.approx([100 * side.mean() for side in right])
    test = value["systems"][1]["mcnemar"]
    assert (test["lost"], test["gained"]) == ((right[0] & ~right[1]).sum(), (right[1] & ~right[0]).sum())
    assert test["lost"] and test["gained"]
    assert value["systems"][1]["mask"]["components"] == {"enc_self": {"kept": 4, "total": 12}}
    read = load_predictions(files[0])
    assert (read.split, read.ids) == ("train", list(range(56)))
    assert read.labels == [str(i % 2) for i in range(56)]  # as glue_data writes them
    assert read.about["checkpoint"] == whole["checkpoint"] and read.about["environment"] == whole["environment"]
    assert whole["predictions"] == [{"path": str(files[0]), "sha256": sha256(files[0]), "split": "train"}]


def test_both_development_sets_of_mnli_and_files_under_glues_names(tuned, tmp_path):
    value = evaluate(tuned, "MNLI", "--submission", tmp_path)
    assert [result["split"] for result in value["results"]] == ["dev_matched", "dev_mismatched"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["MNLI-m.tsv", "MNLI-mm.tsv"]
    found, _ = logits(tuned / "MNLI" / "checkpoint_last.pt", "test_mismatched")
    names = ["contradiction", "entailment", "neutral"]
    lines = [f"{i}\t{names[row]}" for i, row in enumerate(found.argmax(1))]
    assert (tmp_path / "MNLI-mm.tsv").read_text().splitlines() == ["index\tprediction", *lines]


def test_scores_in_a_submission_are_between_0_and_5(tuned, tmp_path):
    evaluate(tuned, "STS-B", "--submission", tmp_path / "sts.tsv")
    found, _ = logits(tuned / "STS-B" / "checkpoint_last.pt", "test")
    expected = [f"{i}\t{min(max(float(row[0]), 0), 5):.3f}" for i, row in enumerate(found)]
    assert (tmp_path / "sts.tsv").read_text().splitlines()[1:] == expected
    assert found.min() < 0 or found.max() > 5  # the weights are random, and so large


def test_wrong_input(tuned, tmp_path, capsys, trained):
    data, path = tuned / "glue", tuned / "SST-2" / "checkpoint_last.pt"
    Mask({"enc_self": [[1] * 4, [0] * 4]}).save(tmp_path / "two.json")
    mnli = tuned / "MNLI" / "checkpoint_last.pt"
    for call, message in (
        ([data, "--path", path, "--gen-subset", "test"], "has no labels, which are needed here"),
        ([data, "--path", path, "--gen-subset", "dev_matched"], "SST-2 has no split 'dev_matched'"),
        ([tmp_path, "--path", path], "neither SST-2/dev.tsv nor dev.tsv"),
        ([data, "--path", path, "--glue-task", "RTE"], "trained for SST-2; its classifier says nothing of RTE"),
        ([data, "--path", mnli, "--submission", tmp_path / "x.tsv"], "MNLI has 2 test sets; name an existing folder"),
        ([trained["data"], "--path", trained["checkpoint"]], "not a checkpoint of the task glue"),
        ([data, "--path", data / "RTE" / "dev.tsv"], "not a checkpoint"),
        ([data, "--path", path, "--head-mask", tmp_path / "two.json"], "has 2 layers"),
    ):
        assert message in refused(capsys, "evaluate", *call, "--cpu")
    assert not list(tmp_path.glob("*.tsv"))


def test_what_is_read_is_not_written_over(tuned, tmp_path, capsys):
    data = shutil.copytree(tuned / "glue" / "SST-2", tmp_path / "SST-2")
    path = shutil.copy(tuned / "SST-2" / "checkpoint_last.pt", tmp_path / "model.pt")
    mask = shutil.copy(tuned / "mask.json", tmp_path / "mask.json")
    before = {file: sha256(file) for file in tmp_path.rglob("*") if file.is_file()}
    flags = ["evaluate", tmp_path, "--path", path, "--head-mask", mask, "--cpu"]
    for file in (path, mask, data / "dev.tsv.gz"):
        assert f"the output {file} is the input {file}" in refused(capsys, *flags, "--predictions", file)
    for file in (data / "test.tsv", data / "dev.tsv.gz"):
        assert f"the output {file} is the input {file}" in refused(capsys, *flags, "--submission", file)
    new = tmp_path / "new"
    assert "the same file" in refused(capsys, *flags, "--predictions", new, "--submission", new)
    assert before == {file: sha256(file) for file in tmp_path.rglob("*") if file.is_file()}


def test_a_slim_model_predicts_as_the_masked_one(tuned, tmp_path, capsys):
    """12 - 4 heads of 6 (4 * 24 + 3) weights each are gone; a mask in original numbers still fits."""
    path, slim = tuned / "SST-2" / "checkpoint_last.pt", tmp_path / "slim.pt"
    report = run_json("slim", path, "--mask", tuned / "mask.json", "-o", slim)
    assert report["parameters"]["before"] - report["parameters"]["after"] == 8 * 6 * (4 * 24 + 3)
    masked, whole = logits(path, "train", MASK)[0], logits(path, "train")[0]
    assert np.allclose(logits(slim, "train")[0], masked, atol=1e-5) and not np.allclose(whole, masked, atol=1e-2)
    assert stored_mask(read_state(slim)).rows == MASK.rows
    assert evaluate(tuned, "SST-2", path=slim)["mask"]["heads"] == MASK.rows
    train(tuned / "glue", tmp_path / "more", "SST-2", "--finetune-from-model", slim, "--max-update", "1")
    assert stored_mask(read_state(tmp_path / "more" / "checkpoint_last.pt")).rows == MASK.rows
    assert "--bake is for stock fairseq, which has no bert_gated" in refused(
        capsys, "slim", path, "--mask", tuned / "mask.json", "--bake", "-o", tmp_path / "baked.pt"
    )
    assert "8 heads were removed from it (enc_self layer 0 head 1" in refused(
        capsys, "export", slim, "--to", "huggingface", tmp_path / "hf"
    )
    assert not (tmp_path / "hf").exists()


@pytest.mark.parametrize("mask", [None, MASK])
def test_transformers_computes_the_same_from_an_exported_folder(tuned, tmp_path, mask):
    path = tuned / "SST-2" / "checkpoint_last.pt"
    flags = [] if mask is None else ["--mask", tuned / "mask.json"]
    report = run_json("export", path, "--to", "huggingface", tmp_path / "hf", *flags)
    assert report["zeroed_heads"] == (0 if mask is None else 8) and report["check"]["largest_difference"] < 1e-5
    theirs = transformers.BertForSequenceClassification.from_pretrained(tmp_path / "hf").eval()
    [_], _, task = checkpoint_utils.load_model_ensemble_and_task([str(path)])
    task.load_dataset("dev")
    dataset = task.dataset("dev")
    with torch.no_grad():
        inputs = [dataset.collater([i])["net_input"] for i in range(len(dataset))]
        rows = [theirs(x["src_tokens"], token_type_ids=x["token_types"]).logits[0] for x in inputs]
    assert np.allclose(torch.stack(rows).numpy(), logits(path, "dev", mask)[0], atol=1e-5)
    assert json.loads((tmp_path / "hf" / "headprune.json").read_text())["checkpoint"] == report["checkpoint"]


def test_what_is_in_the_way_of_transformers_is_said(tuned, tmp_path, monkeypatch, capsys):
    # Stands for the build of another torch that pip installs with fairseq: it is there and does not load.
    (tmp_path / "torchaudio.py").write_text("raise OSError('Could not load this library: /x/_torchaudio.so')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torchaudio", raising=False)
    monkeypatch.setattr("importlib.metadata.version", lambda name: {"torchaudio": "2.11.1"}.get(name, "1.0"))
    path = tuned / "SST-2" / "checkpoint_last.pt"
    assert main(["export", str(path), "--to", "huggingface", str(tmp_path / "hf")]) == 0
    note = f"torchaudio 2.11.1 does not load beside torch {torch.__version__} (Could not load this library); pip uninst"
    assert note in capsys.readouterr().out
    monkeypatch.setitem(sys.modules, "torchaudio", None)  # as without it
    assert run_json("export", path, "--to", "huggingface", tmp_path / "hf2")["notes"] == []


def test_only_bert_becomes_a_folder_of_hugging_face(trained, tmp_path, capsys):
    for more, message in (
        (["--to", "huggingface"], "only an imported model, or a checkpoint of an architecture bert_gated"),
        (["--source-lang", "xx", "--to", "huggingface"], "--source-lang is not needed with --to huggingface"),
        (["--to", "onnx"], "--to onnx needs --data DATA_BIN"),
    ):
        assert message in refused(capsys, "export", trained["checkpoint"], *more, tmp_path / "hf")


@pytest.mark.parametrize(
    "method", [["dsp", "--heads-kept", "5", "--tau-updates", "0.5"], ["l0", "--l0-penalty", "1", "--gate-lr", "0.7"]]
)
def test_learned_gates(tuned, tmp_path, method):
    """After 8 updates the checkpoint's mask is the learned set; with DSP exactly K heads; evaluation uses it."""
    criterion = ["--criterion", f"sentence_prediction_{method[0]}", *method[1:]]
    save = tmp_path / "save"
    train(tuned / "glue", save, "SST-2", "--bert", tuned / "hf", "--gate-log-interval", "1", *criterion)
    mask = stored_mask(read_state(save / "checkpoint_last.pt"))
    logged = [json.loads(line) for line in (save / "gates.jsonl").read_text().splitlines()]
    [last] = [line["kept"]["enc_self"] for line in logged if line.get("update") == 8 and "kept" in line]
    assert mask.source["learned"]["kind"] == method[0] and mask.source["update"] == 8
    assert last == ["".join(map(str, row)) for row in mask.rows["enc_self"]]
    assert len(mask.kept()) == 5 if method[0] == "dsp" else len(mask.kept()) < 12
    value = evaluate(tuned, "SST-2", path=save / "checkpoint_last.pt")
    found, targets = logits(save / "checkpoint_last.pt", "dev", mask)
    assert value["results"][0]["scores"]["score"] == pytest.approx(100 * (found.argmax(1) == targets).mean())
    assert value["mask"]["heads"] == mask.rows
