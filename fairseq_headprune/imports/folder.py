"""Read a Hugging Face folder: its configuration, weights (safe loading only) and small files."""

import importlib.util
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairseq_headprune.files import PathLike, read_json

WEIGHTS = ("model.safetensors", "pytorch_model.bin")


def read_config(folder: PathLike) -> dict[str, Any]:
    """Return ``config.json``, with ``generation_config.json`` (which takes precedence) under ``"generation"``.

    Raises:
        FileNotFoundError: there is no such folder, or it has no ``config.json``.
        ValueError: it is not a JSON object, or the weights are quantised.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: there is no such folder")
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"{folder} has no config.json: it is no folder of a Hugging Face model")
    config = _object(folder / "config.json")
    if config.get("quantization_config") is not None:
        method = config["quantization_config"].get("quant_method", "unknown")
        raise ValueError(f"{folder}: quantised weights ({method}) are not supported; take the original ones")
    generation = folder / "generation_config.json"
    return {**config, "generation": _object(generation) if generation.is_file() else {}}


def _object(path: Path) -> dict[str, Any]:
    value = read_json(path)
    if not isinstance(value, dict):
        raise ValueError(f"{path}: a JSON object is expected")
    return value


def optional_json(folder: PathLike, name: str) -> dict[str, Any]:
    """Return the content of a folder's JSON file, empty if there is none."""
    path = Path(folder, name)
    return _object(path) if path.is_file() else {}


def read_weights(folder: PathLike) -> dict[str, Tensor]:
    """Return the weights of a folder by name; they are loaded lazily.

    ``model.safetensors`` or ``pytorch_model.bin``, each in one file or in parts that an index lists.

    Raises:
        FileNotFoundError: there are none.
        ValueError: a damaged file, one that would run code (it does not run), or weights that are not floats.
    """
    folder = Path(folder)
    for name in WEIGHTS:
        index = folder / f"{name}.index.json"
        if (folder / name).is_file():
            parts = [name]
        elif index.is_file():
            parts = sorted(set(_object(index).get("weight_map", {}).values()))
        else:
            continue
        weights: dict[str, Tensor] = {}
        for part in parts:
            weights |= _read(folder / part)
        return _checked(weights, folder)
    raise FileNotFoundError(f"{folder} has no weights: {' or '.join(WEIGHTS)} is expected")


def _read(path: Path) -> dict[str, Tensor]:
    if path.resolve().parent != path.parent.resolve() and not path.is_symlink():
        raise ValueError(f"{path}: outside of the folder")
    if not path.is_file():
        raise FileNotFoundError(f"{path}: the index names it, and it is not there")
    return read_weights_file(path)


def read_weights_file(path: Path) -> dict[str, Tensor]:
    """Return the weights in one file: ``.safetensors``, or read with torch's safe loader.

    Raises:
        ValueError: a damaged file, one that would run code (it does not run), or safetensors is not installed.
    """
    is_safe = path.suffix == ".safetensors"
    if is_safe and importlib.util.find_spec("safetensors") is None:
        raise ValueError(f"{path} needs safetensors: pip install safetensors")
    try:
        if is_safe:
            from safetensors.torch import load_file

            return load_file(path)
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except pickle.UnpicklingError as error:
        raise ValueError(f"{path}: refused and not executed, since it holds more than weights") from error
    except OSError:
        raise
    except Exception as error:  # SafetensorError, RuntimeError, EOFError…
        raise ValueError(f"{path}: a damaged or truncated file; copy it again ({error})") from error
    if not isinstance(found, Mapping):
        raise ValueError(f"{path}: not a file of weights")
    return dict(found)


def _checked(weights: dict[str, Tensor], folder: Path) -> dict[str, Tensor]:
    for name, tensor in weights.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise ValueError(f"{folder}: {name} is no tensor")
        if not tensor.is_floating_point() or tensor.is_quantized or tensor.element_size() < 2:
            kind = str(tensor.dtype).removeprefix("torch.")
            raise ValueError(f"{folder}: {name} is {kind}; quantised weights are not supported, take the original ones")
    return weights


def copy_small_files(folder: PathLike, target: PathLike) -> list[str]:
    """Copy the configuration and the tokenizer's files, and return their names."""
    from shutil import copyfile

    copied = []
    for path in sorted(Path(folder).iterdir()):
        if path.is_file() and (path.suffix in (".json", ".spm", ".txt") or path.name.endswith("bpe.model")):
            if not path.name.endswith(".index.json"):
                copyfile(path, Path(target, path.name))
                copied.append(path.name)
    return copied
