"""Read GLUE's TSV files: no quoting, columns by name, faulty lines counted."""

import gzip
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Optional

from fairseq_headprune.files import PathLike
from fairseq_headprune.glue.catalogue import GlueTask

#: a file with a larger share of unusable lines is refused
MOST_FAULTS = 0.01


class Example(NamedTuple):
    """One line: its number in the file (from 0, without the header), sentences, and label name or score."""

    number: int
    sentences: tuple[str, ...]
    label: Optional[str | float]


@dataclass
class Faults:
    """The faults of a file.

    Attributes:
        bom: whether it begins with a byte order mark, which is dropped.
        quotes: lines with a field that begins with a quotation mark, which is read literally, as GLUE intends. A CSV
            reader would join such lines with others.
        empty: lines with an empty sentence, which are kept.
        columns, label: numbers of skipped lines, because the number of columns differs from the header's, or the task
            does not have the label.
    """

    bom: bool = False
    quotes: int = 0
    empty: int = 0
    columns: list[int] = field(default_factory=list)
    label: list[int] = field(default_factory=list)

    @property
    def left_out(self) -> int:
        """How many lines are skipped."""
        return len(self.columns) + len(self.label)

    def to_dict(self) -> dict[str, Any]:
        """Return counts, plain JSON values."""
        left_out = {"columns": len(self.columns), "label": len(self.label)}
        return {"bom": self.bom, "quotes": self.quotes, "empty": self.empty, "left_out": left_out}

    def __str__(self) -> str:
        said = ["a byte order mark, dropped"] if self.bom else []
        said += [f"{self.quotes} lines with a leading quotation mark, taken literally"] if self.quotes else []
        said += [f"{self.empty} lines with an empty sentence"] if self.empty else []
        for lines, what in ((self.columns, "another number of columns"), (self.label, "an unknown label")):
            if lines:
                said.append(f"{len(lines)} lines left out with {what} (the first is line {lines[0]})")
        return "; ".join(said)


def split_path(data: PathLike, task: GlueTask, stem: str) -> Path:
    """Return the file of a split: ``DATA/<task>/<stem>.tsv`` or ``DATA/<stem>.tsv``, also with ``.gz``.

    Raises:
        FileNotFoundError: there is none.
    """
    for folder in (Path(data, task.name), Path(data)):
        for suffix in (".tsv", ".tsv.gz"):
            if (folder / (stem + suffix)).is_file():
                return folder / (stem + suffix)
    raise FileNotFoundError(f"{data}: neither {task.name}/{stem}.tsv nor {stem}.tsv is there (nor either with .gz)")


def read_split(path: PathLike, task: GlueTask, stem: str) -> tuple[list[Example], Faults]:
    """Read the examples of a file; a label column in a test set is ignored.

    Raises:
        ValueError: the file is not UTF-8, its header lacks the task's columns, or it has no example; more than 1 in 100
            lines cannot be used, or any line of a test set, where every line needs a prediction.
    """
    lines, faults = _lines(path, read_bytes(path)), Faults()
    if lines and lines[0].startswith("\ufeff"):
        lines[0], faults.bom = lines[0][1:], True
    header = task.plain.get(stem)
    first = 1 if header else 2
    if header is None:
        header, lines = tuple(lines[0].split("\t")) if lines else (), lines[1:]
    labelled = stem not in task.test
    places = _places(path, header, [*task.sentences, *([task.label] if labelled else [])])
    examples = []
    for number, line in enumerate(lines):
        fields = line.split("\t")
        faults.quotes += any(part.startswith('"') for part in fields)
        if len(fields) != len(header):
            faults.columns.append(number + first)
            continue
        found = [fields[place] for place in places]
        label = _label(task, found[-1]) if labelled else None
        sentences = tuple(text.strip() for text in found[: len(task.sentences)])
        if labelled and label is None:
            faults.label.append(number + first)
        else:
            faults.empty += not all(sentences)
            examples.append(Example(number, sentences, label))
    _check(path, faults, len(lines), labelled)
    return examples, faults


def read_bytes(path: PathLike) -> bytes:
    """Return the bytes of a file, uncompressed if its name ends in ``.gz``.

    Raises:
        ValueError: damaged or truncated.
    """
    data = Path(path).read_bytes()
    try:
        return gzip.decompress(data) if str(path).endswith(".gz") else data
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{path}: a damaged or truncated file ({error})") from error


def _lines(path: PathLike, data: bytes) -> list[str]:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not a UTF-8 text file ({error})") from error
    # Only \n ends a line: a sentence may contain a lone carriage return or U+2028.
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []


def _places(path: PathLike, header: Sequence[str], wanted: list[str]) -> list[int]:
    missing = [name for name in wanted if header.count(name) != 1]
    if missing:
        raise ValueError(
            f"{path}: the first line must name the columns {', '.join(wanted)}, each once; not so "
            f"{', '.join(missing)} (it reads: {' | '.join(header)[:200]})"
        )
    return [header.index(name) for name in wanted]


def _label(task: GlueTask, text: str) -> Optional[str | float]:
    if not task.is_regression:
        return text if text in task.labels else None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value <= 5 else None


def _check(path: PathLike, faults: Faults, lines: int, labelled: bool) -> None:
    if lines == faults.left_out:
        raise ValueError(f"{path}: no line that can be used ({str(faults) or 'the file is empty'})")
    if faults.left_out > (MOST_FAULTS * lines if labelled else 0):
        why = "more than 1 in 100" if labelled else "every line of a test set has to be answered"
        raise ValueError(f"{path}: {faults}; {why}: correct the file")
