"""Convert weights between the names and forms of Hugging Face folders and of fairseq's checkpoints."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fairseq_headprune.imports.family import ModelFamily

#: weight of an output layer's bias there; in fairseq's form it is part of a linear layer
_BIAS = ("final_logits_bias", "decoder.output_projection.bias")

_TOKENS = {side: f"{side}.embed_tokens.weight" for side in ("encoder", "decoder")}
_OUTPUT = "decoder.output_projection.weight"

#: names there that hold nothing of their own: tables that are computed, and fairseq's own marks
_COMPUTED = ("embed_positions.weights", "embed_positions._float_tensor", "encoder.version", "decoder.version")

#: tolerance between a stored table of sinusoidal positions and the computed one
_TABLE = 1e-3


def layer_names(settings: Mapping[str, Any], family: ModelFamily) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the parameters with the same name on both sides (in Hugging Face prefixed by ``model.``)."""
    shapes: dict[str, tuple[int, ...]] = {}
    width = settings["encoder_embed_dim"]
    for side in ("encoder", "decoder"):
        inner = settings[f"{side}_ffn_embed_dim"]
        norms = {"layernorm_embedding": family.embedding_norm, "layer_norm": family.final_norm}
        for name in [name for name, there in norms.items() if there]:
            shapes |= {f"{side}.{name}.weight": (width,), f"{side}.{name}.bias": (width,)}
        if family.learned_positions:
            shapes[f"{side}.embed_positions.weight"] = (settings["max_source_positions"] + 2, width)
        for layer in range(settings[f"{side}_layers"]):
            parts = ("self_attn", "encoder_attn") if side == "decoder" else ("self_attn",)
            shapes |= _layer(f"{side}.layers.{layer}", parts, width, inner)
    return shapes


def _layer(place: str, parts: tuple[str, ...], width: int, inner: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    for part in parts:
        for name in ("k_proj", "v_proj", "q_proj", "out_proj"):
            shapes |= {f"{place}.{part}.{name}.weight": (width, width), f"{place}.{part}.{name}.bias": (width,)}
    for norm in (*(f"{part}_layer_norm" for part in parts), "final_layer_norm"):
        shapes |= {f"{place}.{norm}.weight": (width,), f"{place}.{norm}.bias": (width,)}
    shapes |= {f"{place}.fc1.weight": (inner, width), f"{place}.fc1.bias": (inner,)}
    return shapes | {f"{place}.fc2.weight": (width, inner), f"{place}.fc2.bias": (width,)}


def to_fairseq(
    weights: Mapping[str, Tensor], settings: Mapping[str, Any], family: ModelFamily, sizes: tuple[int, int], ties: tuple
) -> "OrderedDict[str, Tensor]":
    """Convert the weights of a folder to a fairseq checkpoint's, in float32; tied ones are one tensor.

    Args:
        sizes: of the source and the target vocabulary.
        ties: whether embeddings are shared, and whether the output layer shares the decoder's.

    Raises:
        ValueError: weights are missing, unknown, of the wrong shape, or contradict the ties; all are listed.
    """
    given = _named(weights)
    wanted = layer_names(settings, family)
    missing = [f"model.{name}" for name in wanted if name not in given]
    result: OrderedDict[str, Tensor] = OrderedDict()
    result |= _embeddings(given, sizes, settings["encoder_embed_dim"], ties, missing)
    for name, shape in wanted.items():
        if name in given:
            result[name] = _shaped(given.pop(name), shape, name)
    if family.bias:
        bias = given.pop(_BIAS[0], None)
        result[_BIAS[1]] = torch.zeros(sizes[1]) if bias is None else _shaped(bias.reshape(-1), (sizes[1],), _BIAS[0])
    _drop_computed(given, settings, family)
    problems = [f"missing: {', '.join(missing[:5])}"] if missing else []
    problems += [f"unknown: {', '.join(sorted(given)[:5])}"] if given else []
    if problems:
        count = len(missing) + len(given)
        raise ValueError(f"the weights do not fit config.json; {'; '.join(problems)} ({count} in all)")
    for side in ("encoder", "decoder"):
        result[f"{side}.version"] = torch.Tensor([3])
    return result


def _named(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return weights by their names without ``model.``, which a folder of the model without its output layer lacks."""
    return {name.removeprefix("model."): tensor for name, tensor in weights.items()}


def _shaped(tensor: Tensor, shape: tuple[int, ...], name: str) -> Tensor:
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} is {tuple(tensor.shape)}, config.json says {shape}")
    return tensor.float()


def _embeddings(
    given: dict[str, Tensor], sizes: tuple[int, int], width: int, ties: tuple[bool, bool], missing: list[str]
) -> dict[str, Tensor]:
    """Convert the embeddings and the output layer, checking the ties in the configuration."""
    share, tie = ties
    shared = given.pop("shared.weight", None)
    groups = [[("encoder", sizes[0])], [("decoder", sizes[1])], [("output", sizes[1])]]
    if tie:
        groups = [[*groups[0], *groups[1], *groups[2]]] if share else [groups[0], [*groups[1], *groups[2]]]
    theirs = {"encoder": _TOKENS["encoder"], "decoder": _TOKENS["decoder"], "output": "lm_head.weight"}
    ours = {**_TOKENS, "output": _OUTPUT}
    result: dict[str, Tensor] = {}
    for group in groups:
        found = {theirs[part]: given.pop(theirs[part]) for part, _ in group if theirs[part] in given}
        # Without ties of words, older versions of transformers still shared the embeddings, and stored them once.
        if shared is not None and (len(group) == 3 or (not found and not tie and group[0][0] != "output")):
            found = {"shared.weight": shared, **found}
        if not found:
            missing.append("model.shared.weight" if len(group) == 3 else theirs[group[0][0]])
            continue
        (first, tensor), *others = found.items()
        for name, other in others:
            if other.shape != tensor.shape or not (other.data_ptr() == tensor.data_ptr() or torch.equal(other, tensor)):
                raise ValueError(f"{name} and {first} differ, and config.json ties them (tie_word_embeddings)")
        tensor = _shaped(tensor, (group[0][1], width), first)
        result |= {ours[part]: tensor for part, _ in group}
    return result


def _drop_computed(given: dict[str, Tensor], settings: Mapping[str, Any], family: ModelFamily) -> None:
    """Remove computed tables of positions after checking their values."""
    for name in [name for name in given if name.endswith(_COMPUTED)]:
        given.pop(name)
    if family.learned_positions:
        return
    for side in ("encoder", "decoder"):
        table = given.pop(f"{side}.embed_positions.weight", None)
        if table is not None and settings.get("imported_positions"):
            if (table.float() - halves(*table.shape)).abs().max() > _TABLE:
                raise ValueError(f"{side}.embed_positions.weight is no table of sines and cosines: it was trained")


def to_hugging_face(weights: Mapping[str, Tensor], family: ModelFamily, ties: tuple[bool, bool]) -> dict[str, Tensor]:
    """Return the weights of an unpruned checkpoint by transformers' names; tied ones once."""
    share, tie = ties
    result: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        if name in _TOKENS.values() or name in (_OUTPUT, _BIAS[1]) or name.endswith(".version"):
            continue
        result[f"model.{name}"] = tensor
    if share and tie:
        result["model.shared.weight"] = weights[_TOKENS["encoder"]]
    else:
        result |= {f"model.{name}": weights[name] for name in _TOKENS.values()}
        if not tie:
            result["lm_head.weight"] = weights[_OUTPUT]
    if family.bias:
        result[_BIAS[0]] = weights[_BIAS[1]].reshape(1, -1)
    return result


def halves(count: int, width: int) -> Tensor:
    """Return the table (count, width): sin(p / 10000^(2 i / width)) for i < width / 2, then the cosines."""
    place = torch.arange(count, dtype=torch.float64)[:, None]
    exponents = 2 * torch.div(torch.arange(width), 2, rounding_mode="floor").double() / width
    angles = place / torch.pow(torch.tensor(10000.0, dtype=torch.float64), exponents)
    return torch.cat([angles[:, 0::2].sin(), angles[:, 1::2].cos()], dim=1).float()
