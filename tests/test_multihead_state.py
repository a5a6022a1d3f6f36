"""Adopting a stock module, and what travels in the state dict."""

import io

import pytest
import torch
from attention_parts import B, D, H, T, gated, inputs, stock
from fairseq.modules import MultiheadAttention
from fairseq.utils import move_to_cpu

from fairseq_headprune.modules.multihead import GatedMultiheadAttention


def test_adopting_keeps_the_parameters_and_refuses_other_classes():
    module = stock()
    before = dict(module.named_parameters())
    adopted = GatedMultiheadAttention.adopt(module)
    assert adopted is module and list(adopted.state_dict()) == list(before)
    assert all(parameter is before[name] for name, parameter in adopted.named_parameters())
    with pytest.raises(ValueError, match="GatedMultiheadAttention"):
        GatedMultiheadAttention.adopt(adopted)
    other = stock()
    other.use_xformers = True
    with pytest.raises(ValueError, match="xFormers"):
        GatedMultiheadAttention.adopt(other)
    assert type(other) is MultiheadAttention


def through_file(state):
    """What fairseq's trainer and torch.save do to a state dict."""
    file = io.BytesIO()
    torch.save(move_to_cpu(state), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def test_the_mask_and_the_head_count_travel_in_the_state_dict():
    attention = gated(stock())
    attention.set_keep([1, 0, 1, 0], source={"path": "mask.json"})
    state = through_file(attention.state_dict())
    assert state["head_keep"].tolist() == [True, False, True, False]
    assert "head_gate" not in state
    fresh = gated(stock(seed=9))
    fresh.load_state_dict(state)
    assert fresh.head_keep.tolist() == [True, False, True, False] and fresh.keep_source == {"path": "mask.json"}
    (x,) = inputs((T, B, D))
    assert torch.equal(fresh(x, x, x)[0], attention(x, x, x)[0])
    # A checkpoint without a mask takes the mask away, unless it was fixed.
    fresh.load_state_dict(through_file(stock().state_dict()))
    assert fresh.head_keep is None and fresh.keep_source == {}
    fresh.set_keep([0, 1, 1, 1], fixed=True)
    fresh.load_state_dict(state)
    assert fresh.head_keep.tolist() == [False, True, True, True]


def test_another_head_count_is_refused_by_name():
    model = torch.nn.ModuleDict({"attn": gated(stock())})
    state = through_file(model.state_dict())
    torch.manual_seed(0)
    narrow = torch.nn.ModuleDict({"attn": GatedMultiheadAttention.adopt(MultiheadAttention(D, 2))})
    with pytest.raises(RuntimeError, match="attn: the checkpoint has 4 heads, the model was built with 2"):
        narrow.load_state_dict(state)
    # Without metadata (another program wrote it) a mask of the wrong length still tells.
    plain = dict(state) | {"attn.head_keep": torch.tensor([True, False, True, True])}
    with pytest.raises(RuntimeError, match="mask has 4 heads"):
        narrow.load_state_dict(plain)


def test_a_stock_module_refuses_a_mask_and_takes_the_rest():
    attention = gated(stock())
    stock(seed=3).load_state_dict(attention.state_dict())
    attention.set_keep([1, 0, 1, 1])
    with pytest.raises(RuntimeError, match="head_keep"):
        stock().load_state_dict(attention.state_dict())


def test_a_mask_that_keeps_all_is_no_mask():
    attention = gated(stock())
    attention.set_keep([1] * H)
    assert attention.head_keep is None and "head_keep" not in attention.state_dict()
