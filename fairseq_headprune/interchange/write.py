"""Export an imported model, or one trained from it, as a Hugging Face folder."""

import json
from pathlib import Path
from shutil import copyfile
from typing import Any

import torch

from fairseq_headprune.checkpoints import State, saved_settings
from fairseq_headprune.export.model import zeroed_weights
from fairseq_headprune.files import PathLike, write_json
from fairseq_headprune.imports.families import family_of
from fairseq_headprune.imports.folder import read_weights
from fairseq_headprune.imports.pieces import FOLDER
from fairseq_headprune.imports.weights import to_fairseq, to_hugging_face
from fairseq_headprune.models.imported import CONFIG
from fairseq_headprune.parts import Mask

_WAY_OUT = "; models without some heads go to ctranslate2 or onnx, or export the masked checkpoint they were made of"

#: dtypes that a configuration may name; otherwise weights are written in float32
_TYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}


def is_imported(state: State) -> bool:
    """Whether a checkpoint has an architecture of imported models."""
    return hasattr(saved_settings(state), CONFIG)


def save(state: State, mask: Mask, folder: Path, origin: PathLike) -> dict[str, Any]:
    """Write the folder and read its weights again.

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
