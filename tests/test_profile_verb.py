"""``headprune profile``: models with fewer heads in memory, and the file. Times themselves are not tested."""

import statistics

import pytest
import torch
from slim_models import lively
from verbs import refused, run_json

from fairseq_headprune.cli.profile import _text
from fairseq_headprune.modules.attach import find_gates
from fairseq_headprune.parts import Mask
from fairseq_headprune.speed.profile import Group, Profile
from fairseq_headprune.speed.variants import first_heads, random_masks, with_heads


def test_a_model_with_fewer_heads_is_the_masked_one_and_shares_the_rest(batch):
    model = lively({})
    mask = Mask({"enc_self": [[0, 0], [0, 1]], "enc_dec": [[0, 1], [1, 1]], "dec_self": [[1, 0], [0, 0]]})
    fewer = with_heads(model, mask)
    with torch.no_grad():
        found = fewer(**batch["net_input"])[0]
        whole = model(**batch["net_input"])[0]
        with find_gates(model).masked(mask):
            assert torch.allclose(found, model(**batch["net_input"])[0], atol=1e-5)
    assert not torch.allclose(found, whole, atol=1e-2)
    own = {id(parameter) for parameter in fewer.parameters()} - {id(parameter) for parameter in model.parameters()}
    # Three modules keep one of two heads: weights of four projections, and biases of three, are cut.
    assert len(own) == 3 * 7


def test_masks_that_are_measured():
    full = Mask.full({"enc_self": [4, 4, 2], "dec_self": [4]}).without([])
    mask = first_heads(full, Group("enc_self", (0, 1), 4), 1)
    assert mask.rows == {"enc_self": [[1, 0, 0, 0], [1, 0, 0, 0], [1, 1]], "dec_self": [[1, 1, 1, 1]]}
    # 14 heads: halves go to the even number.
    counts = {name: len(mask.dropped()) for name, mask in random_masks(full).items()}
    assert counts == {"25% pruned": 4, "50% pruned": 7, "75% pruned": 10, "90% pruned": 13}


@pytest.fixture(scope="module")
def call(trained):
    few = ["--batch-size", "4", "--batches", "2", "--rounds", "3", "--length", "3", "--beam", "1"]
    return ["profile", trained["data"], "--path", trained["checkpoint"], "--cpu", "--gen-subset", "test", *few]


def test_the_file_tells_what_was_measured_and_how(call, trained, tmp_path):
    value = run_json(*call, "-o", tmp_path / "p.json")
    assert Profile.load(tmp_path / "p.json").to_dict() == Profile.from_dict(value).to_dict()
    settings = {"device": "cpu", "gpu": None, "precision": "fp32", "threads": 1, "batch_size": 4, "beam": 1}
    assert value["settings"] == settings | {"length": 3, "batches": 2, "rounds": 3}
    assert value["checkpoint"]["path"] == str(trained["checkpoint"]) and value["environment"]["torch"]
    whole, *rows = value["measured"]
    # Three components of two layers with two heads; one head is half of them.
    expected = [(c, [0, 1], heads) for c in ("enc_self", "enc_dec", "dec_self") for heads in (0, 1, 2)]
    assert [(row["component"], row["layers"], row["heads"]) for row in rows] == expected
    for row, none in zip(rows, [row for row in rows for _ in range(3) if not row["heads"]], strict=True):
        halves = [(mine - base) / 2 for mine, base in zip(row["seconds"], none["seconds"], strict=True)]
        assert len(halves) == 3 and (row["cost"]["min"], row["cost"]["max"]) == (min(halves), max(halves))
    profile = Profile.from_dict(value)
    assert profile.whole() == pytest.approx(statistics.median(whole["seconds"]))
    assert [check["mask"] for check in value["checks"]] == ["25% pruned", "50% pruned", "75% pruned", "90% pruned"]
    for check in value["checks"]:
        assert check["error"] == pytest.approx(check["predicted"] / check["measured"]["median"] - 1)
        mask = {c: [[1] * n + [0] * (2 - n) for n in counts] for c, counts in check["heads"].items()}
        assert check["predicted"] == pytest.approx(profile.seconds(Mask(mask)))


def test_the_text_warns_of_a_prediction_that_is_far_off():
    profile = Profile({"dec_self": [2]}, 0.01, {"dec_self": [[(0, 0.0), (2, 0.001)]]})
    names = ("gpu", "device", "precision", "threads", "batch_size", "beam", "length", "batches", "rounds")
    profile.settings = dict.fromkeys(names, 1)
    check = {"mask": "m", "predicted": 0.01, "measured": {"median": 0.0125, "min": 0.01, "max": 0.02}}
    for error, warned in ((-0.2, True), (0.1, False)):
        profile.checks = [{**check, "error": error}]
        assert ("off by up to 20%" in _text(profile, "p.json", "text")) == warned


@pytest.mark.parametrize(
    "flags, words",
    [
        (["--rounds", "0"], "--rounds must be at least 1, got 0"),
        (["--length", "1"], "--length 1"),
        (["--length", "1025"], "--length 1025: the model translates to 1024 tokens"),
        (["--batch-size", "0"], "--batch-size must be at least 1, got 0"),
        (["--batches", "3"], "3 batches of 4 need 12 sentences, test has 8"),
        (["-o", "nowhere/p.json"], "there is no folder nowhere"),
    ],
)
def test_wrong_input_is_one_line(call, tmp_path, capsys, flags, words):
    assert words in refused(capsys, *call, "-o", tmp_path / "p.json", *flags)
    assert not (tmp_path / "p.json").exists()
