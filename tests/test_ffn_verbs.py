"""``score --ffn``, ``mask --ffn``, ``slim --ffn``, and fairseq's commands on the result. Reference: --head-mask."""

import pytest
import tiny
import torch
from trainings import Here
from verbs import generated, refused, run_json, write_lively

from fairseq_headprune.checkpoints import read_state, stored_mask
from fairseq_headprune.cli import main
from fairseq_headprune.parts import COMPONENTS, FFN, HEADS, Mask
from fairseq_headprune.parts.scores import Scores


@pytest.fixture(scope="module")
def pruned(trained, tmp_path_factory):
    """Scores of blocks and units, masks by them, and slim checkpoints."""
    folder = tmp_path_factory.mktemp("ffn")
    path = write_lively(trained, folder)["checkpoint"]
    runs = {"data": trained["data"], "folder": folder, "path": path}
    for parts, heads, kept in (("blocks", 9, 3), ("units", 9, 100)):
        names = {kind: folder / f"{parts}-{kind}" for kind in ("scores", "mask.json", "slim.pt")}
        flags = ["--path", path, "--cpu", "--quiet", "--score-sentences", 20, "--ffn", parts, "-o", names["scores"]]
        runs[parts, "scores"] = run_json("score", trained["data"], *flags)
        flags = ["--scores", names["scores"], "--heads", heads, "--ffn", kept, "-o", names["mask.json"]]
        runs[parts, "mask"] = run_json("mask", "--like", path, *flags)
        flags = ["--mask", names["mask.json"], "--ffn", "-o", names["slim.pt"]]
        runs[parts, "slim"] = run_json("slim", path, *flags)
        runs[parts, "names"] = names
    return runs


def test_scores_masks_and_reports(pruned):
    found = pruned["blocks", "scores"]["scores"]
    assert [len(found[component]) for component in FFN] == [2, 2] and list(found) == list(COMPONENTS)
    lowest = min(value for component in FFN for [value] in found[component])
    expected = {component: [[int(value > lowest)] for [value] in found[component]] for component in FFN}
    assert pruned["blocks", "mask"]["ffn"] == expected
    kept = pruned["blocks", "slim"]["layout"]["kept"]
    assert {c: [[int(row is not None)] for row in kept[c]] for c in FFN} == expected
    units = {component: pruned["units", "scores"]["scores"][component] for component in FFN}
    flat = sorted((v for rows in units.values() for row in rows for v in row), reverse=True)
    assert len(flat) == 4 * 64
    kept = sum(v >= flat[99] for v in flat)
    assert kept == 100 == sum(sum(row) for rows in pruned["units", "mask"]["ffn"].values() for row in rows)
    assert sum(counts["units"] for counts in pruned["units", "slim"]["ffn"]["counts"].values()) == 100
    # 3 of 12 heads of 32 * (4 * 64 + 3), and units of 2 * 64 + 1; a block has 64 units and 64 biases.
    heads = 3 * 32 * 259
    for parts, gone in (("blocks", heads + 64 * 129 + 64), ("units", heads + 156 * 129)):
        parameters = pruned[parts, "slim"]["parameters"]
        assert parameters["before"] - parameters["after"] == gone == parameters["by_formula"]


@pytest.mark.parametrize("parts", ["blocks", "units"])
def test_fairseq_translates_as_the_masked_model(pruned, parts):
    names = pruned[parts, "names"]
    call = [pruned["data"], "--path", pruned["path"], "--cpu", *tiny.TASK]
    expected = generated("H", *call, "--head-mask", names["mask.json"])
    assert generated("H", pruned["data"], "--path", names["slim.pt"], "--cpu", *tiny.PLUGIN) == expected
    if parts == "blocks":
        return
    Mask.load(names["mask.json"]).only(HEADS).save(pruned["folder"] / "heads.json")
    assert generated("H", *call, "--head-mask", pruned["folder"] / "heads.json") != expected


def test_fine_tuning_takes_the_structure_over(pruned, tmp_path):
    slim = pruned["units", "names"]["slim.pt"]
    arch = [*tiny.GATED, "--finetune-from-model", slim]
    tiny.train(pruned["data"], tmp_path, *arch)
    tuned = read_state(tmp_path / "checkpoint_last.pt")
    assert stored_mask(tuned).only(FFN).rows == pruned["units", "mask"]["ffn"]
    shapes = {name: weight.shape for name, weight in read_state(slim)["model"].items()}
    assert {name: weight.shape for name, weight in tuned["model"].items()} == shapes
    assert not torch.equal(
        tuned["model"]["encoder.layers.0.fc1.weight"], read_state(slim)["model"]["encoder.layers.0.fc1.weight"]
    )


def test_a_mask_set_in_training_is_kept_and_is_the_default(pruned, tmp_path):
    mask = pruned["blocks", "names"]["mask.json"]
    tiny.train(pruned["data"], tmp_path, *tiny.GATED, "--head-mask", mask)
    state = read_state(tmp_path / "checkpoint_last.pt")
    assert stored_mask(state) == Mask.load(mask) and stored_mask(state).source["path"] == str(mask)
    report = run_json("slim", tmp_path / "checkpoint_last.pt", "--ffn", "-o", tmp_path / "slim.pt")
    assert report["ffn"]["counts"]["enc_ffn"]["blocks"] + report["ffn"]["counts"]["dec_ffn"]["blocks"] == 3


def test_export_of_models_without_units(pruned, tmp_path):
    names = pruned["blocks", "names"]
    for target in ("ctranslate2", "onnx"):
        report = run_json("export", names["slim.pt"], "--to", target, tmp_path / target, "--data", pruned["data"])
        assert Mask(report["mask"]["parts"]).only(FFN).rows == pruned["blocks", "mask"]["ffn"]
        # Log-probabilities here are in the tens; the exact comparisons are in test_export.py.
        assert report["check"]["largest_difference"] < 5e-5


def test_wrong_input_is_one_line(pruned, tmp_path, capsys):
    names, path, output = pruned["units", "names"], pruned["path"], tmp_path / "o"
    plain = tmp_path / "plain.json"
    Scores.load(names["scores"]).only(HEADS).save(plain)
    score = ["score", pruned["data"], "--path", path, "--cpu", "--ffn", "units", "-o", output]
    for call, message in (
        (["slim", path, "--mask", names["mask.json"], "-o", output], "remove them, too, with --ffn"),
        (["mask", "--like", path, "--scores", plain, "--ffn", 3, "-o", output], "has no feed-forward scores"),
        (["mask", "--like", path, "--ffn", 3, "-o", output], "say where the scores are with --scores FILE"),
        (["mask", "--like", path, "--scores", names["scores"], "--ffn", 999, "-o", output], "so give 0 to 256"),
        ([*score, "--estimator", "confidence"], "--ffn needs another --estimator than confidence"),
    ):
        assert message in refused(capsys, *call)
        assert not output.exists()


def test_a_model_without_a_block_is_not_said_to_be_equal(pruned, tmp_path):
    mask = stored_mask(read_state(pruned["blocks", "names"]["slim.pt"]))
    full = Mask.full(mask.only(HEADS).shape)
    for ffn, equal in ((mask.only(FFN).rows, False), ({}, True)):
        Mask({**full.rows, **ffn}).save(tmp_path / "mask.json")
        report = run_json("slim", pruned["path"], "--mask", tmp_path / "mask.json", "--ffn", "-o", tmp_path / "slim.pt")
        # Source: the count of parameters.
        assert (report["parameters"]["after"] == report["parameters"]["before"]) == equal
        assert any("the model written is equal" in note for note in report["notes"]) == equal


@pytest.mark.parametrize("parts, kept", [("blocks", 3), ("units", 100)])
def test_a_number_of_parameters_counts_what_goes_with_feed_forward_parts(pruned, tmp_path, parts, kept):
    scores, mask = pruned[parts, "names"]["scores"], tmp_path / "mask.json"
    flags = ["--scores", scores, "--ffn", kept, "--for-params", "0.8x", "-o", mask]
    budget = run_json("mask", "--like", pruned["path"], *flags)["source"]["budget"]
    slim = run_json("slim", pruned["path"], "--mask", mask, "--ffn", "-o", tmp_path / "slim.pt")
    # Source: the tensors of the slim checkpoint; one head more, 32 * (4 * 64 + 3), would be too many.
    after, most = slim["parameters"]["after"], 0.8 * slim["parameters"]["before"]
    assert after == budget["parameters"] and most - 32 * 259 < after <= most


def test_parts_are_chosen_by_chance_and_by_layer(pruned, tmp_path, capsys):
    path, mask = pruned["path"], tmp_path / "mask.json"
    flags = ["--random", "25%", "--components", "ffn", "-o", mask]
    assert sum(row[0] for rows in run_json("mask", "--like", path, *flags)["ffn"].values() for row in rows) == 3
    found = run_json("mask", "--like", path, *flags, "--ffn", "units", "--seed", 3)
    assert sum(sum(row) for rows in found["ffn"].values() for row in rows) == 192 and found["kept"] == 12
    again = ["--like", mask, "--layers", "top:1", "--components", "enc_self,dec_ffn", "-o", tmp_path / "m.json"]
    assert "the mask prunes units of this block" in refused(capsys, "mask", *again)
    run_json("mask", *again, "--ffn", "units")
    layers = Mask.load(tmp_path / "m.json")
    assert layers.rows["enc_self"] == [[1, 1], [0, 0]] and layers.rows["dec_ffn"][1] == [0] * 64
    assert layers.rows["dec_ffn"][0] == Mask.load(mask).rows["dec_ffn"][0]


def test_studies_of_feed_forward_parts(pruned, tmp_path):
    """Every cell is the masked model's; blocks and units are chosen and tested as heads are."""
    call = [pruned["data"], "--path", pruned["path"], "--cpu", "--quiet", "--beam", "1", "--resamples", "10"]
    found = run_json("ablate", *call, "--components", "ffn", "-o", tmp_path / "blocks")
    places = [(cell["component"], cell["layer"], cell["head"]) for cell in found["cells"][1:]]
    assert places == [(component, layer, 0) for component in FFN for layer in (0, 1)]
    mask = Mask.load(tmp_path / "blocks" / "masks" / "dec_ffn-1-0.json")
    assert mask.dropped(COMPONENTS) == [("dec_ffn", 1, 0)] and mask.rows["dec_ffn"] == [[1], [0]]
    flags = ["--components", "all,ffn", "--step", "50%", "--score-sentences", "10"]
    found = run_json("prune", *call, *flags, "--ffn", "units", "-o", tmp_path / "units")
    [curve] = found["curves"].values()
    # 12 heads and 256 units are in play: half of them, then all.
    assert [point["pruned"] for point in curve] == [0, 134, 268]
    assert sum(curve[1]["kept"].values()) == 134 and not sum(curve[2]["kept"].values())
    mask = Mask.load(pruned["units", "names"]["mask.json"])
    rows = {c: [[1, 1] + [0] * 62, [1] + [0] * 63] for c in FFN}
    Mask({**mask.rows, **rows}).save(tmp_path / "few.json")
    flags = [
        "--head-mask", tmp_path / "few.json", "--components", "enc_ffn", "--ffn", "units", "--select-subset", "test",
    ]  # fmt: skip
    found = run_json("keep-one", *call, *flags, "-o", tmp_path / "alone")
    assert [cell["id"] for cell in found["candidates"]] == ["test@enc_ffn-0-0", "test@enc_ffn-0-1"]
    kept = Mask.load(tmp_path / "alone" / "masks" / "test@enc_ffn-0-1.json").rows
    assert kept == {**mask.rows, **rows, "enc_ffn": [[0, 1] + [0] * 62, rows["enc_ffn"][1]]}


def test_random_study_of_feed_forward_blocks(pruned, tmp_path, capsys):
    """Fine-tuned as a slim model: the block that a sampling prunes is no longer there."""
    call = [pruned["data"], "--path", pruned["path"], "--cpu", "--beam", "1", "--resamples", "10", "--updates", "1"]
    call += [
        "--train-flags", tiny.TRAIN, "--components", "dec_ffn", "--seeds", "1", "-o", tmp_path / "s",
    ]  # fmt: skip
    with Here().instead():
        found = run_json("random-study", *call, "--random", "1", "--slim")
    [cell] = found["cells"]
    assert (cell["percent"], cell["pruned"]) == (50, 1) and sum(cell["kept"].values()) == 12 + 3
    mask = Mask.load(tmp_path / "s" / "masks" / f"{cell['id']}.json")
    state = read_state(tmp_path / "s" / cell["tuned"]["checkpoint"])
    assert stored_mask(state).rows["dec_ffn"] == mask.rows["dec_ffn"] != [[1], [1]]
    for layer, [kept] in enumerate(mask.rows["dec_ffn"]):
        weight = state["model"].get(f"decoder.layers.{layer}.fc1.weight")
        assert (weight is not None and weight.numel() > 0) == bool(kept)
    assert main(["random-study", *map(str, call), "--random", "1", "--slim"]) == 0
    assert "50 (1 parts)" in capsys.readouterr().out
    assert "--components goes with --random and --layers" in refused(capsys, "random-study", *call, "--triple", "1,1,1")
