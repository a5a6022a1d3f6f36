"""Binarised text from fairseq-preprocess: damaged files are refused before fairseq maps them into memory."""

import os
import struct
from pathlib import Path
from typing import Any, BinaryIO

from fairseq.data.indexed_dataset import _code_to_dtype as _ITEMS

#: the first 8 bytes of the two formats: ``--dataset-impl mmap``, and ``lazy`` and ``cached``
_MAPPED, _READ = b"MMIDIDX\x00", b"TNTIDX\x00\x00"


def load_split(task: Any, split: str, settings: Any) -> None:
    """Load a split of a translation task.

    Args:
        settings: the task's settings in the checkpoint.

    Raises:
        FileNotFoundError: the data folder has no such split.
        ValueError: the split is empty or damaged, or its sides have different lengths.
    """
    try:
        check_split_files(task.cfg.data.split(os.pathsep)[0], split, task.cfg.source_lang, task.cfg.target_lang)
        task.load_dataset(split, task_cfg=settings)
    except FileNotFoundError as error:
        there = ", ".join(_splits(task)) or _raw(task) or "none"
        raise FileNotFoundError(f"{task.cfg.data} has no split {split!r}; there are: {there}") from error
    except (AssertionError, ValueError, struct.error) as error:
        # fairseq asserts equal lengths.
        raise ValueError(f"the split {split!r} of {task.cfg.data} is damaged or empty ({error})") from error


def _splits(task: Any) -> list[str]:
    """Return the names of the splits in a translation task's data folder."""
    languages = {task.cfg.source_lang, task.cfg.target_lang}
    found = (path.name.split(".") for path in Path(task.cfg.data.split(os.pathsep)[0]).glob("*.*-*.*.idx"))
    return sorted({name[0] for name in found if set(name[1].split("-")) == languages})


def _raw(task: Any) -> str:
    """Return the flag that reads a plain-text data folder; empty for other folders."""
    source, target = task.cfg.source_lang, task.cfg.target_lang
    folder = Path(task.cfg.data.split(os.pathsep)[0])
    found = [*folder.glob(f"*.{source}-{target}.{source}"), *folder.glob(f"*.{target}-{source}.{source}")]
    return "plain texts, which --dataset-impl raw reads" if found else ""


def check_split_files(folder: str, split: str, source: str, target: str) -> None:
    """Refuse files shorter than their index says, for which fairseq would fail in a constructor and again at exit.

    Missing files, and formats other than those of ``--dataset-impl mmap``, ``lazy`` and ``cached``, are ignored.

    Raises:
        ValueError: a file without sentences, or a truncated one.
    """
    for pair in (f"{source}-{target}", f"{target}-{source}"):
        stems = [Path(folder, f"{split}.{pair}.{side}") for side in (source, target)]
        if Path(f"{stems[0]}.idx").exists():  # fairseq uses the first pair that exists
            for index, data in [(Path(f"{stem}.idx"), Path(f"{stem}.bin")) for stem in stems]:
                if index.is_file() and data.is_file():
                    _check(index, data)
            return


def _check(index: Path, data: Path) -> None:
    with open(index, "rb") as stream:
        magic = stream.read(8)
        if magic not in (_MAPPED, _READ) and len(magic) == 8:
            return
        try:
            needed = (_mapped_bytes if magic == _MAPPED else _read_bytes)(stream)
        except (struct.error, EOFError, KeyError):  # it is too short, or has an unknown type
            raise ValueError(f"{index.name} is truncated at {index.stat().st_size} bytes; copy it again") from None
    if not needed:
        raise ValueError(f"{index.name} holds no sentences")
    if data.stat().st_size < needed:
        found = data.stat().st_size
        raise ValueError(f"{data.name} is truncated: it has {found} of {needed} bytes; copy it again")


def _mapped_bytes(stream: BinaryIO) -> int:
    """Return the data's size in bytes from an index with version, type, number of sentences; then lengths, offsets."""
    _, _, code, sentences = struct.unpack("<BQBQ", stream.read(18))
    length, place = _last(stream, "<i", sentences), _last(stream, "<q", sentences)
    return place + length * _ITEMS[code]().itemsize


def _read_bytes(stream: BinaryIO) -> int:
    """Return the same from an index with version, type, item size, numbers of sentences and sizes; then three lists."""
    _, _, size, sentences, sizes = struct.unpack("<5Q", stream.read(40))
    _, place, _ = (_last(stream, "<q", count) for count in (sentences + 1, sentences + 1, sizes))
    return place * size


def _last(stream: BinaryIO, form: str, count: int) -> int:
    """Return the last of a list of numbers, 0 for an empty list."""
    if not count:
        return 0
    size = struct.calcsize(form)
    if stream.tell() + size * count > os.fstat(stream.fileno()).st_size:
        raise EOFError
    stream.seek(size * (count - 1), os.SEEK_CUR)
    return struct.unpack(form, stream.read(size))[0]
