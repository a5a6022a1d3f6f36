"""Plain JSON values, and lists of them as JSON lines, one entry per line.

Lists are safe with killed writers, full disks and concurrent writers.
"""

import contextlib
import errno
import fcntl
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fairseq_headprune.files import parse_json


def plain(value: Any, where: str) -> Any:
    """Convert a value to plain JSON types: numpy and torch scalars become Python's, paths become strings.

    Raises:
        ValueError: NaN, infinity, an array, or another value that JSON does not support; the message says where.
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{where} is {value}; only finite numbers can be saved")
        return float(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item, f"{where}: {key}") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    # numpy and torch scalars have no dimensions, and item() returns their value.
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return plain(value.item(), where)
    raise ValueError(f"{where} is a {type(value).__name__}, which JSON does not know; pass numbers, strings and lists")


def first_difference(stored: Any, now: Any, name: str = "") -> tuple[str, str, str] | None:
    """Return (name, stored value, current value) of the first setting that differs, ``None`` if all are equal.

    Nested settings have dotted names. Values are in JSON notation; ``absent`` if one side lacks the setting.
    """
    if isinstance(stored, dict) and isinstance(now, dict):
        for key in [*stored, *(key for key in now if key not in stored)]:
            path = f"{name}.{key}" if name else key
            if key not in stored or key not in now:
                return path, _shown(stored, key), _shown(now, key)
            difference = first_difference(stored[key], now[key], path)
            if difference:
                return difference
        return None
    same = stored == now and isinstance(stored, bool) == isinstance(now, bool)
    return None if same else (name, json.dumps(stored, ensure_ascii=False), json.dumps(now, ensure_ascii=False))


def _shown(settings: Mapping[str, Any], key: str) -> str:
    return json.dumps(settings[key], ensure_ascii=False) if key in settings else "absent"


@contextlib.contextmanager
def locked(path: Path) -> Iterator[int]:
    """Context manager: open a list for appending, and lock out other processes and threads."""
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)  # gives the lock back


def read_cells(path: Path) -> dict[str, dict[str, Any]]:
    """Return the cells of a list by id, in the order in which they were added; on duplicate ids the first counts.

    A last line cut off by a killed writer is ignored. A missing file has no cells.

    Raises:
        ValueError: a line before the last is damaged; the message names it.
    """
    *lines, rest = (path.read_bytes() if path.exists() else b"").split(b"\n")
    if _parse(rest):
        lines.append(rest)
    result: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(lines, 1):
        cell = _parse(line)
        if cell is None:
            raise ValueError(f"{path}, line {number}: not a cell; delete this line and the study will do it again")
        result.setdefault(cell["id"], cell)
    return result


def json_line(value: Any) -> bytes:
    """Return a value of plain JSON types as one line."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8") + b"\n"


def append_line(handle: int, line: bytes) -> None:
    """Append one line to a list opened by :func:`locked`: afterwards it is on disk, or the list is unchanged.

    Raises:
        OSError: the disk is full or fails.
    """
    end = _mend(handle)
    try:
        written = os.write(handle, line)
        if written < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(handle)
    except OSError:
        os.ftruncate(handle, end)
        raise


def _mend(handle: int) -> int:
    """Complete or remove a last line that a killed writer did not finish; return the file's size."""
    size = os.fstat(handle).st_size
    if size == 0 or os.pread(handle, 1, size - 1) == b"\n":
        return size
    start = os.pread(handle, size, 0).rfind(b"\n") + 1
    if _parse(os.pread(handle, size - start, start)):
        return size + os.write(handle, b"\n")
    os.ftruncate(handle, start)
    return start


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        cell = parse_json(line, "a cell")
    except ValueError:
        return None
    return cell if isinstance(cell, dict) and isinstance(cell.get("id"), str) else None
