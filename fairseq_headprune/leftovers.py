"""Temporary files and folders that a killed process cannot leave for good: the next one removes them.

A file or folder is written under a temporary name beside its own and renamed when it is whole. While it lives, its
writer holds a lock (``flock``) on it, which the system gives back when the process ends, however it ends: nothing
depends on age, or on process ids, which mean nothing on other machines. Where a file system knows no such locks,
nothing is removed.
"""

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

#: what temporary names end with; before it come the name itself and eight characters by chance
_END = ".part"
_NAMES = re.compile(r"\..+\.[a-z0-9_]{8}\.part")


def temporary_file(place: Path) -> tuple[int, Path]:
    """Make a temporary file for a file to be, and remove what killed processes left of it.

    Returns:
        A descriptor open for writing, which holds the lock, and the name.

    Raises:
        OSError: the folder cannot be written.
    """
    remove_leftovers(place.parent, place.name)
    while True:
        handle, name = tempfile.mkstemp(prefix=f".{place.name}.", suffix=_END, dir=place.parent)
        if _held(handle, name):
            return handle, Path(name)
        os.close(handle)


@contextlib.contextmanager
def temporary_folder(place: Path) -> Iterator[Path]:
    """Make a temporary folder for a folder to be, to be renamed when it is whole; whatever is left of it is removed.

    Raises:
        OSError: the folder around it cannot be written.
    """
    remove_leftovers(place.parent, place.name)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f".{place.name}.", suffix=_END, dir=place.parent))
        handle = os.open(folder, os.O_RDONLY)
        if _held(handle, folder):
            break
        os.close(handle)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def remove_leftovers(folder: Path, name: str | None = None, within: bool = False) -> None:
    """Remove temporary files and folders that no living process holds.

    Args:
        name: of the file or folder that they were to become (default: any).
        within: look into the folders below, too.
    """
    start = "." if name is None else f".{name}."
    for parent, folders, files in os.walk(folder):
        for found in [*folders, *files]:
            if found.startswith(start) and _NAMES.fullmatch(found) and (name is None or len(found) == len(start) + 13):
                _remove(Path(parent, found))
        if not within:
            break


def _held(handle: int, name: str | Path) -> bool:
    """Take the lock of what was just made; False if another process removed it before that."""
    with contextlib.suppress(OSError):  # no locks here: then nobody removes it, either
        fcntl.flock(handle, fcntl.LOCK_EX)
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(handle), os.stat(name))
    return False


def _remove(path: Path) -> None:
    """Remove it where its lock can be had, and hold the lock meanwhile."""
    with contextlib.suppress(OSError):  # held by a living process, gone, not ours to remove, or no locks here
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path) if path.is_dir() else os.unlink(path)
        finally:
            os.close(handle)
