"""The weights of a checkpoint with zeros in the place of masked heads, for programs whose layers have all heads."""

import torch
from torch import Tensor

from fairseq_headprune.checkpoints import State, part_modules, stored_layout
from fairseq_headprune.parts import HEADS, Mask


def zeroed_weights(state: State, mask: Mask, way_out: str = "") -> dict[str, Tensor]:
    """Return the weights without masks and gates; the output projection of heads that a mask prunes is 0.

    Raises:
        ValueError: something was removed, or feed-forward parts are pruned; ``way_out`` says what to do instead.
    """
    layout = stored_layout(state)
    gone = layout.dropped()
    if gone or mask.prunes_ffn() or layout.prunes_ffn():
        what = f"{len(gone)} heads were removed from it ({gone[0]}…)" if gone else "feed-forward parts are pruned"
        raise ValueError(f"a Hugging Face folder holds layers with all their heads and units: {what}{way_out}")
    layout.check(mask)
    weights = {n: t for n, t in state["model"].items() if not n.startswith("head_gates.") and "_keep" not in n}
    for module in part_modules(state["model"], HEADS):
        keep = torch.tensor(mask.rows[module.component][module.layer], dtype=torch.bool)
        if not keep.all():
            columns = weights[module.output].unflatten(1, (len(keep), -1))
            weights[module.output] = columns.masked_fill(~keep[None, :, None], 0.0).flatten(1)
    return weights
