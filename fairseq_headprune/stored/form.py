"""The structure of a fairseq checkpoint: its entries and their types, and the shapes of tensors that must match."""

import argparse
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from fairseq_headprune.files import PathLike

#: entries that must be dictionaries with string keys, if present
_DICTIONARIES = ("extra_state", "task_state", "criterion")

#: entries of ``task_state`` that are read later, and their types
_OF_TASK = {"dictionaries": Mapping, "head_mask": Mapping, "vocabulary": str}

#: names of the tensors of a layer that have one dimension, and of those that have two
_FLAT = (".bias", "in_proj_bias", "head_keep", "layer_norm.weight")
_MATRICES = tuple(f"{name}.weight" for name in ("q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2", "embed_tokens"))

#: within a module: a tensor -> the tensors whose rows are its inputs (columns)
_MADE_FROM = {"out_proj.weight": ("q_proj.weight", "k_proj.weight", "v_proj.weight"), "fc2.weight": ("fc1.weight",)}


def check_form(state: Any) -> None:
    """Check that a loaded value has the structure of a fairseq checkpoint.

    Raises:
        ValueError: it does not; the message names the entry.
    """
    if not isinstance(state, dict) or not isinstance(state.get("model"), Mapping):
        raise ValueError('not a fairseq checkpoint (it holds no "model")')
    for name, value in state["model"].items():
        _check_tensor(name, value)
    for name, value in state["model"].items():
        _check_dimensions(name, value, state["model"])
    _check_notes(state["model"])
    for part in _DICTIONARIES:
        _check(f'"{part}"', state.get(part), Mapping)
    task = state.get("task_state") or {}
    for part, kind in _OF_TASK.items():
        _check(f'"{part}" of "task_state"', task.get(part), kind)
    if not all(isinstance(found, str) for found in (task.get("dictionaries") or {}).values()):
        raise ValueError('damaged: "dictionaries" of "task_state" holds something other than hashes')
    iterator = (state.get("extra_state") or {}).get("train_iterator")
    _check('"train_iterator" of "extra_state"', iterator, Mapping)
    epoch = (iterator or {}).get("epoch", 1)
    if not isinstance(epoch, int):
        raise ValueError(f'damaged: "epoch" of "train_iterator" is {_kind(epoch)}')
    _check_history(state.get("optimizer_history"))
    _check_settings(state)


def check_storages(state: Any, path: PathLike) -> None:
    """Check that a checkpoint's zip file stores as many bytes for every tensor as the tensor needs.

    torch does not check this when weights stay on disk: it would read bytes of the next tensor, or beyond all tensors.

    Raises:
        ValueError: it does not; the message names a tensor.
    """
    if not zipfile.is_zipfile(path):
        return  # the older format: torch checks while reading
    with zipfile.ZipFile(path) as file:
        stored = Counter(i.file_size for i in file.infolist() if "/data/" in i.filename and i.file_size)
    seen: dict[int, tuple[str, int]] = {}
    for name, tensor in _tensors(state):
        storage = tensor.untyped_storage()
        if storage.nbytes():
            seen.setdefault(storage.data_ptr(), (name, storage.nbytes()))
    for name, size in seen.values():
        if not stored[size]:
            raise ValueError(f"damaged: {name} needs {size:,} bytes, which are not stored; copy or save the file again")
        stored[size] -= 1


def _tensors(state: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Iterate over the tensors of a nested value with their paths; deep nesting and cycles are handled."""
    rest, seen = [("", state)], set()
    while rest:
        name, value = rest.pop()
        if isinstance(value, torch.Tensor):
            if value.layout == torch.strided and value.device.type == "cpu":
                yield name, value
        elif isinstance(value, dict | list | tuple) and id(value) not in seen:
            seen.add(id(value))
            parts = value.items() if isinstance(value, dict) else enumerate(value)
            rest += [(f"{name}.{key}".strip("."), part) for key, part in parts]


def _check_tensor(name: Any, value: Any) -> None:
    if not isinstance(name, str):
        raise ValueError(f'damaged: "model" holds {name!r} among its names')
    if not isinstance(value, torch.Tensor):
        raise ValueError(f"damaged: {name} is no tensor but {_kind(value)}")
    if value.layout != torch.strided or value.device.type != "cpu":
        raise ValueError(f"damaged: {name} is a tensor without its content")


def _check_dimensions(name: str, value: torch.Tensor, model: Mapping[str, torch.Tensor]) -> None:
    """Compare a layer's bias with its weight, and matrices with those whose output they read."""
    found = tuple(value.shape)
    if name.endswith(_MATRICES) and value.dim() != 2:
        raise ValueError(f"damaged: {name} has the shape {found} in place of two dimensions")
    if ".layers." not in name:
        return
    if name.endswith(_FLAT):
        weight = model.get(f"{name.removesuffix('bias')}weight") if name.endswith(".bias") else None
        rows = value.numel() if weight is None or weight.dim() not in (1, 2) else weight.size(0)
        if found != (rows,):
            raise ValueError(f"damaged: {name} has the shape {found} in place of ({rows},)")
    for last, others in _MADE_FROM.items():
        owner = name.removesuffix(last)
        for other in (model.get(owner + other) for other in others if name.endswith(last)):
            if other is not None and other.dim() == 2 and other.size(0) != value.size(1):
                raise ValueError(f"damaged: {name} has {value.size(1)} columns for {other.size(0)} rows before it")


def _check_notes(model: Mapping[str, Any]) -> None:
    """Check the metadata that torch's modules store beside their weights."""
    notes = getattr(model, "_metadata", None)
    _check('the notes of "model"', notes, Mapping)
    for name, note in (notes or {}).items():
        _check(f"the notes of {name or 'model'}", note, Mapping)


def _check_history(history: Any) -> None:
    _check('"optimizer_history"', history, list)
    for entry in history or []:
        _check('an entry of "optimizer_history"', entry, Mapping)
        updates = entry.get("num_updates", 0)
        if updates is not None and not isinstance(updates, int):
            raise ValueError(f'damaged: "num_updates" of "optimizer_history" is {_kind(updates)}')


def _check_settings(state: Mapping[str, Any]) -> None:
    if state.get("args") is not None and not isinstance(state["args"], argparse.Namespace):
        raise ValueError(f'damaged: "args" is {_kind(state["args"])}')
    cfg = state.get("cfg")
    if cfg is None or hasattr(cfg, "_get_child"):  # OmegaConf's dictionary, of older releases
        return
    _check('"cfg"', cfg, Mapping)
    for part in ("model", "task"):
        value = cfg.get(part)
        settings = vars(value) if isinstance(value, argparse.Namespace) else value
        _check(f'"{part}" of "cfg"', settings, Mapping)
        for name, setting in {} if settings is None else settings.items():
            if isinstance(setting, torch.Tensor):
                raise ValueError(f'damaged: {name} in "{part}" of "cfg" is a tensor')


def _check(part: str, value: Any, kind: type) -> None:
    """Refuse an entry of the wrong type; None means that it is missing."""
    if value is not None and not (isinstance(value, kind) or (kind is Mapping and hasattr(value, "_get_child"))):
        raise ValueError(f"damaged: {part} is {_kind(value)}")


def _kind(value: Any) -> str:
    """Name the type of a value for messages."""
    if value is None:
        return "nothing (None)"
    names = {str: "a text", list: "a list", tuple: "a tuple", int: "a number", float: "a number", dict: "a dictionary"}
    return names.get(type(value), f"of the type {type(value).__name__}")
