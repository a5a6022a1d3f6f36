"""The best mask with equal counts per stack. Reference: trying every pair of counts, heads picked by hand."""

import itertools
import random

import pytest

from fairseq_headprune.choosing.scored import uniform_mask
from fairseq_headprune.parts import Mask, all_heads
from fairseq_headprune.parts.scores import Scores

SHAPE = {"enc_self": [4, 4, 4], "enc_dec": [3, 3], "dec_self": [3, 3]}


def scores_of(seed):
    draw = random.Random(seed)
    return Scores({c: [[draw.random() for _ in range(n)] for n in rows] for c, rows in SHAPE.items()}, "test")


@pytest.mark.parametrize("seed, heads", itertools.product(range(3), (0, 2, 5, 9, 14, 24, 30)))
def test_best_of_all_pairs(seed, heads):
    scores = scores_of(seed)
    totals = []
    for encoder, decoder in itertools.product(range(5), range(4)):
        if 3 * encoder + 4 * decoder <= heads:
            kept = {"enc_self": encoder, "enc_dec": decoder, "dec_self": decoder}
            highest = (sorted(row, reverse=True)[: kept[c]] for c, rows in scores.rows.items() for row in rows)
            totals.append(sum(map(sum, highest)))
    found = uniform_mask(Mask.full(SHAPE), scores, heads)
    assert sum(scores[head] for head in found.kept()) == pytest.approx(max(totals))
    counts = {c: {sum(row) for row in rows} for c, rows in found.rows.items()}
    assert len(counts["enc_self"]) == 1 and counts["enc_dec"] == counts["dec_self"] and len(counts["enc_dec"]) == 1
    assert len(found.kept()) <= heads


def test_heads_that_are_gone_stay_gone():
    mask = Mask.full(SHAPE).without([head for head in all_heads(SHAPE) if head[:2] == ("dec_self", 1)])
    found = uniform_mask(mask, scores_of(1), 24)
    # One decoder module has no head left, so none can have any.
    assert {c: len(found.kept([c])) for c in SHAPE} == {"enc_self": 12, "enc_dec": 0, "dec_self": 0}


def test_of_equal_totals_the_fewest_heads_are_kept():
    nothing = Scores({c: [[0.0] * n for n in rows] for c, rows in SHAPE.items()}, "test")
    assert uniform_mask(Mask.full(SHAPE), nothing, 30).kept() == []


def test_wrong_input():
    with pytest.raises(ValueError, match="cannot keep -1 heads"):
        uniform_mask(Mask.full(SHAPE), scores_of(1), -1)
    with pytest.raises(ValueError, match="the scores are of a model with heads"):
        uniform_mask(Mask.full({"enc_self": [2]}), scores_of(1), 1)
