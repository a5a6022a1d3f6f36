"""BERT's weights: Hugging Face's names for them, and ours."""

import re
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from fairseq_headprune.files import PathLike
from fairseq_headprune.imports.folder import WEIGHTS, read_weights_file

#: the classification head's name in fairseq's criterion
HEAD = "sentence_classification_head"

_NAMES = (
    ("embeddings.word_embeddings", "encoder.embed_tokens"),
    ("embeddings.position_embeddings", "encoder.embed_positions"),
    ("embeddings.token_type_embeddings", "encoder.embed_token_types"),
    ("embeddings.LayerNorm", "encoder.layernorm_embedding"),
    ("pooler.dense", "encoder.pooler"),
    ("classifier", f"classification_heads.{HEAD}.out_proj"),
)

_LAYER_NAMES = (
    ("attention.self.query", "self_attn.q_proj"),
    ("attention.self.key", "self_attn.k_proj"),
    ("attention.self.value", "self_attn.v_proj"),
    ("attention.output.dense", "self_attn.out_proj"),
    ("attention.output.LayerNorm", "self_attn_layer_norm"),
    ("intermediate.dense", "fc1"),
    ("output.dense", "fc2"),
    ("output.LayerNorm", "final_layer_norm"),
)

#: pretraining weights, and buffers saved by older versions: not used here
_UNUSED = re.compile(r"(cls\.|embeddings\.(position|token_type)_ids$)")

#: parts that may be absent; they are then initialised at random
FRESH = ("encoder.pooler.", "classification_heads.")


def weights_path(folder: PathLike) -> Path:
    """Return a folder's file of weights: ``model.safetensors``, or ``pytorch_model.bin``.

    Raises:
        FileNotFoundError: neither file is there.
    """
    for name in WEIGHTS:
        if Path(folder, name).is_file():
            return Path(folder, name)
    raise FileNotFoundError(f"--bert {folder}: neither model.safetensors nor pytorch_model.bin is there")


def read_weights(folder: PathLike) -> dict[str, Tensor]:
    """Read ``model.safetensors``, or ``pytorch_model.bin`` with torch's safe loader.

    Returns:
        weights by their names in Hugging Face's ``BertModel``, and ``classifier``.

    Raises:
        FileNotFoundError: neither file is there.
        ValueError: the file is damaged, or would run code.
    """
    path = weights_path(folder)
    weights = read_weights_file(path)
    if not all(isinstance(tensor, Tensor) for tensor in weights.values()):
        raise ValueError(f"{path}: not a file of weights")
    return {_modern(name): tensor for name, tensor in weights.items()}


def _modern(name: str) -> str:
    name = name.removeprefix("bert.")
    return re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name))


def names(layers: int) -> dict[str, str]:
    """Return Hugging Face's name -> our name, for every weight of a classifier with this many layers."""
    pairs = list(_NAMES)
    for layer in range(layers):
        pairs += [(f"encoder.layer.{layer}.{hf}", f"encoder.layers.{layer}.{ours}") for hf, ours in _LAYER_NAMES]
    found = {f"{hf}.{kind}": f"{ours}.{kind}" for hf, ours in pairs for kind in ("weight", "bias")}
    return {hf: ours for hf, ours in found.items() if not (hf.endswith(".bias") and "_embeddings." in hf)}


def to_ours(weights: Mapping[str, Tensor], expected: Mapping[str, Tensor], layers: int) -> dict[str, Tensor]:
    """Rename the weights of a folder, omitting those of pretraining.

    Args:
        expected: the weights of the model to be filled; parts in ``FRESH`` may be missing in the folder.

    Raises:
        ValueError: weights are missing, unknown, or of the wrong shape; all are listed.
    """
    known = names(layers)
    extra = [name for name in weights if name not in known and not _UNUSED.match(name)]
    found = {known[name]: tensor for name, tensor in weights.items() if name in known}
    theirs = {ours: hf for hf, ours in known.items()}
    missing = [theirs[name] for name in expected if name not in found and not _may_be_absent(name, found)]
    other = [
        f"{theirs[name]} {tuple(tensor.shape)} for {tuple(expected[name].shape)}"
        for name, tensor in found.items()
        if name in expected and tensor.shape != expected[name].shape
    ]
    problems = [("missing", missing), ("unknown", extra), ("of another shape than config.json says", other)]
    said = "; ".join(f"{len(which)} {what}: {', '.join(which)}" for what, which in problems if which)
    if said:
        raise ValueError(f"the weights are not those of a BERT model with this config.json: {said}")
    return {name: tensor for name, tensor in found.items() if name in expected}


def _may_be_absent(name: str, found: Mapping[str, Tensor]) -> bool:
    part = next((part for part in FRESH if name.startswith(part)), None)
    return part is not None and not any(other.startswith(part) for other in found)
