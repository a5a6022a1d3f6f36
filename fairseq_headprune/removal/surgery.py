"""What surgery on whole state dicts needs: older forms of tensors, parameters counted, tied tensors kept tied."""

from collections import OrderedDict
from collections.abc import Mapping

import torch
from torch import Tensor

from fairseq_headprune.modules.cutting import BLOCK_BIAS, PROJECTIONS, Tensors

#: entries of a state dict that are no parameters
_BUFFERS = ("head_keep", "ffn_keep", "_float_tensor", "version")

_TIED = ("embed_tokens.weight", "output_projection.weight")


def with_inputs(tensors: Mapping[str, Tensor], key_width: int) -> Tensors:
    """Give a module without parts what stands before its output, of no rows, so that zeros can be put in.

    Args:
        key_width: of the inputs of an attention module's keys and values.
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
    """List the parameters of a state dict in the model's order, tied ones once (the first name counts)."""
    seen: set[tuple] = set()
    names = []
    for name, tensor in weights.items():
        key = (tensor.data_ptr(), tuple(tensor.shape))
        if name.split(".")[-1] in _BUFFERS or name.startswith("head_gates.") or (tensor.numel() and key in seen):
            continue
        seen.add(key)
        names.append(name)
    return names


def parameter_count(weights: Mapping[str, Tensor]) -> int:
    """Count the parameters of a state dict, tied ones once."""
    found = {}
    for name, tensor in weights.items():
        if name.split(".")[-1] not in _BUFFERS and tensor.numel():
            found[tensor.data_ptr(), tensor.dtype, tuple(tensor.shape)] = tensor.numel()
    return sum(found.values())


def compact(weights: Mapping[str, Tensor]) -> "OrderedDict[str, Tensor]":
    """Return the state dict with contiguous tensors that own their memory; tied embeddings are one tensor.

    Embeddings that the input holds several times with equal values (as written from a GPU) become one, too.
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
