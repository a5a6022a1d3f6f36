"""Reads a checkpoint file with torch's safe loader, which refuses code; and what else is refused."""

import argparse
import collections
import errno
import os
import pickle
import re
import sys
import typing
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from fairseq_headprune.errors import errors_of
from fairseq_headprune.files import PathLike
from fairseq_headprune.stored.form import check_form, check_storages
from fairseq_headprune.stored.numpy_data import numpy_stand_ins

State = dict[str, Any]

_DAMAGED = "a damaged or truncated file, or not a checkpoint; copy or save it again"

#: torch's safe loader prints this name when it reads a gated checkpoint without the plugin. (fairseq's own message
#: would mention only argparse.Namespace.)
_HINT = "needs --user-dir fairseq_headprune"

#: Settings of a gated model: a Namespace whose class name says what is needed to read it.
GatedSettings = type(_HINT, (argparse.Namespace,), {"__module__": "fairseq_headprune"})
setattr(sys.modules["fairseq_headprune"], _HINT, GatedSettings)

_FOLDER = "take the Hugging Face folder of the same model and headprune import it"

#: task of a checkpoint -> the released models of that task, as Hugging Face folders
_OTHER_TASKS = {
    "translation_multi_simple_epoch": "facebook/m2m100_418M, facebook/nllb-200-distilled-600M, …",
    "multilingual_translation": "facebook/m2m100_418M, …",
    "translation_from_pretrained_bart": "facebook/mbart-large-en-ro, …",
    "multilingual_denoising": "facebook/mbart-large-cc25, …",
    "denoising": "facebook/bart-base, …",
    "translation_from_pretrained_xlm": "none",
}

#: suffixes of files with one part of a model: FSDP shards, model-parallel parts, experts
_PARTS = re.compile(r"-(shard\d+|model_part-\d+|rank-\d+)(?=\.pt$|-|$)")


def allow_settings() -> None:
    """Allow torch's safe loader to read the classes that stock fairseq stores in a checkpoint.

    Since 2.6 ``torch.load`` refuses unknown classes, and fairseq's checkpoints contain an ``argparse.Namespace`` (older
    ones an OmegaConf tree) and, in their metrics, numpy arrays and scalars. These only hold data. The safe loader stays
    on: a checkpoint that would run code is still refused.
    """
    from fairseq.distributed.utils import _TensorPlaceholder  # stands for tensors that one rank sends to the others
    from omegaconf import DictConfig, ListConfig, base, nodes

    torch.serialization.add_safe_globals(
        [
            argparse.Namespace,
            _TensorPlaceholder,
            GatedSettings,
            DictConfig,
            ListConfig,
            base.ContainerMetadata,
            base.Metadata,
            nodes.AnyNode,
        ]
        + [nodes.StringNode, nodes.IntegerNode, nodes.FloatNode, nodes.BooleanNode, nodes.EnumNode]
        + [typing.Any, collections.defaultdict, dict, list, int, float, str, bool]
        + numpy_stand_ins()
    )


def read_state(path: PathLike) -> State:
    """Read a fairseq checkpoint with torch's safe loader, on the CPU; weights stay on disk until they are used.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a damaged file, one that would run code (it is not run), or not a fairseq checkpoint; the message
            names the file and, if the structure is wrong, the entry.
        OSError: it cannot be read.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(_missing(path))
    if not path.is_file():
        raise ValueError(f"{path}: a folder, not a checkpoint; give the .pt file")
    # Opened here to get the original error: torch does not report a missing permission in some of its messages.
    with open(path, "rb"):
        allow_settings()
    try:
        zipped = zipfile.is_zipfile(path)
        state = torch.load(os.fspath(path), map_location="cpu", weights_only=True, mmap=zipped)
        if zipped:
            _check_records(path)
    except pickle.UnpicklingError as error:
        raise ValueError(f"{path}: {_why_refused(str(error))}") from error
    except Exception as error:  # random bytes can raise anything: struct.error, EOFError, RuntimeError…
        # "Invalid argument" means a seek to before the start of the file, caused by a wrong number in it.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise ValueError(f"{path}: {_DAMAGED}") from error
    with errors_of(path):
        check_form(state)
        check_storages(state, path)
    refuse_part(state, path)
    return state


def _check_records(path: Path) -> None:
    """Check that each record of a zip file begins where its directory says: torch reads weights in place without it."""
    with zipfile.ZipFile(path) as records, open(path, "rb") as stream:
        for record in records.infolist():
            stream.seek(record.header_offset)
            if stream.read(4) != b"PK\x03\x04":
                raise ValueError(f"{record.filename} is not where it should be")


def _missing(path: Path) -> str:
    """Return the message for a missing checkpoint; with fairseq's ``--path a.pt:b.pt``, about the ensemble."""
    if os.pathsep in str(path) and any(Path(part).is_file() for part in str(path).split(os.pathsep)):
        return f"{path}: one checkpoint is wanted here, not an ensemble of {len(str(path).split(os.pathsep))}"
    parts = parts_of(path)
    return f"{path}: {in_parts(parts[0])}" if parts else f"{path}: there is no such checkpoint"


def _why_refused(message: str) -> str:
    unknown = re.search(r"GLOBAL (<[^>]+>|[\w.]+)", message)
    if unknown is None:
        return _DAMAGED
    return f"refused and not executed: it holds {unknown[1].strip('<>')}, which is more than data and could run code"


def refuse_task(name: Any) -> None:
    """Refuse a checkpoint whose task adds its own symbols to the dictionaries.

    Raises:
        ValueError: the task is one of these.
    """
    if name in _OTHER_TASKS:
        known = f" ({_OTHER_TASKS[name]})" if _OTHER_TASKS[name] != "none" else ""
        raise ValueError(
            f"the task {name} is not supported, since it adds symbols of its own to the dictionaries; {_FOLDER}{known}"
        )


def parts_of(path: Path) -> list[str]:
    """Return the names of the files with the parts of a checkpoint that does not exist as a single file."""
    if not path.parent.is_dir():
        return []
    names = sorted(p.name for p in path.parent.glob(f"{re.escape(path.stem)}-*{path.suffix}"))
    return [name for name in names if _PARTS.search(name)]


def refuse_part(state: Mapping[str, Any], path: PathLike) -> None:
    """Refuse a file with only a part of a model.

    Raises:
        ValueError: it is such a file; the message says what to do instead.
    """
    weights = state.get("model") or {}
    flat = next((name for name in weights if str(name).split(".")[-1].startswith("flat_param")), None)
    name = Path(path).name
    part = _PARTS.search(name)
    # A file can be named a shard although its model is complete: if training saved one copy per process.
    named = part is not None and not part[1].startswith("shard")
    if "fsdp_metadata" in state or flat is not None or named:
        raise ValueError(f"{path}: {in_parts(name)}")


def in_parts(name: str) -> str:
    """Return the message for a model that is stored in parts, with advice."""
    return (
        f"the model is stored in several parts, of which {name} is one; load it with fairseq on as many processes as "
        f"it was trained on and save it whole, or {_FOLDER}"
    )
