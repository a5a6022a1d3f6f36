"""Exports a BERT checkpoint as a Hugging Face folder."""

import importlib.util
import json
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairseq_headprune.bert.folder import config, names
from fairseq_headprune.bert.vocabulary import Vocabulary
from fairseq_headprune.checkpoints import State, saved_settings
from fairseq_headprune.export.model import TOLERANCE, zeroed_weights
from fairseq_headprune.files import write_json, write_text, write_with
from fairseq_headprune.models.bert_gated import LABELS, BertGatedModel
from fairseq_headprune.modules.attach import attach_gates
from fairseq_headprune.parts import Mask


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


def write_folder(folder: Path, settings: Any, weights: Mapping[str, Tensor], vocabulary: Vocabulary) -> None:
    """Write ``config.json``, ``model.safetensors`` and the vocabulary of a classifier.

    Args:
        weights: named as in this package, from a model with all its heads.
    """
    from safetensors.torch import save

    theirs = {ours: hf for hf, ours in names(settings.encoder_layers).items()}
    named = {
        theirs[name] if theirs[name].startswith("classifier") else f"bert.{theirs[name]}": tensor.contiguous()
        for name, tensor in weights.items()
    }
    data = save({name: tensor.float().clone() for name, tensor in named.items()}, {"format": "pt"})
    write_with(folder / "model.safetensors", lambda stream: stream.write(data))
    write_json(folder / "config.json", config(settings, getattr(settings, LABELS)))
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


def save(state: State, mask: Mask, folder: Path) -> dict[str, Any]:
    """Write a checkpoint as a Hugging Face folder, and read it back to check it.

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
    write_folder(folder, settings, weights, Vocabulary(text))
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
