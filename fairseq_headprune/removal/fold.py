"""Gates folded into weights: a head's output times a number is the head with its columns of ``out_proj`` times it."""

from collections import OrderedDict

import torch

from fairseq_headprune.checkpoints import State, attention_modules, head_layout
from fairseq_headprune.parts.soft_gates import SoftGates


def fold_gates(state: State, gates: SoftGates) -> State:
    """Return the checkpoint with the columns of ``out_proj`` scaled by the gates; its bias stays, as does the input.

    Products are made in float32 at least, and rounded once. (Michel et al. 2019, §2.3: the sum over heads of xi_h times
    the head's output.)

    Raises:
        ValueError: the gates are of a model with other heads, or open a head that was removed.
    """
    layout = head_layout(state)
    gates.check_shape(layout.original)
    layout.check_absent(gates.mask().kept())
    weights = OrderedDict(state["model"])
    for component, layer, prefix in attention_modules(state):
        values = [gates.rows[component][layer][head] for head in layout.kept[component][layer]]
        if all(value == 1 for value in values):
            continue
        weight = weights[f"{prefix}.out_proj.weight"]
        precise = torch.promote_types(weight.dtype, torch.float32)
        factors = torch.tensor(values, dtype=precise).repeat_interleave(weight.size(1) // len(values))
        weights[f"{prefix}.out_proj.weight"] = (weight.to(precise) * factors).to(weight.dtype)
    if hasattr(state["model"], "_metadata"):
        weights._metadata = state["model"]._metadata  # type: ignore[attr-defined]
    return {**state, "model": weights}
