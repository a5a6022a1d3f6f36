"""The key and value cache with room for the next position."""

import torch

from fairseq_headprune.modules.cache import extend, select_rows, select_static_rows


class Module:
    """Keeps its state as fairseq's attention does."""

    def _get_input_buffer(self, state):
        return state.setdefault("mine", {})

    def _set_input_buffer(self, state, saved):
        state["mine"] = saved


def test_reordering_and_appending_are_index_select_and_cat():
    # Source: torch's index_select and cat.
    generator = torch.Generator().manual_seed(1)
    keys, values, new = (torch.randn(3, 2, length, 4, generator=generator) for length in (5, 5, 1))
    padding = torch.tensor([[True] + [False] * 4, [False] * 5, [False] * 5])
    state = {"mine": {"prev_key": keys, "prev_value": values, "prev_key_padding_mask": padding}}
    order = torch.tensor([2, 0, 0, 1])
    select_rows(Module(), state, order)
    saved = state["mine"]
    assert torch.equal(saved["prev_key"], keys[order]) and torch.equal(saved["prev_value"], values[order])
    assert torch.equal(saved["prev_key_padding_mask"], padding[order])
    for name, before in (("prev_key", keys), ("prev_value", values)):
        found = extend(saved, name, new[order])
        assert torch.equal(found, torch.cat([before[order], new[order]], 2)) and found.is_contiguous()
    assert "key_room" not in saved and "value_room" not in saved


def test_without_room_it_is_copied():
    keys = torch.arange(6.0).view(1, 1, 3, 2)
    found = extend({"prev_key": keys}, "prev_key", torch.ones(1, 1, 2, 2))
    assert found.shape == (1, 1, 5, 2) and found[0, 0, 3:].tolist() == [[1, 1], [1, 1]]


def test_static_rows_make_no_room():
    keys = torch.arange(6.0).view(3, 1, 1, 2)
    state = {"mine": {"prev_key": keys, "prev_value": keys + 1, "prev_key_padding_mask": None}}
    select_static_rows(Module(), state, torch.tensor([2, 1]))
    assert set(state["mine"]) == {"prev_key", "prev_value", "prev_key_padding_mask"}
    assert torch.equal(state["mine"]["prev_key"], keys[[2, 1]])
