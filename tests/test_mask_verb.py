"""``headprune mask``. Expected masks are made by hand."""

import json

import pytest
import torch
import verbs

from fairseq_headprune.cli import main
from fairseq_headprune.files import sha256, write_json
from fairseq_headprune.modules.attach import find_gates
from fairseq_headprune.parts import Mask, Part
from fairseq_headprune.parts.scores import Scores

SHAPE = {"enc_self": [3, 2], "enc_dec": [2], "dec_self": [2]}

#: By hand: .9 is the best; the two .5 and the three .1 are ties.
SCORES = {"enc_self": [[0.1, 0.5, 0.1], [0.9, 0.0]], "enc_dec": [[0.5, 0.1]], "dec_self": [[0.3, 0.2]]}


@pytest.fixture
def like(tmp_path):
    Mask.full(SHAPE, {"command": "by hand"}).save(tmp_path / "like.json")
    return str(tmp_path / "like.json")


@pytest.fixture
def scores(tmp_path):
    Scores(SCORES, estimator="random").save(tmp_path / "scores.json")
    return str(tmp_path / "scores.json")


@pytest.fixture
def make_mask(like, tmp_path):
    """The function that runs the verb and returns the mask it wrote."""

    def make(*arguments, like=like):
        assert main(["mask", "--like", str(like), "-o", str(tmp_path / "out.json"), *map(str, arguments)]) == 0
        return Mask.load(tmp_path / "out.json")

    return make


@pytest.fixture
def refused(like, tmp_path, capsys):
    """The function that runs the verb, which refuses its input and writes nothing, and returns the message."""

    def run(*arguments, like=like):
        line = verbs.refused(capsys, "mask", "--like", like, "-o", tmp_path / "out.json", *arguments)
        assert not (tmp_path / "out.json").exists()
        return line

    return run


def test_all_heads_are_kept_when_nothing_more_is_said(make_mask):
    assert make_mask() == Mask.full(SHAPE)


def test_drop(make_mask):
    mask = make_mask("--drop", "E:1:1,2", "--drop", "A:1:2")
    assert mask.rows == {"enc_self": [[0, 0, 1], [1, 1]], "enc_dec": [[1, 0]], "dec_self": [[1, 1]]}


def test_heads_that_were_pruned_before_are_told(make_mask, tmp_path, capsys):
    make_mask("--drop", "E:1:1,2").save(tmp_path / "first.json")
    capsys.readouterr()
    mask = make_mask("--drop", "E:1:2,3", like=tmp_path / "first.json")
    assert mask.rows["enc_self"] == [[0, 0, 0], [1, 1]] and mask.source["pruned_before"] == ["enc_self layer 0 head 1"]
    assert "pruned already: enc_self layer 0 head 1" in capsys.readouterr().out


def test_highest_scores_over_all_components(make_mask, scores):
    expected = {
        0: [],
        1: [("enc_self", 1, 0)],
        # Of the two .5 the first in the order component, layer, head.
        2: [("enc_self", 0, 1), ("enc_self", 1, 0)],
        3: [("enc_self", 0, 1), ("enc_self", 1, 0), ("enc_dec", 0, 0)],
        # .3, .2, then the first of the three .1.
        6: [("enc_self", 0, 0), ("enc_self", 0, 1), ("enc_self", 1, 0)]
        + [("enc_dec", 0, 0), ("dec_self", 0, 0), ("dec_self", 0, 1)],
    }
    for count, heads in expected.items():
        assert make_mask("--scores", scores, "--heads", count).kept() == heads
    assert make_mask("--scores", scores, "--heads", 9) == Mask.full(SHAPE)


def test_config_keeps_the_first_heads_and_leaves_other_components(make_mask):
    mask = make_mask("--config", "ES=21 DS=0")
    assert mask.rows == {"enc_self": [[1, 1, 0], [1, 0]], "enc_dec": [[1, 1]], "dec_self": [[0, 0]]}
    assert mask.source["chosen"] == "the first heads of each layer"
    assert make_mask("--config", "ES=21", "DS=0") == mask


def test_config_with_scores_keeps_the_highest_of_each_layer(make_mask, scores):
    mask = make_mask("--config", "ES=21 ED=1", "--scores", scores)
    assert mask.rows == {"enc_self": [[1, 1, 0], [1, 0]], "enc_dec": [[1, 0]], "dec_self": [[1, 1]]}
    assert mask.source["chosen"] == "the highest scores of each layer"
    mask = make_mask("--config", "ES=10", "--scores", scores)
    assert mask.rows["enc_self"] == [[0, 1, 0], [0, 0]]


def test_pruned_heads_stay_pruned(make_mask, scores, tmp_path):
    start = Mask.full(SHAPE).without([Part("enc_self", 1, 0), Part("enc_self", 0, 0)])
    start.save(tmp_path / "start.json")
    start_path = tmp_path / "start.json"
    assert make_mask(like=start_path) == start
    assert make_mask("--drop", "E:1:1", like=start_path) == start
    # Without the .9: the two .5.
    kept = make_mask("--scores", scores, "--heads", 2, like=start_path).kept()
    assert kept == [("enc_self", 0, 1), ("enc_dec", 0, 0)]
    assert make_mask("--config", "ES=11", like=start_path).rows["enc_self"] == [[0, 1, 0], [0, 1]]


def test_heads_without_a_score_are_not_kept(make_mask, refused, tmp_path):
    values = json.loads(json.dumps(SCORES))
    values["enc_self"][1][0] = None
    Scores(values, estimator="random").save(tmp_path / "s.json")
    assert make_mask("--scores", tmp_path / "s.json", "--heads", 8).dropped() == [("enc_self", 1, 0)]
    (tmp_path / "out.json").unlink()
    line = refused("--scores", tmp_path / "s.json", "--heads", 9)
    assert "--heads 9: there are 8 kept heads with a score, so give 0 to 8" in line


def test_scores_of_one_component_leave_the_others(make_mask, tmp_path):
    Scores({"dec_self": [[0.1, 0.2]]}, estimator="random").save(tmp_path / "s.json")
    mask = make_mask("--scores", tmp_path / "s.json", "--heads", 1)
    assert mask.dropped() == [("dec_self", 0, 0)]


def test_source_says_where_the_mask_comes_from(make_mask, like, scores):
    source = make_mask("--scores", scores, "--heads", 3).source
    assert source["command"].startswith("headprune mask --like ") and source["command"].endswith("--heads 3")
    assert source["like"] == {"path": like, "sha256": sha256(like), "source": {"command": "by hand"}}
    assert source["scores"] == {"path": scores, "sha256": sha256(scores), "estimator": "random"}


def test_output(make_mask, tmp_path, capsys):
    make_mask("--drop", "E:1:1", "--json")
    value = json.loads(capsys.readouterr().out)
    assert (value["kept"], value["total"], value["dropped"]) == (8, 9, "E:1:1")
    assert value["components"]["enc_self"] == {"kept": 4, "total": 5}
    assert value["config"] == {"ES": "22", "ED": "2", "DS": "2"}
    make_mask("--drop", "E:1:1")
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == ["enc_self", "Enc-Enc", "4", "5", "22"]
    assert lines[5].split() == ["all", "8", "9"]
    assert lines[-1] == f"written: {tmp_path / 'out.json'}"


def test_like_a_checkpoint(make_mask, trained, trained_stock):
    tiny = {"enc_self": [2, 2], "enc_dec": [2, 2], "dec_self": [2, 2]}  # transformer_tiny: 2 + 2 layers, 2 heads
    for checkpoint in (trained["checkpoint"], trained_stock["checkpoint"]):
        mask = make_mask(like=checkpoint)
        assert mask == Mask.full(tiny)
        assert mask.source["checkpoint"] == {"path": str(checkpoint), "sha256": sha256(checkpoint)}


def test_like_a_checkpoint_that_holds_a_mask(make_mask, trained, tiny_model, tmp_path):
    state = torch.load(trained["checkpoint"], weights_only=True)
    gates = find_gates(tiny_model)
    mask = Mask.full(gates.shape).without([Part("enc_dec", 1, 0)])
    gates.set_mask(mask)
    torch.save(state | {"model": tiny_model.state_dict()}, tmp_path / "masked.pt")
    assert make_mask(like=tmp_path / "masked.pt") == mask
    dropped = make_mask("--drop", "D:1:1", like=tmp_path / "masked.pt").dropped()
    assert dropped == [("enc_dec", 1, 0), ("dec_self", 0, 0)]


def test_wrong_input(refused, scores, tmp_path):
    assert "E:1:4: enc_self has the heads 1 to 3 there, counted from 1" in refused("--drop", "E:1:4")
    assert "A:9: enc_dec has the layers 1 to 1, counted from 1" in refused("--drop", "A:9:1")
    assert "'E:1' is not a descriptor" in refused("--drop", "E:1")
    assert "enc_self names 1 layers, the model has 2" in refused("--config", "ES=3")
    assert "enc_self layer 1: cannot keep 3 heads of 2" in refused("--config", "ES=33")
    assert "unknown component 'XX'" in refused("--config", "XX=3")
    assert "--heads -1: there are 9 kept heads" in refused("--scores", scores, "--heads", "-1")
    assert "--heads 10: there are 9 kept heads" in refused("--scores", scores, "--heads", 10)
    assert "--heads 1.5: not a number of heads" in refused("--scores", scores, "--heads", 1.5)
    assert "--scores needs --heads K" in refused("--scores", scores)
    assert "--scores FILE" in refused("--heads", 3)
    assert "not allowed with" in refused("--scores", scores, "--heads", 3, "--drop", "E:1:1")
    assert "there is no such file" in refused(like=tmp_path / "no.pt")
    assert "a folder, not a checkpoint" in refused(like=tmp_path)
    assert "no.json" in refused("--scores", tmp_path / "no.json", "--heads", 1)


def test_scores_of_another_model_are_refused(refused, tmp_path):
    Scores({"enc_self": [[0.1, 0.2]]}, estimator="random").save(tmp_path / "s.json")
    line = refused("--scores", tmp_path / "s.json", "--heads", 1)
    assert "the score file has 1 layers of enc_self, --like has 2" in line


def test_what_is_neither_mask_nor_checkpoint(refused, tmp_path):
    write_json(tmp_path / "a.json", {"format": "headprune.mask/9", "heads": {}})
    assert "headprune.mask/9" in refused(like=tmp_path / "a.json")
    (tmp_path / "b.pt").write_text("no checkpoint")
    assert "b.pt: a damaged or truncated file, or not a checkpoint" in refused(like=tmp_path / "b.pt")
