"""``headprune mask --for-params``: as many heads as a number of parameters allows."""

from fractions import Fraction

import pytest
import torch
from slim_models import SETTINGS, lively, state_of
from verbs import refused, run_json

from fairseq_headprune.choosing.scored import keep_within, parse_share
from fairseq_headprune.parts import Mask, Part
from fairseq_headprune.parts.scores import Scores
from fairseq_headprune.removal.checkpoint import slim_checkpoint

SCORES = Scores({"enc_self": [[0.5, 0.1, 0.4, 0.2]]}, estimator="random")
FULL = Mask.full({"enc_self": [4]})
#: 10 parameters a head of a model of 100
COSTS = dict.fromkeys(FULL.kept(), 10)


@pytest.mark.parametrize(
    "share, kept, left",
    [("1", [0, 1, 2, 3], 100), ("0.9x", [0, 2, 3], 90), ("85%", [0, 2], 80), ("0.6", [], 60)],
)
def test_the_lowest_scores_go_until_the_model_is_small_enough(share, kept, left):
    mask, found = keep_within(FULL, SCORES, 100, COSTS, parse_share(share))
    assert ([head.index for head in mask.kept()], found) == (kept, left)


def test_heads_that_are_masked_count_as_gone_and_removed_ones_cost_nothing():
    start = FULL.without([Part("enc_self", 0, 1)])
    assert keep_within(start, SCORES, 100, COSTS, Fraction(9, 10))[1] == 90
    costs = {head: 10 for head in start.kept()}
    assert keep_within(start, SCORES, 100, costs, Fraction(9, 10))[1] == 90  # another head had to go


def test_impossible_shares_are_refused():
    with pytest.raises(ValueError, match="60 of 100"):
        keep_within(FULL, SCORES, 100, COSTS, Fraction(1, 2))
    for text in ("0", "1.1x", "-5%", "much"):
        with pytest.raises(ValueError, match="share"):
            parse_share(text)


def test_the_slim_model_has_the_parameters_that_were_promised(tmp_path, capsys):
    state, path = state_of(lively(SETTINGS[1])), tmp_path / "model.pt"
    state["model"]["head_gates.weight"] = torch.zeros(40)  # learned gates, which no slim model has
    torch.save(state, path)
    draw = torch.Generator().manual_seed(1)
    shape = {"enc_self": [4, 4], "enc_dec": [8, 8], "dec_self": [8, 8]}
    values = {c: [torch.rand(n, generator=draw).tolist() for n in layers] for c, layers in shape.items()}
    Scores(values, estimator="random").save(tmp_path / "scores.json")
    words = ["mask", "--like", path, "--scores", tmp_path / "scores.json", "-o", tmp_path / "mask.json"]
    value = run_json(*words, "--for-params", "0.75x")
    budget = value["source"]["budget"]
    slim = slim_checkpoint(path, tmp_path / "slim.pt", Mask.load(tmp_path / "mask.json"))
    # Source: the tensors of the slim checkpoint.
    assert slim["parameters"]["after"] == budget["parameters"] <= 0.75 * slim["parameters"]["before"]
    assert budget["of"] == slim["parameters"]["before"]
    assert "--scores" in refused(capsys, *words[:3], "-o", tmp_path / "x.json", "--for-params", "0.75x")
    assert "of" in refused(capsys, *words, "--for-params", "0.1x")
