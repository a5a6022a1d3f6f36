"""Temporary files and folders; those left by killed processes are removed by the next process.

A file or folder is written under a temporary name in the same place and renamed when complete. Meanwhile its writer
holds a lock (``flock``) on it, which the system releases when the process ends in any way: nothing depends on age, or
on process ids, which are meaningless on other machines. If a file system does not support such locks, nothing is
removed.
"""

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

#: suffix of temporary names; it follows the actual name and eight random characters
_END = ".part"
_NAMES = re.compile(r"\..+\.[a-z0-9_]{8}\.part")


def temporary_file(place: Path) -> tuple[int, Path]:
    """Create a temporary file that will become ``place``, and remove those that killed processes left for it.

    Returns:
        A descriptor open for writing, which holds the lock, and the path.

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
    """Context manager: create a temporary folder to be renamed when complete; if it is still there at exit, remove it.

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


@contextlib.contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Context manager: yield a temporary folder; after the block it is ``folder``, with an ordinary folder's rights."""
    with temporary_folder(folder.absolute()) as temporary:
        yield temporary
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o777 & ~umask)
        os.rename(temporary, folder)


def check_new_folder(folder: Path) -> None:
    """Check that a folder can be made.

    Raises:
        ValueError: it exists; FileNotFoundError: the folder around it does not.
    """
    if folder.exists():
        raise ValueError(f"{folder} exists; name a new folder")
    if not folder.absolute().parent.is_dir():
        raise FileNotFoundError(f"{folder}: there is no folder {folder.absolute().parent}; make it first")


def remove_leftovers(folder: Path, name: str | None = None, within: bool = False) -> None:
    """Remove temporary files and folders that no running process has locked.

    Args:
        name: of the file or folder that they were to become (default: any).
        within: also search the folders below.
    """
    start = "." if name is None else f".{name}."
    for parent, folders, files in os.walk(folder):
        for found in [*folders, *files]:
            if found.startswith(start) and _NAMES.fullmatch(found) and (name is None or len(found) == len(start) + 13):
                _remove(Path(parent, found))
        if not within:
            break


def _held(handle: int, name: str | Path) -> bool:
    """Lock what was just created; False if another process removed it first."""
    with contextlib.suppress(OSError):  # no lock support: then nobody removes it
        fcntl.flock(handle, fcntl.LOCK_EX)
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(handle), os.stat(name))
    return False


def _remove(path: Path) -> None:
    """Remove a file or folder if it can be locked, holding the lock meanwhile."""
    with contextlib.suppress(OSError):  # locked by a running process, gone, not ours to remove, or no lock support
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path) if path.is_dir() else os.unlink(path)
        finally:
            os.close(handle)
