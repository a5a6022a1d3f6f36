"""A mask for each row of a batch."""

import pytest
import torch

from fairseq_headprune.modules.attach import find_gates
from fairseq_headprune.modules.attention import apply_gate
from fairseq_headprune.modules.row_masks import RowMasks, encoder_groups
from fairseq_headprune.parts import FFN, Mask, Part

SHAPE = {"enc_self": [2, 2], "enc_dec": [2, 2], "dec_self": [2, 2]}


def test_rows_are_masked_as_whole_batches_are(tiny_model, batch):
    # Source: each mask set for the whole batch.
    gates = find_gates(tiny_model)
    full = Mask.full(SHAPE)
    masks = [full, full.without([Part("enc_self", 0, 1), Part("dec_self", 1, 0)]), full.without(full.kept(["enc_dec"]))]
    inputs = batch["net_input"]
    rows = RowMasks(gates, masks)
    assert rows.masks == 3
    with rows.in_force(), torch.no_grad():
        for component in SHAPE:
            rows.set(component, torch.tensor([2, 0, 1]))
        found = tiny_model(**inputs)[0]
    for row, mask in enumerate([masks[2], masks[0], masks[1]]):
        with gates.masked(mask), torch.no_grad():
            assert torch.allclose(tiny_model(**inputs)[0][row], found[row], atol=1e-6)
    with torch.no_grad():
        assert not torch.allclose(tiny_model(**inputs)[0], found, atol=1e-3)


def test_a_pruned_head_is_replaced_not_multiplied():
    # Source: by hand; NaN times 0 would be NaN.
    heads = torch.ones(2, 2, 1, 1)
    heads[0, 1] = float("nan")
    keep = torch.tensor([[True, False], [False, True]])
    assert apply_gate(heads, None, keep).flatten().tolist() == [1, 0, 0, 1]


def test_groups_of_the_encoder():
    # Source: by hand.
    full = Mask.full(SHAPE)
    first, second = full.without([Part("enc_self", 0, 0)]), full.without([Part("enc_self", 1, 0)])
    masks = [full, first, full.without([Part("dec_self", 0, 0)]), second, first.without([Part("enc_self", 1, 0)])]
    assert encoder_groups(masks, 2) == [[0, 0, 0, 0, 0], [0, 1, 0, 0, 1], [0, 1, 0, 2, 3]]


def test_a_mask_of_another_model_is_refused(tiny_model):
    with pytest.raises(ValueError, match="enc_self"):
        RowMasks(find_gates(tiny_model), [Mask.full({"enc_self": [3, 2]})])


def test_rows_have_feed_forward_parts_of_their_own(tiny_model, batch):
    # Source: each mask set for the whole batch.
    gates = find_gates(tiny_model)
    full = Mask.full(SHAPE)
    units = [int(unit % 3 == 0) for unit in range(64)]
    masks = [
        full,
        Mask({**full.rows, "enc_ffn": [[0], [1]], "dec_ffn": [[1], units]}),
        Mask({**full.without([Part("enc_self", 0, 1)]).rows, "enc_ffn": [units, [1]], "dec_ffn": [[0], [0] * 64]}),
    ]
    rows = RowMasks(gates, masks)
    with rows.in_force(), torch.no_grad():
        for component in gates.components:
            rows.set(component, torch.tensor([2, 1, 0]))
        found = tiny_model(**batch["net_input"])[0]
    expected = []
    for mask in reversed(masks):
        with gates.masked(mask), torch.no_grad():
            expected.append(tiny_model(**batch["net_input"])[0][len(expected)])
    assert torch.allclose(found, torch.stack(expected), atol=1e-6)
    assert all(module.row_keep is module.row_block is None for _, _, module in gates.items(FFN))
    assert encoder_groups(masks, 2) == [[0, 0, 0], [0, 1, 2], [0, 1, 2]]
