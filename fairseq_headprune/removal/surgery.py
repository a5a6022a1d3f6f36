"""Surgery on a state dict: cut heads out of the tensors of an attention module, or put zeros in their place."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

#: tensors of one attention module, named as in the state dict but without the module's prefix
Attention = dict[str, Tensor]

_PROJECTIONS = ("q_proj", "k_proj", "v_proj")

#: entries of a state dict that are no parameters
_BUFFERS = ("head_keep", "ffn_keep", "_float_tensor", "version")

_TIED = ("embed_tokens.weight", "output_projection.weight")


def take_heads(tensor: Tensor, positions: Sequence[int | None], head_dim: int, dim: int) -> Tensor:
    """Return a new contiguous tensor whose blocks along ``dim`` are those of the given heads; None gives zeros."""
    size = list(tensor.shape)
    size[dim] = len(positions) * head_dim
    result = tensor.new_zeros(size)
    for place, head in enumerate(positions):
        if head is not None:
            block = tensor.narrow(dim, head * head_dim, head_dim)
            result.narrow(dim, place * head_dim, head_dim).copy_(block)
    return result


def cut_attention(attention: Attention, positions: Sequence[int | None], head_dim: int) -> Attention:
    """Return the tensors of an attention module that has just these heads.

    Rows of q, k and v with their biases, columns of ``out_proj``, ``bias_k`` and ``bias_v`` are taken; ``out_proj``'s
    bias stays as it is. A module without heads has no projections; its ``out_proj`` has no columns.

    Args:
        positions: for each head of the result the head (its place in ``attention``) that it is, or None for zeros.
    """
    result: Attention = {}
    for name, tensor in attention.items():
        part = name.split(".")[0]
        if name == "out_proj.weight":
            result[name] = take_heads(tensor, positions, head_dim, 1)
        elif part in _PROJECTIONS or part in ("bias_k", "bias_v"):
            if positions:
                result[name] = take_heads(tensor, positions, head_dim, 0 if part in _PROJECTIONS else 2)
        elif name != "head_keep":
            result[name] = tensor
    return result


def with_projections(attention: Attention, key_width: int) -> Attention:
    """Give a module without heads projections of no rows, so that heads of zeros can be put in."""
    if "q_proj.weight" in attention:
        return attention
    weight = attention["out_proj.weight"]
    result = dict(attention)
    for name in _PROJECTIONS:
        result[f"{name}.weight"] = weight.new_zeros(0, weight.size(0) if name == "q_proj" else key_width)
        if "out_proj.bias" in attention:
            result[f"{name}.bias"] = weight.new_zeros(0)
    return result


def split_joined(attention: Attention) -> Attention:
    """Split ``in_proj_weight`` and ``in_proj_bias`` of old fairseq checkpoints into q, k and v."""
    result: Attention = {}
    for name, tensor in attention.items():
        if name in ("in_proj_weight", "in_proj_bias"):
            kind = name.rpartition("_")[2]
            result |= {f"{p}.{kind}": part for p, part in zip(_PROJECTIONS, tensor.chunk(3), strict=True)}
        else:
            result[name] = tensor
    return result


def weights_per_head(attention: Attention, heads: int) -> int:
    """Return how many parameters belong to one head: with biases and one width d, head_dim * (4 d + 3)."""
    mine = [t for name, t in attention.items() if name not in ("out_proj.bias", "head_keep")]
    return sum(t.numel() for t in mine) // heads if heads else 0


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
