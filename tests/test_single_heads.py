"""The masks of the one-head experiments; expected heads were written down by hand."""

import pytest

from fairseq_headprune.parts import Mask, Part
from fairseq_headprune.pruning import one_kept, one_removed, passed_over

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
    assert {layer: [head.index for head in masks] for layer, masks in layers.items()} == {
        ("enc_self", 0): [0, 1, 2],
        ("dec_self", 0): [0, 2],
    }
    for (component, layer), masks in layers.items():
        for head, mask in masks.items():
            assert [h for h in mask.kept([component]) if h.layer == layer] == [head]
            elsewhere = [h for h in START.kept() if (h.component, h.layer) != (component, layer)]
            assert [h for h in mask.kept() if (h.component, h.layer) != (component, layer)] == elsewhere


def test_units_are_kept_alone_as_heads_are():
    start = Mask({"enc_self": [[1, 1]], "enc_ffn": [[1, 0, 1], [1]], "dec_ffn": [[0, 1, 0]]})
    layers = one_kept(start, ["enc_ffn", "dec_ffn"])
    # By hand: a block, and a layer of one unit, have nothing to choose from.
    assert {
        layer: {part.index: mask.rows["enc_ffn"] for part, mask in masks.items()} for layer, masks in layers.items()
    } == {("enc_ffn", 0): {0: [[1, 0, 0], [1]], 2: [[0, 0, 1], [1]]}}
    assert all(
        mask.only(["enc_self", "dec_ffn"]) == start.only(["enc_self", "dec_ffn"])
        for mask in layers["enc_ffn", 0].values()
    )
    skipped = passed_over(start, ["enc_ffn", "dec_ffn"])
    assert [(layer["component"], layer["layer"], layer["heads"]) for layer in skipped] == [
        ("enc_ffn", 1, [0]),
        ("dec_ffn", 0, [1]),
    ]


def test_only_the_chosen_components():
    assert {head.component for head in one_removed(START, ["dec_self"])} == {"dec_self"}
    assert list(one_kept(START, ["enc_self"])) == [("enc_self", 0)]


def test_nothing_to_mask_is_refused():
    empty = Mask({"enc_self": [[0, 0], [0, 1]]})
    with pytest.raises(ValueError, match="nothing to choose from"):
        one_kept(empty, ["enc_self"])
    with pytest.raises(ValueError, match="no head to ablate"):
        one_removed(empty.without([Part("enc_self", 1, 1)]), ["enc_self"])
