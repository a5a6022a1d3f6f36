"""Feed-forward blocks that can be gated and removed, by unit or as a whole."""

from typing import Any, Optional

import torch
from torch import Tensor, nn

from fairseq_headprune.modules.gated_module import GatedModule


class GatedFfnOutput(GatedModule, nn.Linear):
    """The second linear layer of a feed-forward block: its inputs are the units, its output is that of the block.

    Made in place from fairseq's ``fc2`` (:meth:`adopt`): same parameter, same values, same output while no gate or mask
    is set. A mask with a single entry refers to the whole block: if it is pruned, the output's bias is dropped too.

    Attributes:
        ffn_keep: None (keep everything), bool (units,), or bool () for the block. Saved in checkpoints when set.
        row_keep, row_block: None, or bool (batch, units) and bool (batch, 1): masks of units and of the block for each
            row of a batch, which override ``ffn_keep``. Never saved.
        unit_gate, block_gate: None or a float gate, (batch, units) or (batch, 1). Never saved.
        has_block: False if the whole block was removed from the weights.
        width_without_block: output width in evaluation mode when the block is removed: d, or 0 if the layer supports
            that.
    """

    KEEP, PARTS = "ffn_keep", "units"

    ffn_keep: Optional[Tensor]
    row_keep: Optional[Tensor]
    row_block: Optional[Tensor]
    unit_gate: Optional[Tensor]
    block_gate: Optional[Tensor]
    has_block: bool
    width_without_block: int

    @classmethod
    def adopt(cls, module: nn.Linear) -> "GatedFfnOutput":
        """Turn a plain linear layer into a gated one, in place."""
        module.__class__ = cls
        assert isinstance(module, GatedFfnOutput)
        module.prepare(module.in_features)
        module.unit_gate = module.block_gate = module.row_keep = module.row_block = None
        module.has_block, module.width_without_block = True, module.out_features
        return module

    @property
    def output_layer(self) -> nn.Linear:
        """The layer whose columns are the units: this one."""
        return self

    def set_row(self, row: Optional[list[int]], fixed: bool = False, source: Optional[dict] = None) -> None:
        """Keep the units in a row of a mask, or the whole block if the row has one entry; None keeps all."""
        if row == [0]:
            self.state = torch.tensor(False, device=self.weight.device), fixed, dict(source or {})
        else:
            super().set_row(None if row == [1] else row, fixed, source)

    def structure(self) -> Optional[list[int]]:
        """Return the original indices of the remaining units; None if the block is removed."""
        return self.indices if self.has_block else None

    def row(self) -> Optional[list[int]]:
        """Return the original indices of the units that are neither removed nor masked; None if the block is."""
        return None if self.ffn_keep is not None and not self.ffn_keep.dim() else super().row()

    def load_keep(self, keep: Optional[Tensor], source: Optional[dict]) -> str:
        """Load a checkpoint's mask; see :meth:`GatedModule.load_keep`."""
        if keep is None or keep.dim() or self.keep_is_fixed:
            return super().load_keep(keep, source)
        self.set_row([int(keep)], source=source)
        return ""

    def forward(self, units: Tensor) -> Tensor:
        """Return the block's output (time, batch, d) from its units' activations (time, batch, units).

        Pruned units are replaced by 0, not multiplied by 0. Masked units leave the bias; a masked block adds nothing.
        """
        keep = self.ffn_keep if self.row_keep is None else self.row_keep
        if self.unit_gate is not None:
            units = units * self.unit_gate.to(units.dtype)
        if keep is not None and keep.dim():
            units = units.masked_fill(~keep, 0.0)
        if self.in_features:
            output = super().forward(units)
        elif self.bias is not None:
            output = self.bias.expand(*units.shape[:-1], self.out_features)
        else:
            # In training, dropout is drawn for the full width, as in the masked model; a block gate needs it too.
            whole = self.training or self.block_gate is not None
            width = self.out_features if whole else self.width_without_block
            output = units.new_zeros(*units.shape[:-1], width)
        if self.block_gate is not None:
            output = output * self.block_gate.to(output.dtype)
        if self.row_block is not None:
            return output.masked_fill(~self.row_block, 0.0)
        return output if keep is None or keep.dim() else output.masked_fill(~keep, 0.0)


class NoUnits(nn.Module):
    """Replaces the first linear layer when no unit is left."""

    def forward(self, x: Tensor) -> Tensor:
        """Return an empty tensor of activations, (time, batch, 0)."""
        return x[..., :0]


def attach_ffn(model: nn.Module) -> None:
    """Make every plain feed-forward block gated, in place; other blocks are unchanged."""
    for module in model.modules():
        first, second = getattr(module, "fc1", None), getattr(module, "fc2", None)
        if type(first) is nn.Linear and type(second) is nn.Linear:
            GatedFfnOutput.adopt(second)


def has_gated_ffn(module: Any) -> bool:
    """Whether a layer of a model has a gated feed-forward block."""
    return isinstance(getattr(module, "fc2", None), GatedFfnOutput)
