"""Documents that are not studies of masks, stored so that ``headprune report`` can show them beside studies."""

from pathlib import Path
from typing import Any

from fairseq_headprune.files import PathLike, check_format, read_json, write_json
from fairseq_headprune.report.document import Document
from fairseq_headprune.report.page.document import page_entry

FORMAT = "headprune.document/1"
NAME = "document.json"


def check_folder(path: PathLike, name: str = NAME, other: str = "something else") -> Path:
    """Return the folder that a document may be stored in: a new one, an empty one, or one that holds this file.

    Raises:
        ValueError: it holds something else.
    """
    folder = Path(path)
    if folder.exists() and not (folder.is_dir() and ((folder / name).exists() or not any(folder.iterdir()))):
        raise ValueError(f"{path} is there and holds {other}; name another folder")
    return folder


def store(document: Document, kind: str, folder: Path) -> None:
    """Write a document, with its numbers and its entry on a report page.

    Args:
        kind: the verb.
    """
    folder.mkdir(parents=True, exist_ok=True)
    document.provenance["study"] = str(folder)
    content = {"format": FORMAT, "page": page_entry(folder.name, kind, document), "data": document.data}
    write_json(folder / NAME, content)


def is_stored(path: PathLike) -> bool:
    """Whether a folder holds a stored document."""
    return (Path(path) / NAME).is_file()


def stored_entry(path: PathLike, name: str) -> dict[str, Any]:
    """Return the entry of a stored document on a report page, under this name.

    Raises:
        ValueError: the file is damaged or of another version.
    """
    file = Path(path) / NAME
    content = read_json(file)
    check_format(content, FORMAT, "document", "document file", str(file))
    if not isinstance(content.get("page"), dict) or "parts" not in content["page"]:
        raise ValueError(f"{file} is damaged: it has no page; make it again")
    return content["page"] | {"name": name, "path": str(path)}
