"""Feed-forward blocks whose units, or the whole block, can be gated and removed."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Optional

import torch
from torch import Tensor, nn

from fairseq_headprune.modules.empty_parts import skip_ffn
from fairseq_headprune.removal.ffn_layout import Block, FfnLayout, units_of


class GatedFfnOutput(nn.Linear):
    """The second linear layer of a feed-forward block: its inputs are the units, its output is the block's.

    Taken over in place from fairseq's ``fc2`` (:meth:`adopt`): same parameter, same values, same output while nothing
    is set.

    Attributes:
        ffn_keep: None (everything is kept), bool (units,), or bool () for the block. Saved in checkpoints when set.
        unit_gate, block_gate: None or a float gate, (batch, units) or (batch, 1). Never saved.
        block: what is in the weights, of ``original_count`` units, as in a mask's ``"ffn"`` entry.
        width_without_block: width of the output in evaluation when the block is gone: d, or 0 where the layer knows
            what that means.
    """

    ffn_keep: Optional[Tensor]
    block: Block

    @classmethod
    def adopt(cls, module: nn.Linear) -> "GatedFfnOutput":
        """Turn a plain linear layer into a gated one, in place."""
        module.__class__ = cls
        module.register_buffer("ffn_keep", None)
        module.unit_gate = module.block_gate = None
        module.block, module.original_count, module.keep_is_fixed = 1, module.in_features, False
        module.width_without_block = module.out_features
        return module

    def set_keep(self, block: Block, fixed: bool = False) -> None:
        """Keep the units of a mask's entry, in original numbers; see :meth:`FfnLayout.under` for what fits."""
        keep: Optional[Tensor] = None
        if block == 0:
            keep = torch.tensor(False, device=self.weight.device)
        elif isinstance(block, list):
            row = [bool(block[unit]) for unit in units_of(self.block, self.original_count)]
            keep = None if all(row) else torch.tensor(row, device=self.weight.device)
        self.ffn_keep, self.keep_is_fixed = keep, fixed

    def kept(self) -> Block:
        """Return what is there and not masked."""
        if self.block == 0 or (self.ffn_keep is not None and not self.ffn_keep.dim()):
            return 0
        if self.ffn_keep is None:
            return self.block
        there = zip(units_of(self.block, self.original_count), self.ffn_keep.tolist(), strict=True)
        kept = {unit for unit, keep in there if keep}
        return [int(unit in kept) for unit in range(self.original_count)]

    def forward(self, units: Tensor) -> Tensor:
        """Return the block's output (time, batch, d) from its units' activations (time, batch, units).

        What is pruned is replaced by 0, not multiplied by it. Masked units leave the bias; a masked block adds nothing.
        """
        keep = self.ffn_keep
        if self.unit_gate is not None:
            units = units * self.unit_gate.to(units.dtype)
        if keep is not None and keep.dim():
            units = units.masked_fill(~keep, 0.0)
        if self.in_features:
            output = super().forward(units)
        elif self.bias is not None:
            output = self.bias.expand(*units.shape[:-1], self.out_features)
        else:
            # Training draws dropout for the whole width, as the masked model does; a gate is on the whole output.
            whole = self.training or self.block_gate is not None
            width = self.out_features if whole else self.width_without_block
            output = units.new_zeros(*units.shape[:-1], width)
        if self.block_gate is not None:
            output = output * self.block_gate.to(output.dtype)
        return output if keep is None or keep.dim() else output.masked_fill(~keep, 0.0)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing, unexpected, errors) -> None:
        keep = state_dict.pop(prefix + "ffn_keep", None)
        if not self.keep_is_fixed:
            if keep is not None and keep.shape not in ((), (self.in_features,)):
                errors.append(f"{prefix}ffn_keep: a mask of {keep.numel()} units, the model has {self.in_features}")
            else:
                self.ffn_keep = keep if keep is None else keep.to(self.weight.device, torch.bool, copy=True)
        # A buffer that is set but absent from the file would count as missing; it has just been dealt with.
        mine, self.ffn_keep = self.ffn_keep, None
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing, unexpected, errors)
        self.ffn_keep = mine


class NoUnits(nn.Module):
    """Stands where the first linear layer was when no unit is left."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the activations of no unit, (time, batch, 0)."""
        return x[..., :0]


class FeedForwards:
    """The feed-forward blocks of one model.

    Attributes:
        layers: ``{"enc": […], "dec": […]}``: the layers with ``fc1`` and ``fc2``; sides without any are absent.
    """

    def __init__(self, layers: Mapping[str, list[nn.Module]]) -> None:
        self.layers = dict(layers)

    @classmethod
    def attach(cls, model: nn.Module) -> None:
        """Make every plain feed-forward block gated, in place; others are left as they are."""
        for module in model.modules():
            if type(getattr(module, "fc1", None)) is nn.Linear and type(getattr(module, "fc2", None)) is nn.Linear:
                GatedFfnOutput.adopt(module.fc2)

    @classmethod
    def find(cls, model: nn.Module) -> "FeedForwards":
        """Return the gated blocks of a model, in layer order."""
        found: dict[str, list[tuple[list[int], nn.Module]]] = {}
        for name, module in model.named_modules():
            if isinstance(getattr(module, "fc2", None), GatedFfnOutput):
                place = [int(part) for part in re.findall(r"(?<=\.)\d+(?=\.)", f".{name}.")]
                found.setdefault("dec" if "decoder" in name.split(".") else "enc", []).append((place, module))
        return cls({s: [m for _, m in sorted(found[s], key=lambda x: x[0])] for s in ("enc", "dec") if s in found})

    @property
    def modules(self) -> dict[str, list[GatedFfnOutput]]:
        """The gated second linear layers, by side."""
        return {side: [layer.fc2 for layer in layers] for side, layers in self.layers.items()}

    def layout(self) -> FfnLayout:
        """Return which blocks and units are in the weights."""
        original = {side: [m.original_count for m in modules] for side, modules in self.modules.items()}
        return FfnLayout(original, {side: [m.block for m in modules] for side, modules in self.modules.items()})

    def entry(self) -> Optional[dict[str, list[Block]]]:
        """Return a mask's ``"ffn"`` entry: what is neither removed nor masked; None if that is everything."""
        kept = {side: [m.kept() for m in modules] for side, modules in self.modules.items()}
        return FfnLayout(self.layout().original, kept).entry()

    def is_masked(self) -> bool:
        """Whether a mask silences anything that is in the weights and not zero."""
        flat = [module for modules in self.modules.values() for module in modules]
        return any(module.ffn_keep is not None and bool(module.weight.any()) for module in flat)

    def nothing(self) -> dict[str, list[Block]]:
        """Return the ``"ffn"`` entry that prunes every block."""
        return {side: [0] * len(layers) for side, layers in self.layers.items()}

    def set_mask(self, ffn: Optional[Mapping[str, list[Block]]], fixed: bool = False) -> None:
        """Silence what a mask's ``"ffn"`` entry prunes; None keeps all that is there.

        Raises:
            ValueError: it does not fit, or keeps what was removed; nothing is changed then.
        """
        wanted = self.layout().under(ffn)
        for side, modules in self.modules.items():
            for module, block in zip(modules, wanted.blocks[side], strict=True):
                module.set_keep(block, fixed)

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Put the mask in force back afterwards."""
        flat = [module for modules in self.modules.values() for module in modules]
        before = [(module.ffn_keep, module.keep_is_fixed) for module in flat]
        try:
            yield
        finally:
            for module, (keep, fixed) in zip(flat, before, strict=True):
                module.ffn_keep, module.keep_is_fixed = keep, fixed

    def shrink(self, layout: FfnLayout) -> None:
        """Remove the blocks and units that a layout does not have; parameters become new objects.

        Raises:
            ValueError: the layout does not fit the model, or has what was removed before.
        """
        if layout.original != self.layout().original:
            raise ValueError(
                f"the feed-forward layout expects {layout.original} units before removal, the model's settings say "
                f"{self.layout().original}"
            )
        wanted = self.layout().under(layout.blocks)
        for side, layers in self.layers.items():
            for layer, block in zip(layers, wanted.blocks[side], strict=True):
                _keep(layer, block)
                if not layer.fc2.in_features:
                    skip_ffn(layer)


def _keep(layer: Any, block: Block) -> None:
    fc1, fc2 = layer.fc1, layer.fc2
    if block == fc2.block:
        return
    present = units_of(fc2.block, fc2.original_count)
    kept = units_of(block, fc2.original_count)
    index = torch.tensor([present.index(unit) for unit in kept], dtype=torch.long, device=fc2.weight.device)
    weight = fc2.weight.detach()[:, index].clone(memory_format=torch.contiguous_format)
    if kept:
        fc1.weight = nn.Parameter(fc1.weight.detach()[index], fc1.weight.requires_grad)
        if fc1.bias is not None:
            fc1.bias = nn.Parameter(fc1.bias.detach()[index], fc1.bias.requires_grad)
        fc1.out_features = len(kept)
        fc2.weight = nn.Parameter(weight, fc2.weight.requires_grad)
    else:
        layer.fc1 = NoUnits()
        # No parameter without elements: optimizers and distributed training would wait for its gradient.
        del fc2.weight
        fc2.register_buffer("weight", weight)
    if block == 0:
        fc2.bias = None
    fc2.in_features, fc2.block, fc2.ffn_keep = len(kept), block, None
