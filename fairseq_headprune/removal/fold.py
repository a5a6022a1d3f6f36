"""Gates folded into weights: a part's output times a number is the part with its output's columns times it."""

from collections import OrderedDict

import torch

from fairseq_headprune.checkpoints import State, part_modules, stored_layout
from fairseq_headprune.modules.cutting import BLOCK_BIAS
from fairseq_headprune.parts.soft_gates import SoftGates


def fold_gates(state: State, gates: SoftGates) -> State:
    """Return the checkpoint with the columns of the outputs scaled by the gates; their biases stay, as does the input.

    The gate of a whole feed-forward block scales its bias, too. Products are made in float32 at least, and rounded
    once. (Michel et al. 2019, §2.3: the sum over heads of xi_h times the head's output.)

    Raises:
        ValueError: the gates are of a model with other parts, or open a part that was removed.
    """
    layout = stored_layout(state)
    gates.check_shape(layout.original, "the checkpoint")
    layout.check(gates.mask())
    weights = OrderedDict(state["model"])
    for module in part_modules(weights):
        component, layer, prefix = module
        if component not in gates.rows:
            continue
        row, indices = gates.rows[component][layer], layout.indices(component, layer)
        block = len(row) == 1 < layout.original[component][layer]
        values = row if block else [row[index] for index in indices]
        if all(value == 1 for value in values) or not indices:
            continue
        for name in [module.output, *([prefix + BLOCK_BIAS] if block else [])]:
            weight = weights[name]
            precise = torch.promote_types(weight.dtype, torch.float32)
            factors = torch.tensor(values, dtype=precise).repeat_interleave(weight.size(-1) // len(values))
            weights[name] = (weight.to(precise) * factors).to(weight.dtype)
    if hasattr(state["model"], "_metadata"):
        weights._metadata = state["model"]._metadata  # type: ignore[attr-defined]
    return {**state, "model": weights}
