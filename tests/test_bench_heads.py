"""``headprune bench-heads``: masks, sizes by hand, points with their scores; no time is asserted."""

import json

import pytest
import shown_studies
from reports import texts
from verbs import refused, run_json

from fairseq_headprune.checkpoints import read_state
from fairseq_headprune.choosing.random_heads import parse_amount, prune_random
from fairseq_headprune.cli import main
from fairseq_headprune.files import read_json, sha256
from fairseq_headprune.parts import Mask
from fairseq_headprune.removal.checkpoint import slim_checkpoint
from fairseq_headprune.speed.by_heads import draw_masks, level, read_points, slim_bytes

FULL = Mask.full({"enc_self": [4, 4, 4]})

#: 3 layers of width 24, 4 heads of 6: rows of q, k and v with biases, and columns of out_proj
OF_A_HEAD = 6 * (4 * 24 + 3)

FEW = "--heads 12,7,2 --masks 2 --batch-sizes 1,4 --examples 6 --seconds 0 --rounds 2".split()


@pytest.fixture(scope="module")
def call(tuned):
    """The model of SST-2: 12 heads; dev has 12 examples."""
    return [tuned / "glue", "--path", tuned / "SST-2" / "checkpoint_last.pt", "--cpu"]


@pytest.fixture(scope="module")
def measured(tuned, call, tmp_path_factory):
    """The folder with all results, two points (the mask keeps 4 of 12 heads) and a named mask among them."""
    folder = tmp_path_factory.mktemp("heads")
    Mask.load(tuned / "mask.json").save(folder / "dsp-4.json")
    points = [
        {"method": "dsp", "heads": 4, "mask": "dsp-4.json", "score": 61.5},
        {"method": "unpruned", "mask": None, "score": 70},
    ]
    (folder / "points.json").write_text(json.dumps(points))
    more = ["--points", folder / "points.json", "--mask-files", f"mine={tuned / 'mask.json'}", "--figure-batch", "4"]
    out = ["-o", folder / "speed-by-heads-cpu.json", "--figure", folder / "speed"]
    printed = run_json("bench-heads", *call, *FEW, *more, *out)
    assert printed == read_json(folder / "speed-by-heads-cpu.json")
    return folder


@pytest.mark.parametrize("heads", [1, 5, 11])
def test_masks_of_a_level_keep_just_so_many_heads(heads):
    masks = draw_masks(FULL, heads, 4, 3)
    assert list(masks) == [3, 4, 5, 6] and {len(mask.kept()) for mask in masks.values()} == {heads}
    # The same as the verb that writes one mask, by the number of heads that are pruned.
    amount = parse_amount(str(12 - heads))
    assert all(mask == prune_random(FULL, amount, [["enc_self"]], seed) for seed, mask in masks.items())
    more = draw_masks(FULL, 12 if heads == 11 else heads + 1, 1, 3)[3]
    assert set(masks[3].kept()) < set(more.kept())


def test_all_heads_are_one_mask():
    assert draw_masks(FULL, 12, 4, 3) == {3: FULL}


def test_parameters_and_files_by_level(measured, call):
    value = read_json(measured / "speed-by-heads-cpu.json")
    whole, size = value["unpruned"], read_state(call[2])["model"]
    # Parameters of the checkpoint: all tensors but the buffers, of which BERT has none.
    assert whole["parameters"] == sum(t.numel() for name, t in size.items() if t.is_floating_point())
    assert [found["heads"] for found in value["levels"]] == [12, 7, 2]
    assert [found["masks"] for found in value["levels"]] == [1, 2, 2]
    for found in value["levels"]:
        expected = whole["parameters"] - (12 - found["heads"]) * OF_A_HEAD
        assert set(found["parameters"].values()) == {expected}
        assert list(found["batches"]) == ["1", "4"]
    assert [(entry["heads"], entry["seed"]) for entry in value["masks"]] == [(12, 1), (7, 1), (7, 2), (2, 1), (2, 2)]
    # Two rounds each; 6 models of one group, examples not repeated.
    assert {len(entry["batches"]["4"]["seconds"]) for entry in value["masks"]} == {2}
    assert whole["batches"]["1"]["examples"] == 6 and whole["batches"]["1"]["ratio"]["min"] == 1
    assert value["checkpoint"] == {"path": "checkpoint_last.pt", "sha256": sha256(call[2])}


def test_bytes_are_those_of_the_file_that_slim_writes(call, tmp_path):
    mask = draw_masks(FULL, 5, 1, 1)[1]
    slim_checkpoint(call[2], tmp_path / "slim.pt", mask)
    assert slim_bytes(read_state(call[2]), mask) == (tmp_path / "slim.pt").stat().st_size


def test_points_keep_method_and_score(measured, tuned):
    value = read_json(measured / "speed-by-heads-cpu.json")
    dsp, whole = value["points"]
    assert (dsp["method"], dsp["score"], dsp["heads"], dsp["mask"]) == ("dsp", 61.5, 4, "dsp-4.json")
    assert dsp["config"] == {"ES": "301"} and dsp["sha256"] == sha256(tuned / "mask.json")
    assert whole["parameters"] - dsp["parameters"] == 8 * OF_A_HEAD
    assert (whole["method"], whole["score"], whole["heads"]) == ("unpruned", 70, 12)
    [mine] = value["named"]
    assert (mine["name"], mine["parameters"], mine["bytes"]) == ("mine", dsp["parameters"], dsp["bytes"])
    drawn = (measured / "speed-accuracy.svg").read_text()
    assert all(word in drawn for word in (">dsp<", ">Unpruned<", "batch 4")) and (measured / "speed.png").exists()


def test_a_comparison_brings_masks_and_scores(tmp_path):
    """As compare_pruners.py writes them: a row a cell, whose mask is in the study folder under its id."""
    (tmp_path / "study" / "masks").mkdir(parents=True)
    mask = draw_masks(FULL, 5, 1, 2)[2]
    mask.save(tmp_path / "study" / "masks" / "ste-5-s2@dev.json")
    row = {"id": "ste-5-s2@dev", "method": "ste", "count": 5, "seed": 2, "score": 80.5, "learned": 7}
    (tmp_path / "compare.json").write_text(json.dumps({"rows": [row], "split": "dev"}))
    [(found, about)] = read_points(tmp_path / "compare.json", tmp_path / "study")
    assert found == mask
    assert {key: about[key] for key in ("method", "seed", "score")} == {"method": "ste", "seed": 2, "score": 80.5}
    with pytest.raises(ValueError, match="--study"):
        read_points(tmp_path / "compare.json")


def test_a_level_counts_every_mask_once():
    batch = lambda rate, ratio: {"8": {"examples_per_second": rate, "ratio": {"median": ratio, "min": 0, "max": 9}}}  # noqa: E731
    entries = [
        {"heads": 3, "parameters": 50, "bytes": size, "batches": batch(rate, ratio)}
        for size, rate, ratio in [(10, 100, 1.5), (12, 400, 1.0), (11, 200, 1.2)]
    ]
    found = level(entries)
    assert found["bytes"] == {"median": 11, "min": 10, "max": 12} and found["masks"] == 3
    assert found["batches"]["8"] == {
        "examples_per_second": {"median": 200, "min": 100, "max": 400},
        "ratio": {"median": 1.2, "min": 1.0, "max": 1.5},
    }


def test_the_table_of_the_readme():
    batches = {"1": {"examples_per_second": 100.0, "ratio": {"median": 1.0}}}
    whole = {"heads": 12, "parameters": 5000, "bytes": 2_500_000, "batches": batches}
    slim = {"heads": 6, "masks": 10, "parameters": {"median": 4000}, "bytes": {"median": 1_900_000}}
    slim["batches"] = {"1": {"examples_per_second": {"median": 120.4}, "ratio": {"median": 1.204}}}
    value = {"unpruned": whole, "levels": [slim], "device": "cpu", "threads": 2, "precision": "fp32"}
    value |= {"settings": {"rounds": 2, "examples": 64}, "data": {"task": "RTE", "split": "dev"}}
    value["environment"] = {"gpu": None}
    table = shown_studies.speed_by_heads({"speed-by-heads-cpu": value})
    assert [row[1:] for row in texts(table)] == [
        ["unpruned", "12", "5,000", "2.5", "100 (1.00x)"],
        ["10", "6", "4,000", "1.9", "120 (1.20x)"],
    ]
    assert table.rows[0][0] == "2 CPU threads, fp32" and "64 examples of RTE dev" in table.notes[0]
    # The other one was measured in half precision, at a batch size of 4.
    half = json.loads(json.dumps(value).replace('"1":', '"4":').replace("fp32", "fp16"))
    assert [row[5:] for row in texts(shown_studies.speed_by_heads({"a": half, "b": value}))] == [
        [None, "100 (1.00x)"], [None, "120 (1.20x)"], ["100 (1.00x)", None], ["120 (1.20x)", None],
    ]  # fmt: skip


@pytest.mark.parametrize(
    "flags, words",
    [
        (["--heads", "13"], "--heads 13: the model has 12 heads"),
        (["--heads", "0"], "--heads must be at least 1, got 0"),
        (["--heads", "3,3"], "given twice"),
        (["--batch-sizes", "x"], "--batch-sizes: 'x': give whole numbers as in 1,16"),
        (["--masks", "0"], "--masks must be at least 1, got 0"),
        (["--batch-sizes", "64"], "--batch-sizes 64: 6 examples are timed"),
        (["--study", "work"], "with --points"),
        (["--mask-files", "mine"], "give NAME=FILE"),
        (["--mask-files", "mine=nowhere.json"], "nowhere.json"),
        (["--figure", "nowhere/speed"], "no folder nowhere"),
    ],
)
def test_bad_input_is_refused(call, tmp_path, capsys, flags, words):
    assert words in refused(capsys, "bench-heads", *call, *FEW, "-o", tmp_path / "x.json", *flags)
    assert not list(tmp_path.iterdir())


def test_a_mask_of_another_model_and_a_translation_model_are_refused(call, trained, tmp_path, capsys):
    Mask.full({"enc_self": [4, 4]}).save(tmp_path / "other.json")
    flags = [*FEW, "-o", tmp_path / "x.json", "--mask-files", f"other={tmp_path / 'other.json'}"]
    assert "2 layers of enc_self" in refused(capsys, "bench-heads", *call, *flags)
    model = [trained["data"], "--path", trained["checkpoint"], "--cpu", "-o", tmp_path / "x.json"]
    assert "for classifiers" in refused(capsys, "bench-heads", *model)


@pytest.mark.parametrize(
    "entry, words",
    [
        ({"method": "dsp", "mask": None, "score": "high"}, "finite number"),
        ({"method": "dsp", "mask": None}, "finite number"),
        ({"mask": None, "score": 1}, '"method"'),
        ({"method": "dsp", "mask": "full.json", "heads": 3, "score": 1}, "keeps 12 heads"),
        ({"method": "dsp", "mask": 3, "score": 1}, "name of a file"),
    ],
)
def test_bad_points_are_refused(tmp_path, entry, words):
    FULL.save(tmp_path / "full.json")
    (tmp_path / "points.json").write_text(json.dumps([entry]))
    with pytest.raises(ValueError, match=words) as error:
        read_points(tmp_path / "points.json")
    assert "points.json entry 0" in str(error.value)


def test_tables_for_people(call, tmp_path, capsys):
    flags = ["--heads", "7", "--masks", "1", "--batch-sizes", "4", "--examples", "4", "--seconds", "0", "--rounds", "1"]
    assert main(["bench-heads", *map(str, call), *flags, "-o", str(tmp_path / "x.json")]) == 0
    assert "heads kept" in capsys.readouterr().out
