"""``headprune weight-change``: changes made by hand, and their tests."""

import math

import pytest
import tiny
import torch
from tiny import SHAPE
from verbs import refused, run_json

from fairseq_headprune.cli import main
from fairseq_headprune.parts import Mask, Part
from fairseq_headprune.studies.weight_change import layer_effects, overall

#: of a head of transformer_tiny
WIDTH = 32
CHANGED = "decoder.layers.1.encoder_attn"


@pytest.fixture(scope="module")
def after(trained, tmp_path_factory):
    """The checkpoint in which head 1 of enc_dec layer 1 has q of twice the weight and v moved by 0.5."""
    state = torch.load(trained["checkpoint"], weights_only=False)
    for name in (f"{CHANGED}.q_proj.weight", f"{CHANGED}.v_proj.weight"):
        state["model"][name] = state["model"][name].clone()
    state["model"][f"{CHANGED}.q_proj.weight"][WIDTH:] *= 2
    state["model"][f"{CHANGED}.v_proj.weight"][WIDTH:] += 0.5
    path = tmp_path_factory.mktemp("after") / "after.pt"
    torch.save(state, path)
    return path


@pytest.fixture(scope="module")
def by_hand(trained):
    """What changed, from the same weights in plain sums."""
    model = torch.load(trained["checkpoint"], weights_only=False)["model"]
    q, k, v = (model[f"{CHANGED}.{part}_proj.weight"][WIDTH:].double() for part in "qkv")
    size = float((q.abs().sum() + k.abs().sum() + v.abs().sum()) / (3 * q.numel()))
    change = float(q.abs().sum() + 0.5 * v.numel()) / (3 * q.numel())
    magnitude = float((2 * q).abs().sum() + k.abs().sum() + (v + 0.5).abs().sum()) / (3 * q.numel()) - size
    return {"change": change, "relative": change / size, "magnitude": magnitude}


def test_changes_by_hand(trained, after, by_hand):
    value = run_json("weight-change", trained["checkpoint"], after)
    # Source: the fixture trains for 5 updates.
    assert [value[side]["updates"] for side in ("before", "after")] == [5, 5] and value["made_by"]["git"]
    for name, expected in by_hand.items():
        heads = value["quantities"][name]["heads"]
        assert heads["enc_dec"][1][1] == pytest.approx(expected, rel=1e-6)
        assert heads["enc_dec"][1][0] == 0 and heads["enc_self"] == heads["dec_self"] == [[0, 0], [0, 0]]
        assert value["quantities"][name]["overall"]["heads"] == 12
        assert value["quantities"][name]["overall"]["mean"] == pytest.approx(expected / 12, rel=1e-6)


def test_slim_after_has_original_numbers(trained, after, by_hand, tmp_path):
    mask = Mask.full(SHAPE).without([Part("enc_dec", 1, 0), Part("dec_self", 0, 0), Part("dec_self", 0, 1)])
    mask.save(tmp_path / "mask.json")
    slim = tmp_path / "slim.pt"
    assert main(["slim", str(after), "--mask", str(tmp_path / "mask.json"), "-o", str(slim)]) == 0
    heads = run_json("weight-change", trained["checkpoint"], slim)["quantities"]["change"]["heads"]
    assert heads["enc_dec"] == [[0, 0], [None, pytest.approx(by_hand["change"], rel=1e-6)]]
    assert heads["dec_self"] == [[None, None], [0, 0]]


def test_heads_that_the_mask_after_prunes_are_left_out(trained, after, tmp_path):
    state = torch.load(after, weights_only=False)
    state["model"]["encoder.layers.0.self_attn.head_keep"] = torch.tensor([False, True])
    torch.save(state, tmp_path / "masked.pt")
    heads = run_json("weight-change", trained["checkpoint"], tmp_path / "masked.pt")["quantities"]["change"]["heads"]
    assert heads["enc_self"] == [[None, 0], [0, 0]]


def test_layer_effects_by_hand():
    # Ranks 1 2 | 3 4: H = 12 / (4 x 5) x (3^2 / 2 + 7^2 / 2) - 3 x 5 = 2.4, one degree of freedom.
    found = layer_effects({"enc_self": [[1.0, 2.0, None], [3.0, 4.0, None]]})["enc_self"]
    assert found["h"] == pytest.approx(2.4) and found["p"] == pytest.approx(math.erfc(math.sqrt(2.4 / 2)))
    assert found["mean"] == [1.5, 3.5] and found["spread"] == pytest.approx(2 / 1.5) and found["layers"] == 2


def test_layer_effects_that_are_not_defined():
    for layers in ([[1.0, 2.0], [None, None]], [[1.0, 1.0], [1.0, 1.0]], [[1.0]]):
        found = layer_effects({"enc_self": layers})["enc_self"]
        assert (found["h"], found["p"]) == (None, None)
    assert layer_effects({"enc_self": [[None], [None]]})["enc_self"]["spread"] is None
    with pytest.raises(ValueError, match="no head in common"):
        overall({"enc_self": [[None]]})


def test_text_and_figure(trained, after, tmp_path, capsys):
    stem = tmp_path / "change"
    assert main(["weight-change", str(trained["checkpoint"]), str(after), "--figure", str(stem)]) == 0
    out = capsys.readouterr().out
    assert "mean absolute change of the weights / mean absolute weight before" in out and "Kruskal-Wallis" in out
    assert stem.with_suffix(".png").exists() and stem.with_suffix(".svg").exists()


def test_wrong_input(trained, after, tmp_path, capsys):
    assert "no.pt" in refused(capsys, "weight-change", trained["checkpoint"], tmp_path / "no.pt")
    state = torch.load(after, weights_only=False)
    state["model"][f"{CHANGED}.q_proj.weight"][0, 0] = math.nan
    torch.save(state, tmp_path / "nan.pt")
    line = refused(capsys, "weight-change", trained["checkpoint"], tmp_path / "nan.pt")
    assert "enc_dec layer 1" in line and "not finite" in line
    model = tiny.make_model(encoder_attention_heads=4)
    torch.save({"cfg": {"model": model.settings}, "model": model.state_dict()}, tmp_path / "other.pt")
    assert "different models" in refused(capsys, "weight-change", trained["checkpoint"], tmp_path / "other.pt")
