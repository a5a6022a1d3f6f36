"""The key and value cache of incremental decoding (fairseq's format), reordered and extended with one copy per step.

fairseq copies all keys twice per step: to reorder the rows, and to append the new position. Here reordering also
allocates space for some positions, in extra entries of the state (``key_room``, ``value_room``); later steps fill it.
"""

from typing import Any, Optional

import torch
from torch import Tensor

_ROOMS = {"prev_key": "key_room", "prev_value": "value_room"}

#: Number of positions allocated at a time; kept small because unused ones are also copied.
_STEPS = 4


def extend(saved: dict[str, Optional[Tensor]], name: str, new: Tensor) -> Tensor:
    """Return the cached keys (``prev_key``) or values (``prev_value``), followed by the new ones.

    Args:
        new: (rows, heads, time, head_dim).
    """
    cache, room = saved[name], saved.get(_ROOMS[name])
    assert cache is not None  # the caller has filled it
    length = cache.size(2) + new.size(2)
    if room is None or room.size(2) < length:
        saved.pop(_ROOMS[name], None)
        return torch.cat([cache, new], dim=2)
    room[:, :, cache.size(2) : length] = new
    return room[:, :, :length]


def select_rows(module: Any, state: dict, order: Tensor) -> None:
    """Reorder (or repeat, or drop) the rows of a self-attention module's cache, allocating space for new positions."""
    saved = module._get_input_buffer(state)
    for name, room_name in _ROOMS.items():
        if name in saved:
            cache, room = saved[name], saved.get(room_name)
            _, heads, length, width = cache.shape
            if room is not None and room.size(2) > length:
                room = room.index_select(0, order)
            else:
                room = cache.new_empty(order.numel(), heads, length + _STEPS, width)
                torch.index_select(cache, 0, order, out=room[:, :, :length])
            saved[room_name], saved[name] = room, room[:, :, :length]
    _select_padding(saved, order)
    module._set_input_buffer(state, saved)


def select_static_rows(module: Any, state: dict, order: Tensor) -> None:
    """Select rows of the cached keys and values of encoder-decoder attention, which do not grow."""
    saved = module._get_input_buffer(state)
    for name in _ROOMS:
        if name in saved:
            saved[name] = saved[name].index_select(0, order)
    _select_padding(saved, order)
    module._set_input_buffer(state, saved)


def set_static_rows(module: Any, state: dict, encoded: Tensor, padding: Optional[Tensor], rows: Tensor) -> None:
    """Project each encoder output once, and share it among many rows of encoder-decoder attention.

    Args:
        encoded: (src, outputs, d).
        padding: None or bool (outputs, src).
        rows: for each row of the cache, the index of the output it attends to.
    """
    if not module.num_heads:
        return
    key, value = (module._heads_first(project(encoded)) for project in (module.k_proj, module.v_proj))
    saved = {"prev_key": key.index_select(0, rows), "prev_value": value.index_select(0, rows)}
    saved["prev_key_padding_mask"] = None if padding is None else padding.index_select(0, rows)
    module._set_input_buffer(state, saved)


def _select_padding(saved: dict[str, Optional[Tensor]], order: Tensor) -> None:
    padding = saved.get("prev_key_padding_mask")
    if padding is not None:
        saved["prev_key_padding_mask"] = padding.index_select(0, order)
