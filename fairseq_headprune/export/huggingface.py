"""Exports checkpoints of imported models and of BERT as Hugging Face folders, with their tokenizer's files."""

import importlib.util
import json
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from shutil import copyfile
from typing import Any

import torch
from torch import Tensor

from fairseq_headprune.checkpoints import State, saved_settings
from fairseq_headprune.export.model import TOLERANCE, zeroed_weights
from fairseq_headprune.files import PathLike, write_json, write_text, write_with
from fairseq_headprune.imports import bert as bert_folder
from fairseq_headprune.imports.families import family_of
from fairseq_headprune.imports.folder import read_weights
from fairseq_headprune.imports.pieces import FOLDER
from fairseq_headprune.imports.weights import to_fairseq, to_hugging_face
from fairseq_headprune.imports.wordpieces import WordPieceVocabulary
from fairseq_headprune.models.bert_gated import LABELS, BertGatedModel
from fairseq_headprune.models.imported import CONFIG
from fairseq_headprune.modules.attach import attach_gates
from fairseq_headprune.parts import Mask

_WAY_OUT = "; models without some heads go to ctranslate2 or onnx, or export the masked checkpoint they were made of"

#: dtypes that a configuration may name; otherwise weights are written in float32
_TYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}


def reading_note() -> list[str]:
    """Describe what keeps transformers from reading such a folder in this environment; empty if nothing does.

    transformers imports torchaudio if it is installed. fairseq requires torchaudio without a version, and pip may
    install one that does not match torch.
    """
    if importlib.util.find_spec("torchaudio") is None:
        return []
    try:
        importlib.import_module("torchaudio")
    except Exception as error:  # of whatever is missing: OSError, RuntimeError, ImportError
        said = (str(error).splitlines() or [type(error).__name__])[0].split(":")[0]
        return [
            f"transformers cannot be imported in this environment: torchaudio {metadata.version('torchaudio')} does "
            f"not load beside torch {torch.__version__} ({said}); pip uninstall torchaudio, which nothing here needs"
        ]
    return []


def write_folder(folder: Path, settings: Any, weights: Mapping[str, Tensor], vocabulary: WordPieceVocabulary) -> None:
    """Write ``config.json``, ``model.safetensors`` and the vocabulary of a classifier.

    Args:
        weights: named as in this package, from a model with all its heads.
    """
    from safetensors.torch import save

    theirs = {ours: hf for hf, ours in bert_folder.names(settings.encoder_layers).items()}
    named = {
        theirs[name] if theirs[name].startswith("classifier") else f"bert.{theirs[name]}": tensor.contiguous()
        for name, tensor in weights.items()
    }
    data = save({name: tensor.float().clone() for name, tensor in named.items()}, {"format": "pt"})
    write_with(folder / "model.safetensors", lambda stream: stream.write(data))
    write_json(folder / "config.json", bert_folder.config(settings, getattr(settings, LABELS)))
    write_text(folder / "tokenizer.json", vocabulary.to_text() + "\n")
    write_text(folder / "vocab.txt", "".join(piece + "\n" for piece in vocabulary.pieces()))
    normalizer = json.loads(vocabulary.to_text()).get("normalizer") or {}
    how = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": normalizer.get("lowercase", True),
        "strip_accents": normalizer.get("strip_accents"),
        "tokenize_chinese_chars": normalizer.get("handle_chinese_chars", True),
        "model_max_length": settings.bert_positions,
    }
    write_json(folder / "tokenizer_config.json", how)


def save_bert(state: State, mask: Mask, folder: Path) -> dict[str, Any]:
    """Write a BERT checkpoint as a Hugging Face folder, and read it back to check it.

    Args:
        mask: heads that it prunes become zeros in the attention's output projection, which is equivalent.

    Returns:
        a summary, with the largest difference in logits between the checkpoint and the folder.

    Raises:
        ValueError: not a BERT checkpoint of the ``glue`` task, or one with removed parts.
        RuntimeError: the folder's outputs differ.
    """
    settings = saved_settings(state)
    text = (state.get("task_state") or {}).get("vocabulary")
    if not hasattr(settings, LABELS) or text is None:
        raise ValueError(
            "only an imported model, or a checkpoint of an architecture bert_gated… and the task glue, "
            "becomes a Hugging Face folder"
        )
    weights = zeroed_weights(state, mask)
    write_folder(folder, settings, weights, WordPieceVocabulary(text))
    return {
        "labels": getattr(settings, LABELS),
        "zeroed_heads": len(mask.dropped()),
        "check": _check(state, mask, folder),
    }


def _check(state: State, mask: Mask, folder: Path) -> dict[str, Any]:
    """Compare the logits of the checkpoint under the mask and of the folder, on made-up examples."""
    settings = saved_settings(state)
    mine, written = BertGatedModel(settings), BertGatedModel(settings)
    gates = attach_gates(mine)
    mine.load_state_dict(state["model"])
    gates.set_mask(mask)
    written.take_weights(str(folder), getattr(settings, LABELS))
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(settings.bert_vocabulary, (8, min(32, settings.bert_positions)), generator=generator)
    with torch.no_grad():
        logits = [model.eval().float()(tokens)[0] for model in (mine, written)]
    difference = (logits[0] - logits[1]).abs().max().item()
    if not difference <= TOLERANCE:
        raise RuntimeError(f"logits of the written folder differ from the checkpoint's by up to {difference:.2g}")
    return {"examples": len(tokens), "seed": 1, "largest_difference": difference, "tolerance": TOLERANCE}


def is_imported(state: State) -> bool:
    """Whether a checkpoint has an architecture of imported models."""
    return hasattr(saved_settings(state), CONFIG)


def save_imported(state: State, mask: Mask, folder: Path, origin: PathLike) -> dict[str, Any]:
    """Write the folder of an imported model, or of one trained from it, and read its weights again.

    Args:
        mask: pruned heads become zeros in the attention's output projection, which is equivalent.
        origin: the folder of the import, which has the tokenizer's files under ``huggingface/``.

    Returns:
        what to report about it.

    Raises:
        ValueError: heads were removed, or feed-forward parts are pruned.
        RuntimeError: the written weights differ from the model's.
    """
    from safetensors.torch import save_file

    settings = vars(saved_settings(state))
    config = json.loads(settings[CONFIG])
    generation = config.pop("generation", {})
    family, weights = family_of(config), zeroed_weights(state, mask, _WAY_OUT)
    ties = family.ties(config)
    kind = _TYPES.get(str(config.get("dtype") or config.get("torch_dtype")).removeprefix("torch."), torch.float32)
    named = {name: t.to(kind).contiguous() for name, t in to_hugging_face(weights, family, ties).items()}
    save_file(named, folder / "model.safetensors", {"format": "pt"})
    copied = _copy(Path(origin, FOLDER), folder)
    write_json(folder / "config.json", config)
    if generation:
        write_json(folder / "generation_config.json", generation)
    sizes = (weights["encoder.embed_tokens.weight"].size(0), weights["decoder.embed_tokens.weight"].size(0))
    back = to_fairseq(read_weights(folder), settings, family, sizes, ties)
    for name, tensor in back.items():
        if not name.endswith(".version") and not torch.equal(tensor, weights[name].to(kind).float()):
            raise RuntimeError(f"{name} is another one in the folder that was written")
    return {
        "model_type": config["model_type"],
        "zeroed_heads": len(mask.dropped()),
        "tokenizer": copied,
        "check": {"tensors": len(named), "largest_difference": 0.0, "tolerance": 0.0},
    }


def _copy(origin: Path, folder: Path) -> list[str]:
    """Copy the tokenizer's files if the import's folder is known."""
    names = sorted(path.name for path in origin.iterdir()) if origin.is_dir() else []
    for name in names:
        copyfile(origin / name, folder / name)
    return names
