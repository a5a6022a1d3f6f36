"""How rankings evolve, by hand."""

import pytest
from scipy import stats

from fairseq_headprune.parts.scores import Scores
from fairseq_headprune.studies.rankings import evolution

ROWS = {1: [1.0, 2.0, 3.0, 4.0, 5.0], 2: [5.0, 4.0, 3.0, 2.0, 1.0], 3: [1.0, 3.0, 2.0, 5.0, 4.0], 4: [0.0] * 5}


def scores(*epochs):
    return {epoch: Scores({"enc_self": [ROWS[epoch][:3], ROWS[epoch][3:]]}, estimator="x") for epoch in epochs}


def test_correlation_of_the_rankings():
    found = evolution(scores(1, 2, 3, 4), ["enc_self"], [])
    # Source: by hand (a reversed order has -1) and scipy; equal scores rank nothing.
    assert found["epochs"] == [1, 2, 3, 4] and found["spearman"][0][1] == pytest.approx(-1)
    assert found["spearman"][2][0] == found["spearman"][0][2] == pytest.approx(stats.spearmanr(ROWS[1], ROWS[3])[0])
    assert [row[3] for row in found["spearman"]] == [None] * 4
    assert found["spearman"][1][1] == pytest.approx(1)


def test_when_the_final_set_is_reached():
    # Source: by hand: best two of epochs 1 and 3: heads 3 and 4; of epoch 2: heads 0 and 1.
    found = evolution(scores(1, 2, 3), ["enc_self"], [2, 4])["sets"]
    assert found[0] == {
        "keep": 2,
        "final": [["enc_self", 1, 0], ["enc_self", 1, 1]],
        "first": 1,
        "stays_from": 3,
        "shared": [2, 0, 2],
    }
    # Four of five: all but head 0, which is the last of epoch 2 too? No: its last is head 4.
    assert found[1]["first"] == 1 and found[1]["shared"] == [4, 3, 4]
    assert evolution(scores(2, 1, 3), ["enc_self"], [2])["sets"][0]["first"] == 1
