"""The paths of output that has one file a split."""

from collections.abc import Mapping
from pathlib import Path

from fairseq_headprune.files import PathLike, check_output


def output_paths(flag: str, path: PathLike, names: Mapping[str, str], what: str) -> dict[str, Path]:
    """Return the file of each split: ``path``, or in a folder the split's own name.

    Args:
        flag: the flag that gave the path, for the message.
        names: split -> the file's name in a folder.
        what: what has several splits, for the message: "MNLI has 2 test sets".

    Raises:
        ValueError: one file for several splits, or something that is no file.
        FileNotFoundError: a file in a folder that is not there.
    """
    path = Path(path)
    if path.is_dir():
        return {split: path / name for split, name in names.items()}
    if len(names) > 1:
        raise ValueError(f"{flag} {path}: {what}; name an existing folder")
    check_output(path)
    return {split: path for split in names}
