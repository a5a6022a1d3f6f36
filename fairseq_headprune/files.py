"""Reads files with errors that name the file, and writes them atomically."""

import errno
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from fairseq_headprune.leftovers import temporary_file

PathLike = str | os.PathLike


def write_text(path: PathLike, text: str) -> None:
    """Write a UTF-8 text file atomically: readers see the old file or the new one, never a partial one.

    Raises:
        ValueError: the path is a folder, a pipe or a device (see :func:`check_output`).
        OSError: the folder is missing or not writable, or the disk is full; no temporary file remains.
    """
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: PathLike, data: bytes) -> None:
    """Write a binary file atomically (temporary file in the same folder, fsync, rename).

    Raises:
        ValueError, OSError: as for :func:`write_text`.
    """
    write_with(path, lambda stream: stream.write(data))


def write_with(path: PathLike, write: Callable[[BinaryIO], Any]) -> None:
    """Write a binary file atomically, with a function that writes to the open file: for data too big for a copy.

    Raises:
        ValueError, OSError: as for :func:`write_text`.
    """
    place = check_output(path)
    try:
        _replace(place, write)
    except OSError as error:
        # Name the requested file: the system names the temporary one, or none if the disk is full.
        raise OSError(error.errno, error.strerror, str(path)) from error


def check_output(path: PathLike) -> Path:
    """Return the path to write to: the target of a link, which itself stays; otherwise the path itself.

    Raises:
        ValueError: the path exists and is not a regular file; writing would replace it.
        FileNotFoundError: there is no folder for it.
        PermissionError: nothing can be written to the folder.
    """
    place = Path(os.path.realpath(path))
    # Both paths are checked: the target of a /proc link may have no path of its own, and links may be circular.
    if (os.path.exists(path) or place.is_symlink()) and not place.is_file():
        what = "a folder" if place.is_dir() else "no regular file"
        raise ValueError(f"{path} is {what} and is not replaced; name a file")
    if not place.parent.is_dir():
        folder = place.parent if os.path.islink(path) else Path(path).parent
        raise FileNotFoundError(f"{path}: there is no folder {folder}; make it first")
    if not os.access(place.parent, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "the folder is not writable", str(path))
    return place


def same_file(path: PathLike, other: PathLike) -> bool:
    """Whether both paths exist and are the same file, also through links."""
    return os.path.exists(path) and os.path.exists(other) and os.path.samefile(path, other)


class _Remembering:
    """A file that remembers its own write error, since writers such as torch report a different one in its place."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            return self._stream.write(data)
        except OSError as error:
            self.error = error
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _write(stream: BinaryIO, write: Callable[[BinaryIO], Any]) -> None:
    remembering = _Remembering(stream)
    try:
        write(remembering)  # type: ignore[arg-type]
    except Exception as error:
        raise remembering.error or error from None


def _replace(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    handle, temporary = temporary_file(path)
    try:
        with os.fdopen(handle, "wb") as stream:
            _write(stream, write)
            stream.flush()
            os.fsync(stream.fileno())
            # Temporary files are private; give this one the permissions of an ordinary open().
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(temporary, 0o666 & ~umask)
            os.replace(temporary, path)  # before closing, which releases the lock
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: PathLike, value: Any) -> None:
    """Write a value as indented JSON, atomically.

    Raises:
        ValueError: the value contains NaN or infinity, which JSON does not allow.
    """
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


#: limits well above any real JSON file: nesting depth, and digits of an integer (2^64 has 20)
_DEPTH, _DIGITS = 100, 40


def read_json(path: PathLike) -> Any:
    """Read a JSON file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not UTF-8 JSON, or exceeds the limits of :func:`parse_json`; the message names the file
            and the position.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not a JSON file ({error})") from error
    return parse_json(text, str(path))


def parse_json(text: str | bytes, name: str) -> Any:
    """Parse JSON text; ``name`` is where it comes from.

    Raises:
        ValueError: it is not JSON, it is nested more than 100 deep, or an integer has more than 40 digits: no caller
            needs these, and code that processes the value could fail on them.
    """
    try:
        value = json.loads(text, parse_int=_integer)
        _check_depth(value)
    except RecursionError:
        raise ValueError(f"{name}: not a JSON file (nested more than {_DEPTH} deep)") from None
    except ValueError as error:  # from JSON, UTF-8 or an integer
        raise ValueError(f"{name}: not a JSON file ({error})") from error
    return value


def _integer(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise ValueError(f"an integer of {len(digits):,} digits: {digits[:8]}...")
    return int(digits)


def _check_depth(value: Any) -> None:
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > _DEPTH:
            raise RecursionError
        inner = [part.values() if isinstance(part, dict) else part for part in level if isinstance(part, dict | list)]
        level = [part for parts in inner for part in parts if isinstance(part, dict | list)]


def read_lines(path: PathLike) -> list[str]:
    """Read a text file as a list of lines; only ``\\n`` ends a line, and a byte order mark is dropped.

    U+2028, a lone carriage return or a form feed do not end a line, so that line numbers agree with ``wc -l`` and
    with fairseq; the carriage return of ``\\r\\n`` is dropped.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not UTF-8.
    """
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not a UTF-8 text file ({error})") from error
    lines = text.split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    return [line[:-1] if line.endswith("\r") else line for line in lines]


def sha256(path: PathLike) -> str:
    """Return the SHA-256 of a file's bytes in hexadecimal.

    Raises:
        FileNotFoundError: there is no such file.
    """
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def identified(path: PathLike) -> dict[str, str]:
    """Return the path and the SHA-256 of a file, as results note their inputs and outputs."""
    return {"path": str(path), "sha256": sha256(path)}


def check_format(value: Any, form: str, noun: str, file: str, name: str) -> None:
    """Check that JSON content has a given format and version, such as ``headprune.mask/1``.

    Args:
        noun, file: what such content and such a file are called ("mask", "a mask file").
        name: where the content comes from, for the message.

    Raises:
        ValueError: it has another format or version.
    """
    family = form.split("/")[0]
    if not isinstance(value, Mapping) or not str(value.get("format", "")).startswith(family + "/"):
        raise ValueError(f'{name}: not {file} (no "format": "{form}")')
    if value["format"] != form:
        raise ValueError(
            f"{name}: {noun} format {value['format']!r} is not known here (this is {form}); upgrade fairseq_headprune"
        )
