"""Helpers for surgery on whole state dicts: older tensor formats, parameter counts, tied tensors."""

from collections import OrderedDict
from collections.abc import Mapping

import torch
from torch import Tensor

from fairseq_headprune.checkpoints import State, part_modules, saved_settings, stored_layout
from fairseq_headprune.modules.cutting import BLOCK_BIAS, PROJECTIONS, Tensors
from fairseq_headprune.parts import FFN
from fairseq_headprune.parts.layout import Layout
from fairseq_headprune.parts.mask import SoftGates

#: prefix of the tensors of learned gates; they are dropped, since removing the heads makes their choice permanent
LEARNED = "head_gates."

#: entries of a state dict that are not parameters
_BUFFERS = ("head_keep", "ffn_keep", "_float_tensor", "version")

_TIED = ("embed_tokens.weight", "output_projection.weight")


def with_inputs(tensors: Mapping[str, Tensor], key_width: int) -> Tensors:
    """Add the missing input projections, with no rows, to a module without parts, so that zeros can be inserted.

    Args:
        key_width: input width of an attention module's keys and values.
    """
    result = dict(tensors)
    ffn = "fc2.weight" in tensors
    weight = tensors["fc2.weight" if ffn else "out_proj.weight"]
    biased = ffn or "out_proj.bias" in tensors
    for name in ("fc1",) if ffn else PROJECTIONS:
        width = weight.size(0) if ffn or name == "q_proj" else key_width
        result.setdefault(f"{name}.weight", weight.new_zeros(0, width))
        if biased:
            result.setdefault(f"{name}.bias", weight.new_zeros(result[f"{name}.weight"].size(0)))
    if ffn:
        result.setdefault(BLOCK_BIAS, weight.new_zeros(weight.size(0)))
    return result


def split_joined(attention: Mapping[str, Tensor]) -> Tensors:
    """Split ``in_proj_weight`` and ``in_proj_bias`` of old fairseq checkpoints into q, k and v."""
    result: Tensors = {}
    for name, tensor in attention.items():
        if name in ("in_proj_weight", "in_proj_bias"):
            kind = name.rpartition("_")[2]
            result |= {f"{p}.{kind}": part for p, part in zip(PROJECTIONS, tensor.chunk(3), strict=True)}
        else:
            result[name] = tensor
    return result


def parameter_names(weights: Mapping[str, Tensor]) -> list[str]:
    """List the parameters of a state dict in the model's order; tied ones appear once, under the first name."""
    seen: set[tuple] = set()
    names = []
    for name, tensor in weights.items():
        key = (tensor.data_ptr(), tuple(tensor.shape))
        if name.split(".")[-1] in _BUFFERS or name.startswith(LEARNED) or (tensor.numel() and key in seen):
            continue
        seen.add(key)
        names.append(name)
    return names


def parameter_count(weights: Mapping[str, Tensor]) -> int:
    """Count the parameters of a state dict, tied ones once."""
    return sum(weights[name].numel() for name in parameter_names(weights))


def compact(weights: Mapping[str, Tensor]) -> "OrderedDict[str, Tensor]":
    """Return the state dict with contiguous tensors that own their memory; tied embeddings share one tensor.

    Embeddings stored separately with equal values (as written from a GPU) are also merged.
    """
    result: OrderedDict[str, Tensor] = OrderedDict()
    seen: dict[tuple, Tensor] = {}
    embeddings: list[Tensor] = []
    for name, tensor in weights.items():
        key = (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
        owned = seen.get(key) if tensor.numel() else None
        if owned is None and name.endswith(_TIED):
            owned = next((e for e in embeddings if e.dtype == tensor.dtype and torch.equal(e, tensor)), None)
        if owned is None:
            whole = tensor.is_contiguous() and tensor.untyped_storage().nbytes() == tensor.nbytes
            owned = tensor if whole else tensor.clone(memory_format=torch.contiguous_format)
        seen[key] = result[name] = owned
        if name.endswith(_TIED):
            embeddings.append(owned)
    return result


def fold_gates(state: State, gates: SoftGates) -> State:
    """Return the checkpoint with the gates folded into the columns of the outputs; the input and biases are unchanged.

    The gate of a whole feed-forward block also scales its bias. Products are computed in at least float32 and rounded
    once. (Michel et al. 2019, §2.3: the sum over heads of xi_h times the head's output.)

    Raises:
        ValueError: the gates are of a model with other parts, or nonzero for a removed part.
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


def unread_norms(state: State, layout: Layout) -> set[str]:
    """Return the parameters of layer norms before empty parts (pre-norm models; see ``modules/shrink``)."""
    settings = saved_settings(state)
    before = {side for side in ("encoder", "decoder") if getattr(settings, f"{side}_normalize_before", False)}
    norms = [
        f"{prefix}final_layer_norm" if component in FFN else f"{prefix[:-1]}_layer_norm"
        for component, layer, prefix in part_modules(state["model"])
        if not layout.indices(component, layer) and before & set(prefix.split("."))
    ]
    return {f"{norm}.{kind}" for norm in norms for kind in ("weight", "bias")}
