"""Lists as JSON lines, one entry per line; safe with killed writers, full disks and concurrent writers."""

import contextlib
import errno
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fairseq_headprune.files import parse_json


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
