"""``headprune mask``: by name, by score, by chance, per layer and by layer sets. Expected masks are made by hand."""

import json

import pytest
import tiny
import torch
import verbs
from tiny import PAPER

from fairseq_headprune.cli import main
from fairseq_headprune.files import sha256, write_json
from fairseq_headprune.importance.normalize import TIED
from fairseq_headprune.modules.attach import find_gates
from fairseq_headprune.parts import Mask, Part
from fairseq_headprune.parts.notation import format_config
from fairseq_headprune.parts.scores import Scores

SHAPE = {"enc_self": [3, 2], "enc_dec": [2], "dec_self": [2]}

#: By hand: .9 is the best; the two .5 and the three .1 are ties.
SCORES = {"enc_self": [[0.1, 0.5, 0.1], [0.9, 0.0]], "enc_dec": [[0.5, 0.1]], "dec_self": [[0.3, 0.2]]}

#: of PAPER: Table 2 of Budhraja et al. 2020, 40% pruned
CONFIG = "ES=777322 ED=233777 DS=777332"


@pytest.fixture
def like(tmp_path):
    Mask.full(SHAPE, {"command": "by hand"}).save(tmp_path / "like.json")
    PAPER.save(tmp_path / "paper.json")
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
def paper_mask(make_mask, tmp_path):
    """The same, of the paper's model."""
    return lambda *arguments: make_mask(*arguments, like=tmp_path / "paper.json")


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


FIRST, HIGHEST = "the first heads of each layer", "the highest scores of each layer"
TWO_ONE = {"enc_self": [[1, 1, 0], [1, 0]]}


@pytest.mark.parametrize(
    "flags, changed, chosen",
    [
        (
            ["--drop", "E:1:1,2", "--drop", "A:1:2"],
            {"enc_self": [[0, 0, 1], [1, 1]], "enc_dec": [[1, 0]]},
            "all but those named",
        ),
        (["--config", "ES=21 DS=0"], {**TWO_ONE, "dec_self": [[0, 0]]}, FIRST),
        (["--config", "ES=21", "DS=0"], {**TWO_ONE, "dec_self": [[0, 0]]}, FIRST),
        (["--config", "ES=21 ED=1", "--scores", "SCORES"], {**TWO_ONE, "enc_dec": [[1, 0]]}, HIGHEST),
        (["--config", "ES=10", "--scores", "SCORES"], {"enc_self": [[0, 1, 0], [0, 0]]}, HIGHEST),
    ],
)
def test_heads_by_name_and_by_number_in_each_layer(make_mask, scores, flags, changed, chosen):
    mask = make_mask(*(scores if word == "SCORES" else word for word in flags))
    assert mask.rows == Mask.full(SHAPE).rows | changed and mask.source.get("chosen") == chosen


def test_heads_that_were_pruned_before_are_told(make_mask, tmp_path, capsys):
    make_mask("--drop", "E:1:1,2").save(tmp_path / "first.json")
    capsys.readouterr()
    mask = make_mask("--drop", "E:1:2,3", like=tmp_path / "first.json")
    assert mask.rows["enc_self"] == [[0, 0, 0], [1, 1]] and mask.source["pruned_before"] == ["enc_self layer 0 head 1"]
    assert "pruned already: enc_self layer 0 head 1" in capsys.readouterr().out


def test_highest_scores_over_all_components(make_mask, scores):
    # By hand: of the two .5 the first in the order component, layer, head; behind .3 and .2 the first of the three .1.
    order = [("enc_self", 1, 0), ("enc_self", 0, 1), ("enc_dec", 0, 0), ("dec_self", 0, 0), ("dec_self", 0, 1)]
    for count in (0, 1, 2, 3, 6):
        expected = [*order, ("enc_self", 0, 0)][:count]
        assert set(make_mask("--scores", scores, "--heads", count).kept()) == set(expected)
    assert make_mask("--scores", scores, "--heads", 9) == Mask.full(SHAPE)


def test_an_order_that_falls_to_ties_is_told(tmp_path, capsys):
    Scores({"enc_self": [[0.5, 0.5], [0.1, 0.2]]}, estimator="mine").save(tmp_path / "tied.json")
    Mask.full({"enc_self": [2, 2]}).save(tmp_path / "like.json")
    words = ["--like", tmp_path / "like.json", "-o", tmp_path / "m.json", "--scores", tmp_path / "tied.json"]
    assert main(["mask", *map(str, words), "--heads", "3"]) == 0
    assert capsys.readouterr().err == f"headprune mask: warning: {tmp_path / 'tied.json'}: {TIED}\n"


def test_pruned_heads_stay_pruned(make_mask, scores, tmp_path):
    start, path = Mask.full(SHAPE).without([Part("enc_self", 1, 0), Part("enc_self", 0, 0)]), tmp_path / "start.json"
    start.save(path)
    assert make_mask(like=path) == make_mask("--drop", "E:1:1", like=path) == start
    # Without the .9: the two .5.
    kept = make_mask("--scores", scores, "--heads", 2, like=path).kept()
    assert kept == [("enc_self", 0, 1), ("enc_dec", 0, 0)]
    assert make_mask("--config", "ES=11", like=path).rows["enc_self"] == [[0, 1, 0], [0, 1]]


def test_heads_without_a_score(make_mask, refused, tmp_path):
    """One without a score is not kept; components without scores are."""
    Scores(SCORES | {"enc_self": [[0.1, 0.5, 0.1], [None, 0.0]]}, estimator="random").save(tmp_path / "s.json")
    assert make_mask("--scores", tmp_path / "s.json", "--heads", 8).dropped() == [("enc_self", 1, 0)]
    (tmp_path / "out.json").unlink()
    line = refused("--scores", tmp_path / "s.json", "--heads", 9)
    assert "--heads 9: there are 8 kept heads with a score, so give 0 to 8" in line
    Scores({"dec_self": [[0.1, 0.2]]}, estimator="random").save(tmp_path / "s.json")
    assert make_mask("--scores", tmp_path / "s.json", "--heads", 1).dropped() == [("dec_self", 0, 0)]


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
    assert lines[5].split() == ["all", "8", "9"] and lines[-1] == f"written: {tmp_path / 'out.json'}"


def test_like_a_checkpoint(make_mask, trained, trained_stock, tiny_model, tmp_path):
    full = Mask.full(tiny.SHAPE)
    for checkpoint in (trained["checkpoint"], trained_stock["checkpoint"]):
        mask = make_mask(like=checkpoint)
        assert mask == full and mask.source["checkpoint"] == {"path": str(checkpoint), "sha256": sha256(checkpoint)}
    # One that holds a mask.
    find_gates(tiny_model).set_mask(mask := full.without([Part("enc_dec", 1, 0)]))
    state = torch.load(trained["checkpoint"], weights_only=True)
    torch.save(state | {"model": tiny_model.state_dict()}, tmp_path / "masked.pt")
    assert make_mask(like=tmp_path / "masked.pt") == mask
    dropped = make_mask("--drop", "D:1:1", like=tmp_path / "masked.pt").dropped()
    assert dropped == [("enc_dec", 1, 0), ("dec_self", 0, 0)]


def test_random(paper_mask):
    mask = paper_mask("--random", "60%", "--seed", "5")
    assert len(mask.kept()) == 58
    assert mask.source["drawn"] == {
        "random": "60%", "components": "all", "seed": 5, "at_least_one": False, "pruned": 86, "of": 144,
    }  # fmt: skip
    assert paper_mask("--random", "60%", "--seed", "5") == mask != paper_mask("--random", "60%", "--seed", "0")
    # The default seed is 1, and it is recorded.
    default = paper_mask("--random", "60%")
    assert default == paper_mask("--random", "60%", "--seed", "1") and default.source["drawn"]["seed"] == 1
    assert len(paper_mask("--random", 86).kept()) == 58


@pytest.mark.parametrize(
    "flags, counts",
    [
        (["--random", "60%", "--components", "each"], [19, 19, 19]),
        (["--random", "50%", "--components", "enc_self"], [24, 48, 48]),
        (["--triple", "14,31,30", "--seed", "0"], [14, 31, 30]),
    ],
)
def test_heads_by_component(paper_mask, flags, counts):
    assert [n["kept"] for n in paper_mask(*flags).counts().values()] == counts


@pytest.mark.parametrize(
    "flags, config, drawn",
    [
        (["--random", "87.5%", "--at-least-one"], "111111 111111 111111", {"at_least_one": True}),
        (["--config", CONFIG, "--seed", "2"], "777322 233777 777332", {"seed": 2, "mirrored": False}),
        (["--config", CONFIG, "--mirror", "--seed", "2"], "223777 777332 233777", {"mirrored": True}),
        (["--layers", "top:2,bottom:2"], "008800 888888 888888", {"pruned_layers": {"enc_self": [0, 1, 4, 5]}}),
        (["--layers", "even", "--components", "dec_self"], "888888 888888 808080", {"layers": "even"}),
    ],
)
def test_heads_by_layer(paper_mask, flags, config, drawn):
    mask = paper_mask(*flags)
    assert " ".join(format_config(mask).values()) == config and mask.source["drawn"].items() >= drawn.items()


def test_components_drawn_over_jointly(paper_mask):
    counts = paper_mask("--random", "50%", "--components", "enc_self,dec_self").counts()
    assert counts["enc_self"]["kept"] + counts["dec_self"]["kept"] == 48 and counts["enc_dec"]["kept"] == 48
    assert "0" not in "".join(format_config(paper_mask("--triple", "6,7,8", "--at-least-one")).values())


def test_config_repeated_and_without_a_seed(paper_mask):
    repeated = paper_mask(*(word for part in CONFIG.split() for word in ("--config", part)), "--seed", "2")
    assert paper_mask("--config", CONFIG, "--seed", "2") == repeated
    first = paper_mask("--config", CONFIG)
    assert format_config(first) == format_config(repeated) and first != repeated
    assert first.rows["enc_self"][3] == [1, 1, 1, 0, 0, 0, 0, 0] and "seed" not in first.source["drawn"]


def test_complement(paper_mask, tmp_path):
    other, path = paper_mask("--random", "60%"), tmp_path / "other.json"
    other.save(path)
    mask = paper_mask("--complement", path)
    assert mask.kept() == other.dropped() and mask.source["complement"]["sha256"] == sha256(path)


@pytest.mark.parametrize(
    "flags, message",
    [
        ("--drop E:1:4", "E:1:4: enc_self has the heads 1 to 3 there, counted from 1"),
        ("--drop A:9:1", "A:9: enc_dec has the layers 1 to 1, counted from 1"),
        ("--drop E:1", "'E:1' is not a descriptor"),
        ("--config ES=3", "enc_self names 1 layers, the model has 2"),
        ("--config ES=33", "enc_self layer 1: cannot keep 3 heads of 2"),
        ("--config XX=3", "unknown component 'XX'"),
        ("--scores SCORES --heads -1", "--heads -1: there are 9 kept heads"),
        ("--scores SCORES --heads 10", "--heads 10: there are 9 kept heads"),
        ("--scores SCORES --heads 1.5", "--heads 1.5: not a number of heads"),
        ("--scores SCORES", "--scores needs --heads K"),
        ("--heads 3", "--scores FILE"),
        ("--scores SCORES --heads 3 --drop E:1:1", "not allowed with"),
        ("--scores no.json --heads 1", "no.json"),
        ("--like no.pt", "there is no such file"),
        ("--like .", "a folder, not a checkpoint"),
        ("--like PAPER --random 0.3%", "prunes no head of 144"),
        ("--like PAPER --config ES=77732 --seed 1", "5 layers, the model has 6"),
        ("--like PAPER --layers top:7", "there are 6 layers"),
        # What else cannot be drawn: test_choosing.py.
        ("--triple 14,31", "not a triple"),
        ("--random 60% --seed -1", "--seed must be 0 or more"),
        ("--random 60% --mirror", "--mirror needs --config"),
        ("--seed 1", "--seed needs --random or --triple or --config"),
        ("--config ES=11 --at-least-one", "--at-least-one needs --random or --triple"),
        ("--triple 1,1,1 --components all", "--components needs --random or --layers"),
        ("--random 60% --triple 1,1,1", "not allowed with"),
    ],
)
def test_wrong_input(refused, scores, tmp_path, flags, message):
    places = {"SCORES": scores, "PAPER": tmp_path / "paper.json"}
    assert message in refused(*(places.get(word, word) for word in flags.split()))


def test_scores_of_another_model_are_refused(refused, tmp_path):
    Scores({"enc_self": [[0.1, 0.2]]}, estimator="random").save(tmp_path / "s.json")
    line = refused("--scores", tmp_path / "s.json", "--heads", 1)
    assert "the score file has 1 layers of enc_self, --like has 2" in line


def test_what_is_neither_mask_nor_checkpoint(refused, tmp_path):
    write_json(tmp_path / "a.json", {"format": "headprune.mask/9", "heads": {}})
    assert "headprune.mask/9" in refused(like=tmp_path / "a.json")
    (tmp_path / "b.pt").write_text("no checkpoint")
    assert "b.pt: a damaged or truncated file, or not a checkpoint" in refused(like=tmp_path / "b.pt")
