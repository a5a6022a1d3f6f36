"""Steps of a pruning curve: shares, rounding, and which heads go next."""

from fractions import Fraction

import pytest

from fairseq_headprune.parts import Mask, Part
from fairseq_headprune.parts.scores import Scores
from fairseq_headprune.pruning import curves, next_heads, one_kept, one_removed, parse_step, passed_over, steps

HEADS = ["enc_self", "enc_dec", "dec_self"]


@pytest.mark.parametrize("text, value", [
    ("10%", "1/10"), ("0.1", "1/10"), (" 33.3% ", "333/1000"), ("1", "1"), ("100%", "1"), ("1/3", "1/3"),
    ("0.1%", "1/1000"),
])  # fmt: skip
def test_a_step_is_read_exactly(text, value):
    assert parse_step(text) == Fraction(value)


def test_a_step_that_is_no_share_is_refused():
    for text in ("0", "0%", "0.0999%", "-10%", "150%", "1.5", "10", "1e-9"):
        with pytest.raises(ValueError, match=f"--step {text} is out of range: .* 0.1% .* 100%"):
            parse_step(text)
    for text in ("nan", "inf", "ten", "", "%", "1/0", "10 %%"):
        with pytest.raises(ValueError, match="not a share of the heads such as 10% or 0.1"):
            parse_step(text)


def test_steps_of_ten_percent():
    # Source: by hand, round(k x 0.1 x 48) = 4.8 k; and of 12 heads 1.2 k.
    assert [s.pruned for s in steps(48, Fraction(1, 10))] == [0, 5, 10, 14, 19, 24, 29, 34, 38, 43, 48]
    points = steps(12, Fraction(1, 10))
    assert [s.pruned for s in points] == [0, 1, 2, 4, 5, 6, 7, 8, 10, 11, 12]
    assert [s.percent for s in points] == [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
    assert [s.number for s in points] == list(range(11))


def test_the_last_step_is_always_all_heads():
    # Source: by hand; 0.3 does not divide 1. Three times 1/3 is exactly 1, which no float would give.
    assert [(s.percent, s.pruned) for s in steps(10, Fraction(3, 10))] == [(0, 0), (30, 3), (60, 6), (90, 9), (100, 10)]
    assert [s.pruned for s in steps(9, Fraction(1, 3))] == [0, 3, 6, 9]
    assert [s.pruned for s in steps(5, Fraction(1))] == [0, 5] and steps(1, Fraction(1))[1].pruned == 1
    # More steps than heads: some prune nothing new.
    assert [s.pruned for s in steps(2, Fraction(1, 5))] == [0, 0, 1, 1, 2, 2]


def test_steps_without_heads_are_refused():
    with pytest.raises(ValueError, match="no head to prune"):
        steps(0, Fraction(1, 10))


def test_curves():
    assert curves("all", HEADS) == {"all": HEADS}
    assert curves("each", HEADS) == {c: [c] for c in HEADS}
    assert curves("dec_self, enc_self", HEADS) == {"enc_self+dec_self": ["enc_self", "dec_self"]}
    assert curves("enc_dec", HEADS) == {"enc_dec": ["enc_dec"]}
    # A decoder-only model has one component.
    assert curves("all", ["dec_self"]) == {"all": ["dec_self"]}
    assert curves("each", ["dec_self"]) == {"dec_self": ["dec_self"]}


def test_wrong_components_are_refused():
    for text in ("encoder", ""):
        with pytest.raises(KeyError, match=f"unknown component '{text}'"):
            curves(text, HEADS)
    with pytest.raises(ValueError, match="the model has no enc_self, enc_dec; it has dec_self"):
        curves("enc_self,enc_dec", ["dec_self"])


SCORES = Scores({"enc_self": [[0.4, 0.1, 0.3]], "enc_dec": [[0.2, 0.0, 0.5]]}, estimator="gradient")
FULL = Mask.full({"enc_self": [3], "enc_dec": [3]})


def test_next_heads_by_hand():
    # Source: by hand, ascending: enc_dec 1 (0.0), enc_self 1 (0.1), enc_dec 0 (0.2), enc_self 2, enc_self 0, enc_dec 2.
    first = next_heads(FULL, SCORES, HEADS, FULL, 2)
    assert first == [Part("enc_dec", 0, 1), Part("enc_self", 0, 1)]
    assert next_heads(FULL.without(first), SCORES, HEADS, FULL, 3) == [Part("enc_dec", 0, 0)]
    assert next_heads(FULL.without(first), SCORES, HEADS, FULL, 2) == []
    assert next_heads(FULL, SCORES, ["enc_self"], FULL, 1) == [Part("enc_self", 0, 1)]


def test_heads_pruned_at_the_start_do_not_count():
    # Source: by hand. The start lacks enc_dec 1; two more of the five in play are enc_self 1 and enc_dec 0.
    start = FULL.without([Part("enc_dec", 0, 1)])
    assert next_heads(start, SCORES, HEADS, start, 2) == [Part("enc_self", 0, 1), Part("enc_dec", 0, 0)]
    assert len(next_heads(start, SCORES, HEADS, start, 5)) == 5


def test_unranked_heads_are_refused():
    scores = Scores({"enc_self": [[0.4, None, 0.3]], "enc_dec": [[0.2, 0.0, 0.5]]}, estimator="gradient")
    with pytest.raises(ValueError, match="do not rank enc_self layer 0 head 1"):
        next_heads(FULL, scores, HEADS, FULL, 1)
    assert next_heads(FULL.without([Part("enc_self", 0, 1)]), scores, ["enc_self"], FULL, 2) == [Part("enc_self", 0, 2)]


#: of the one-head experiments; expected heads were written down by hand
START = Mask({"enc_self": [[1, 1, 1], [0, 1]], "dec_self": [[1, 0, 1], [0, 0]]})


def test_one_removed_passes_pruned_heads_over():
    masks = one_removed(START, ["enc_self", "dec_self"])
    # By hand: 3 + 1 + 2 + 0 heads are kept.
    assert list(masks) == [
        Part("enc_self", 0, 0), Part("enc_self", 0, 1), Part("enc_self", 0, 2), Part("enc_self", 1, 1),
        Part("dec_self", 0, 0), Part("dec_self", 0, 2),
    ]  # fmt: skip
    for head, mask in masks.items():
        assert set(mask.dropped()) - set(START.dropped()) == {head}
    assert masks[Part("enc_self", 0, 1)].rows == {"enc_self": [[1, 0, 1], [0, 1]], "dec_self": [[1, 0, 1], [0, 0]]}


def test_one_kept_keeps_one_head_there_and_all_elsewhere():
    layers = one_kept(START, ["enc_self", "dec_self"])
    # By hand: layers with one head or none are left out.
    found = {layer: [head.index for head in masks] for layer, masks in layers.items()}
    assert found == {("enc_self", 0): [0, 1, 2], ("dec_self", 0): [0, 2]}
    for (component, layer), masks in layers.items():
        for head, mask in masks.items():
            assert [h for h in mask.kept([component]) if h.layer == layer] == [head]
            elsewhere = [h for h in START.kept() if (h.component, h.layer) != (component, layer)]
            assert [h for h in mask.kept() if (h.component, h.layer) != (component, layer)] == elsewhere


def test_units_are_kept_alone_as_heads_are():
    start = Mask({"enc_self": [[1, 1]], "enc_ffn": [[1, 0, 1], [1]], "dec_ffn": [[0, 1, 0]]})
    layers = one_kept(start, ["enc_ffn", "dec_ffn"])
    # By hand: a block, and a layer of one unit, have nothing to choose from.
    [(layer, masks)] = layers.items()
    assert layer == ("enc_ffn", 0) and {part.index: mask.rows["enc_ffn"] for part, mask in masks.items()} == {
        0: [[1, 0, 0], [1]], 2: [[0, 0, 1], [1]],
    }  # fmt: skip
    others = ["enc_self", "dec_ffn"]
    assert all(mask.only(others) == start.only(others) for mask in masks.values())
    skipped = [tuple(layer.values()) for layer in passed_over(start, ["enc_ffn", "dec_ffn"])]
    assert skipped == [("enc_ffn", 1, [0]), ("dec_ffn", 0, [1])]


def test_only_the_chosen_components():
    assert {head.component for head in one_removed(START, ["dec_self"])} == {"dec_self"}
    assert list(one_kept(START, ["enc_self"])) == [("enc_self", 0)]


def test_nothing_to_mask_is_refused():
    empty = Mask({"enc_self": [[0, 0], [0, 1]]})
    with pytest.raises(ValueError, match="nothing to choose from"):
        one_kept(empty, ["enc_self"])
    with pytest.raises(ValueError, match="no head to ablate"):
        one_removed(empty.without([Part("enc_self", 1, 1)]), ["enc_self"])
