"""Feed-forward units and blocks in a state dict: what is there, and cutting them out."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from fairseq_headprune.removal.ffn_layout import SETTING, Block, FfnLayout, units_of

_NAME = re.compile(r"(?:^|\.)(encoder|decoder)\.layers\.(\d+)\.fc2\.weight$")

#: tensors of one block, named as in the state dict but without the layer's prefix
FeedForward = dict[str, Tensor]


def ffn_blocks(weights: Mapping[str, Tensor]) -> Iterator[tuple[str, int, str]]:
    """Iterate over (side, layer, prefix of the parameter names), layers counted without gaps."""
    found = []
    for name in weights:
        match = _NAME.search(name)
        if match:
            found.append((match[1] == "decoder", int(match[2]), name.removesuffix("fc2.weight")))
    layers = {"enc": 0, "dec": 0}
    for decoder, _, prefix in sorted(found):
        side = "dec" if decoder else "enc"
        yield side, layers[side], prefix
        layers[side] += 1


def ffn_layout(weights: Mapping[str, Tensor], settings: Any) -> FfnLayout:
    """Return which units the weights hold, by the saved settings, and check that these fit.

    Raises:
        ValueError: another number of units, or a layout of a newer version.
    """
    found: dict[str, list[int]] = {}
    for side, _, prefix in ffn_blocks(weights):
        found.setdefault(side, []).append(weights[prefix + "fc2.weight"].size(1))
    value = getattr(settings, SETTING, None)
    if value is None:
        return FfnLayout.full(found)
    layout = FfnLayout.from_dict(value, f"the checkpoint's {SETTING}")
    for side, counts in layout.original.items():
        mine = found.get(side, [])
        if len(mine) != len(counts):
            raise ValueError(f"ffn {side}: the checkpoint's layout has {len(counts)} layers, the weights {len(mine)}")
        for layer, count in enumerate(mine):
            expected = len(layout.units(side, layer))
            if count != expected:
                raise ValueError(f"ffn {side} layer {layer}: expected {expected} units, found weights for {count}")
    return layout


def stored_ffn(weights: Mapping[str, Tensor], settings: Any) -> dict[str, list[Block]] | None:
    """Return the ``"ffn"`` entry of the mask that a checkpoint holds: what is removed or masked; None if nothing is.

    Raises:
        ValueError: a mask that does not fit.
    """
    layout = ffn_layout(weights, settings)
    blocks = {side: list(rows) for side, rows in layout.blocks.items()}
    for side, layer, prefix in ffn_blocks(weights):
        keep = weights.get(prefix + "fc2.ffn_keep")
        if keep is None:
            continue
        units = layout.units(side, layer)
        if keep.shape not in ((), (len(units),)):
            raise ValueError(
                f"the mask has {keep.numel()} units in ffn {side} layer {layer}, the checkpoint {len(units)}"
            )
        kept = {unit for unit, value in zip(units, keep.tolist(), strict=True) if value} if keep.dim() else set()
        row: Block = [int(unit in kept) for unit in range(layout.original[side][layer])]
        blocks[side][layer] = row if keep.dim() else int(keep)
    return FfnLayout(layout.original, blocks).entry()


def cut_ffn(weights: dict[str, Tensor], before: FfnLayout, after: FfnLayout, bake: bool) -> int:
    """Remove units and blocks from a state dict, in place, and return how many parameters those had.

    Args:
        bake: put zeros in their place instead, and in the place of what was removed before.
    """
    removed = 0
    for side, layer, prefix in list(ffn_blocks(weights)):
        names = [prefix + name for name in ("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias")]
        parts = {name.removeprefix(prefix): weights.pop(name) for name in names if name in weights}
        weights.pop(prefix + "fc2.ffn_keep", None)
        present, count = before.units(side, layer), before.original[side][layer]
        cut = _cut(parts, present, after.blocks[side][layer], count)
        removed += sum(part.numel() for part in parts.values()) - sum(part.numel() for part in cut.values())
        if bake:
            cut = _fill(cut, after.units(side, layer), count)
        weights |= {prefix + name: tensor for name, tensor in cut.items()}
    return removed


def _cut(parts: FeedForward, present: list[int], block: Block, count: int) -> FeedForward:
    kept = units_of(block, count)
    if kept == present and block != 0:
        return parts
    index = torch.tensor([present.index(unit) for unit in kept], dtype=torch.long)
    cut = {"fc2.weight": parts["fc2.weight"][:, index].clone(memory_format=torch.contiguous_format)}
    if kept:
        cut |= {name: parts[name][index] for name in ("fc1.weight", "fc1.bias") if name in parts}
    if block != 0 and "fc2.bias" in parts:
        cut["fc2.bias"] = parts["fc2.bias"]
    return cut


def _fill(parts: FeedForward, kept: list[int], count: int) -> FeedForward:
    """Return a block of full size with zeros where there is nothing."""
    weight = parts["fc2.weight"]
    sizes = {"fc1.weight": (count, weight.size(0)), "fc1.bias": (count,), "fc2.weight": (weight.size(0), count)}
    full = {name: weight.new_zeros(size) for name, size in sizes.items()}
    full["fc2.bias"] = parts.get("fc2.bias", weight.new_zeros(weight.size(0)))
    full["fc2.weight"][:, kept] = weight
    for name in ("fc1.weight", "fc1.bias"):
        if name in parts:
            full[name][kept] = parts[name]
    return full
