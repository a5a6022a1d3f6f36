"""Memory for the keys and values of many attention modules, which grow and lose sentences in a search."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Optional

import torch
from torch import Tensor


class Blocks:
    """Keys and values of many modules in blocks of memory that are used again.

    What changes its shape is written to a spare block, and leaves its own one as the next spare. Tensors of a new size
    each time would fill up the allocator's cache with blocks that nothing fits into.
    """

    def __init__(self, keys: int) -> None:
        """``keys``: for so many, of all sentences together, a block is made; where they are more, for 1.25 times."""
        self._keys = keys
        #: module -> keys and values, (sentences, heads, room, head_dim) each
        self._of: dict[Any, list[Tensor]] = {}
        self._memory: dict[Any, list[Tensor]] = {}
        self._spare: Optional[Tensor] = None

    def __getitem__(self, module: Any) -> list[Tensor]:
        return self._of[module]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._of)

    def __contains__(self, module: Any) -> bool:
        return module in self._of

    def put(self, module: Any, place: int, shape: Sequence[int], like: Tensor, write: Callable[[Tensor], Any]) -> None:
        """Let ``write`` fill a tensor of this shape, and keep it as the module's keys (place 0) or values (1)."""
        size, room = math.prod(shape), self._keys * shape[1] * shape[3]
        if self._spare is None or self._spare.numel() < size:
            self._spare = None  # released before more is allocated
            self._spare = like.new_empty(room if size <= room else size * 5 // 4)
        block, self._spare = self._spare, None
        new = block[:size].view(*shape)
        write(new)
        of, memory = self._of.setdefault(module, []), self._memory.setdefault(module, [])
        if place < len(of):
            self._spare, of[place], memory[place] = memory[place], new, block
        else:
            of.append(new)
            memory.append(block)

    def select(self, keep: Tensor) -> None:
        """Keep some sentences of all modules."""
        for module, tensors in self._of.items():
            for place, old in enumerate(tensors):
                self.put(module, place, (keep.numel(), *old.shape[1:]), old, partial(write_rows, old, keep))

    def compact(self, keys: Optional[int] = None) -> None:
        """Move everything, or the first keys, to memory of just that size, one tensor after the other."""
        self._spare, self._keys = None, 0
        for module, tensors in self._of.items():
            for place, old in enumerate(tensors):
                tensors[place] = old[:, :, :keys].clone(memory_format=torch.contiguous_format)
                self._memory[module][place] = tensors[place].view(-1)
                del old

    def part(self, keep: Tensor) -> "Blocks":
        """Return a copy with some sentences of all modules."""
        new = Blocks(0)
        for module, tensors in self._of.items():
            new._of[module] = [old.index_select(0, keep) for old in tensors]
            new._memory[module] = [tensor.view(-1) for tensor in new._of[module]]
        return new

    def join(self, other: "Blocks", room: int) -> None:
        """Append the sentences of others of the same modules; all have this room then, 0 where it was less."""
        for module, tensors in self._of.items():
            for place, (old, more) in enumerate(zip(tensors, other[module], strict=True)):
                shape = (old.size(0) + more.size(0), old.size(1), room, old.size(3))
                self.put(module, place, shape, old, partial(_write_both, (old, more)))


def write_rows(x: Tensor, rows: Tensor, new: Tensor) -> None:
    """Write some rows of ``x`` to ``new``, a tensor of their shape."""
    torch.index_select(x, 0, rows, out=new)


def _write_both(given: Sequence[Tensor], new: Tensor) -> None:
    for part, old in zip(new.split([old.size(0) for old in given]), given, strict=True):
        width = min(part.size(2), old.size(2))
        part[:, :, :width] = old[:, :, :width]
        part[:, :, width:] = 0
