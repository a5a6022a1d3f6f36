"""The weights of a checkpoint with zeros in the place of masked heads, for programs whose layers have all heads."""

import torch
from torch import Tensor

from fairseq_headprune.checkpoints import State, attention_modules, head_layout
from fairseq_headprune.parts import Mask


def zeroed_weights(state: State, mask: Mask, way_out: str = "") -> dict[str, Tensor]:
    """Return the weights without masks and gates; the output projection of heads that a mask prunes is 0.

    Raises:
        ValueError: something was removed, or feed-forward parts are pruned; ``way_out`` says what to do instead.
    """
    layout = head_layout(state)
    gone = layout.mask().dropped()
    if gone or mask.ffn:
        what = f"{len(gone)} heads were removed from it ({gone[0]}…)" if gone else "feed-forward parts are pruned"
        raise ValueError(f"a Hugging Face folder holds layers with all their heads and units: {what}{way_out}")
    layout.under(mask)
    weights = {n: t for n, t in state["model"].items() if not n.startswith("head_gates.") and "_keep" not in n}
    for component, layer, prefix in attention_modules(state):
        keep = torch.tensor(mask.rows[component][layer], dtype=torch.bool)
        if not keep.all():
            name = f"{prefix}.out_proj.weight"
            columns = weights[name].unflatten(1, (len(keep), -1))
            weights[name] = columns.masked_fill(~keep[None, :, None], 0.0).flatten(1)
    return weights
