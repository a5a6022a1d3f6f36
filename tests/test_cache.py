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
    # Source: torch's index_select and cat, for more steps than room is made for at a time.
    generator = torch.Generator().manual_seed(1)
    keys, values = (torch.randn(3, 2, 5, 4, generator=generator) for _ in range(2))
    padding = torch.tensor([[True] + [False] * 4, [False] * 5, [False] * 5])
    state = {"mine": {"prev_key": keys, "prev_value": values, "prev_key_padding_mask": padding}}
    expected, made = {"prev_key": keys, "prev_value": values}, set()
    for _ in range(11):
        order = torch.randint(0, 3, (3,), generator=generator)
        select_rows(Module(), state, order)
        saved, padding = state["mine"], padding[order]
        assert torch.equal(saved["prev_key_padding_mask"], padding)
        for name in expected:
            new = torch.randn(3, 2, 1, 4, generator=generator)
            assert torch.equal(saved[name], expected[name][order])
            saved[name] = extend(saved, name, new)
            expected[name] = torch.cat([expected[name][order], new], 2)
            assert torch.equal(saved[name], expected[name])
        made.add(saved["key_room"].size(2))
    # Source: by hand: room for four positions, three times.
    assert made == {9, 13, 17}


def test_what_does_not_fit_the_room_is_appended_all_the_same():
    keys = torch.arange(6.0).view(1, 1, 3, 2)
    state = {"mine": {"prev_key": keys, "prev_value": keys}}
    select_rows(Module(), state, torch.tensor([0]))
    found = extend(state["mine"], "prev_key", torch.ones(1, 1, 9, 2))
    assert torch.equal(found, torch.cat([keys, torch.ones(1, 1, 9, 2)], 2)) and "key_room" not in state["mine"]


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
