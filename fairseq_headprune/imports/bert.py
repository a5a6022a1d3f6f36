"""A Hugging Face folder of BERT: its ``config.json`` and fairseq's settings, its weights and our names for them."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from fairseq_headprune.files import PathLike, read_json
from fairseq_headprune.imports.folder import WEIGHTS, read_weights_file

#: name in config.json -> name in fairseq's settings
SIZES = {
    "num_hidden_layers": "encoder_layers",
    "hidden_size": "encoder_embed_dim",
    "num_attention_heads": "encoder_attention_heads",
    "intermediate_size": "encoder_ffn_embed_dim",
    "vocab_size": "bert_vocabulary",
    "max_position_embeddings": "bert_positions",
    "type_vocab_size": "bert_token_types",
}

#: the same for keys with a default in config.json: fairseq's name and that default
OPTIONS = {"layer_norm_eps": ("layer_norm_eps", 1e-12), "pad_token_id": ("bert_pad", 0)}

#: the same for dropout probabilities, which flags may override; if the classifier's is null, the hidden one applies
DROPOUTS = {
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "classifier_dropout": "pooler_dropout",
}

#: hidden_act -> fairseq's name of the activation function
_ACTIVATIONS = {"gelu": "gelu", "relu": "relu", "gelu_new": "gelu_accurate"}

#: keys that would change the computation -> the only supported value
_FIXED = {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False}

#: settings of the model's structure: when training continues, the checkpoint's apply, not the command line's
STRUCTURE = (*SIZES.values(), *(name for name, _ in OPTIONS.values()), "activation_fn")


def read_config(folder: PathLike) -> dict[str, Any]:
    """Read and check the ``config.json`` of a folder.

    Raises:
        FileNotFoundError: no such folder or file.
        ValueError: the model is not BERT, or a variant that is not supported.
    """
    if not Path(folder).is_dir():
        raise FileNotFoundError(f"--bert {folder}: there is no such folder")
    path = Path(folder, "config.json")
    if not path.is_file():
        raise FileNotFoundError(f"--bert {folder}: config.json is missing; it holds the sizes of the model")
    config = read_json(path)
    kind = config.get("model_type", "bert") if isinstance(config, Mapping) else None
    missing = [name for name in SIZES if not isinstance(config, Mapping) or not isinstance(config.get(name), int)]
    if kind != "bert":
        lacks = f"; its settings lack {', '.join(missing)}" if missing else ""
        raise ValueError(
            f"{path}: model_type is {kind!r}; only 'bert' is known, whose weights have other names and parts (such as "
            f"bert.encoder.layer.0.attention.self.query.weight){lacks}"
        )
    if missing:
        raise ValueError(f"{path}: not the settings of a BERT model, {', '.join(missing)} missing")
    for name, known in _FIXED.items():
        if config.get(name, known) != known:
            raise ValueError(f"{path}: {name} is {config[name]!r}; only {known!r} is known")
    if config.get("hidden_act", "gelu") not in _ACTIVATIONS:
        raise ValueError(f"{path}: hidden_act is {config['hidden_act']!r}; known are {', '.join(_ACTIVATIONS)}")
    _check_heads(path, config)
    return dict(config)


def _check_heads(path: Path, config: Mapping[str, Any]) -> None:
    width, heads, layers = (config[name] for name in ("hidden_size", "num_attention_heads", "num_hidden_layers"))
    if heads < 1 or width % heads:
        raise ValueError(f"{path}: a hidden_size of {width} cannot be split into {heads} num_attention_heads")
    for layer, pruned in pruned_heads(config).items():
        if not 0 <= layer < layers or not set(pruned) <= set(range(heads)):
            raise ValueError(
                f"{path}: pruned_heads names heads {pruned} of layer {layer}; the model has {layers} layers of {heads} "
                "heads, both from 0"
            )


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return fairseq's settings for a ``config.json``."""
    found = {ours: config[theirs] for theirs, ours in SIZES.items()}
    found |= {ours: config.get(theirs, default) for theirs, (ours, default) in OPTIONS.items()}
    found["activation_fn"] = _ACTIVATIONS[config.get("hidden_act", "gelu")]
    for theirs, ours in DROPOUTS.items():
        value = config.get(theirs)
        found[ours] = found.get("dropout", 0.1) if value is None else value
    return found


def config(settings: Any, labels: Sequence[str]) -> dict[str, Any]:
    """Return the ``config.json`` of a classifier (or, with one label, regression) with these settings."""
    by_ours = {ours: theirs for theirs, ours in _ACTIVATIONS.items()}
    return {
        "architectures": ["BertForSequenceClassification"],
        "model_type": "bert",
        **{theirs: getattr(settings, ours) for theirs, ours in (SIZES | DROPOUTS).items()},
        **{theirs: getattr(settings, ours) for theirs, (ours, _) in OPTIONS.items()},
        "hidden_act": by_ours[settings.activation_fn],
        "initializer_range": 0.02,
        "position_embedding_type": "absolute",
        "problem_type": "regression" if len(labels) == 1 else "single_label_classification",
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
    }


def pruned_heads(config: Mapping[str, Any]) -> dict[int, list[int]]:
    """Return the heads that transformers before version 5 removed from the weights: layer -> original head indices."""
    return {int(layer): sorted(heads) for layer, heads in (config.get("pruned_heads") or {}).items() if heads}


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
