"""Gives every row of a batch its own head mask, so that one batch can evaluate many masks."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Optional

import torch
from torch import Tensor, nn

from fairseq_headprune.modules.attach import GatedParts
from fairseq_headprune.parts import COMPONENTS, FFN, Mask

#: the components of an encoder's layers
_ENCODER = ("enc_self", "enc_ffn")


class RowMasks:
    """Several masks of one model, as tables that the rows of a batch index.

    Attributes:
        masks: the number of masks.
        given: the masks.
    """

    def __init__(self, gates: GatedParts, masks: Sequence[Mask]) -> None:
        """Check the masks and build the tables.

        Raises:
            ValueError: a mask that does not fit the model.
        """
        for mask in masks:
            gates.check(mask)
        self.masks, self.given = len(masks), masks
        self._gates = gates
        #: module -> name of its row mask -> bool (masks, parts); modules that no mask prunes are omitted
        self._tables: dict[Any, dict[str, Tensor]] = {}
        for component, layer, module in gates.items(COMPONENTS):
            rows = [mask.rows[component][layer] if component in mask.rows else [1] for mask in masks]
            tables = {"row_keep": [_of_parts(row, module) for row in rows]}
            if component in FFN and module.has_block:
                tables["row_block"] = [[int(row != [0])] for row in rows]
            device = module.output_layer.weight.device
            self._tables[module] = {
                name: torch.tensor(table, dtype=torch.bool, device=device)
                for name, table in tables.items()
                if not all(map(all, table))
            }

    def set(self, component: str, rows: Tensor, layer: Optional[int] = None) -> None:
        """Assign mask number ``rows[i]`` to row i of the next batches, in all layers of a component or in one."""
        for _, number, module in self._gates.items([component]):
            if layer in (None, number):
                for name, table in self._tables[module].items():
                    setattr(module, name, table.index_select(0, rows))

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Context manager: suspend the model's own mask; on exit it is restored, and no row has its own mask."""
        with self._gates.masked(None):
            try:
                yield
            finally:
                for module, tables in self._tables.items():
                    for name in tables:
                        setattr(module, name, None)


def _of_parts(row: list[int], module: Any) -> list[int]:
    """Return the entries of the remaining parts; a single entry for a block does not concern its units."""
    return (
        [row[index] for index in module.indices]
        if len(row) > 1 or module.original_count == 1
        else [1] * len(module.indices)
    )


def encoder_groups(masks: Sequence[Mask], layers: int) -> list[list[int]]:
    """Group the masks that are still equal in the encoder after each layer.

    Returns:
        For each number of layers from 0 to ``layers``, a group number for each mask: masks in one group are equal in
        all layers below. Groups are numbered from 0 by their first mask, so the groups after a layer refine those
        before it.
    """
    result = []
    for depth in range(layers + 1):
        numbers: dict[str, int] = {}
        parts = (str([mask.rows.get(c, [])[:depth] for c in _ENCODER]) for mask in masks)
        result.append([numbers.setdefault(part, len(numbers)) for part in parts])
    return result


@contextmanager
def branching(layers: Sequence[nn.Module], rows: RowMasks, masks: Sequence[int]) -> Iterator[list[int]]:
    """Context manager for one forward pass: encoder layers compute once per group of masks that are equal so far.

    Args:
        layers: called in order with x (time, sentences, d) and ``encoder_padding_mask``.
        masks: the numbers of those that are computed.

    Yields:
        each mask's group after the last layer, whose output has shape (time, groups * sentences, d).
    """
    groups = encoder_groups([rows.given[number] for number in masks], len(layers))
    with ExitStack() as stack:
        for number, layer in enumerate(layers):
            hook = partial(_branch, number, groups[number], groups[number + 1], rows, masks)
            stack.enter_context(layer.register_forward_pre_hook(hook, with_kwargs=True))
        yield groups[-1]


def _branch(
    number: int,
    before: list[int],
    after: list[int],
    rows: RowMasks,
    masks: Sequence[int],
    layer: Any,
    args: tuple,
    kwargs: dict,
):
    """Before an encoder layer, give each group of masks its own copy of the sentences, and each row its mask."""
    (x,), padding = args, kwargs["encoder_padding_mask"]
    first = [after.index(group) for group in range(1 + max(after))]
    parents = [before[place] for place in first]
    sentences = x.size(1) // (1 + max(before))
    if len(first) > 1 + max(before):
        parts = x.unflatten(1, (-1, sentences))
        x = parts.index_select(1, torch.tensor(parents, device=x.device)).flatten(1, 2)
    of_rows = torch.tensor([masks[place] for place in first], device=x.device).repeat_interleave(sentences)
    for component in _ENCODER:
        rows.set(component, of_rows, number)
    # The encoder itself continues with the original sentences' padding mask.
    return (x,), {**kwargs, "encoder_padding_mask": None if padding is None else padding.repeat(len(first), 1)}
