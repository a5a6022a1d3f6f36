"""Reading references and translations: plain text, or what fairseq-generate and fairseq-interactive print."""

import dataclasses
import re
from collections.abc import Iterable

from fairseq_headprune.files import PathLike, read_lines

#: What fairseq prints before a sentence: source, target, hypothesis, detokenised hypothesis; then the id.
_LINE = re.compile(r"([STHD])-(\d+)\t")

#: How many missing ids an error names.
_NAMED = 5


@dataclasses.dataclass(frozen=True)
class Sentences:
    """The sentences of a file in test-set order, and which lines they came from.

    ``form`` is ``text`` (one sentence a line) or the kind of fairseq's lines: ``H``, ``D`` or ``T``.
    """

    lines: list[str]
    form: str


def read_systems(path: PathLike) -> Sentences:
    """Read the translations of one system.

    In fairseq's output the best hypothesis of each id is taken, detokenised (D-) when the file has such lines and
    H- otherwise, and put in the order of the ids.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not UTF-8, or an id has no hypothesis; the message names it.
    """
    return _read(path, "DH")


def read_references(path: PathLike) -> Sentences:
    """Read references: one a line, or the targets (T-) of fairseq-generate's output in the order of the ids.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not UTF-8, or an id has no target; the message names it.
    """
    return _read(path, "T")


def _read(path: PathLike, kinds: str) -> Sentences:
    lines = read_lines(path)
    if not is_generated(lines):
        return Sentences(lines, "text")
    found = _by_kind(lines)
    kind = next((kind for kind in kinds if found[kind]), kinds[-1])
    ids = set().union(*found.values())
    missing = [number for number in range(max(ids) + 1) if number not in found[kind]]
    if missing:
        named = ", ".join(map(str, missing[:_NAMED])) + (", …" if len(missing) > _NAMED else "")
        raise ValueError(
            f"{path}: no {kind}- line for id {named} ({len(missing)} of {max(ids) + 1} sentences); "
            "the output is cut short, or fairseq-generate left a batch out: run it with "
            "--required-batch-size-multiple 1"
        )
    return Sentences([found[kind][number] for number in range(max(ids) + 1)], kind)


def is_generated(lines: Iterable[str]) -> bool:
    """Whether this is fairseq's output, not plain text: it has a line of the form ``H-<id><tab><score><tab>``."""
    return any(re.match(r"H-\d+\t(-?\d|-?inf|nan)[^\t]*\t", line) for line in lines)


def _by_kind(lines: Iterable[str]) -> dict[str, dict[int, str]]:
    # kind -> id -> sentence. Hypotheses have a score before the text; a tab further on belongs to the text. The
    # first line of an id is its best hypothesis.
    found: dict[str, dict[int, str]] = {kind: {} for kind in "STHD"}
    for line in lines:
        match = _LINE.match(line)
        if match is None:
            continue
        kind, number, text = match[1], int(match[2]), line[match.end() :]
        if kind in "HD":
            text = text.partition("\t")[2]
        found[kind].setdefault(number, text)
    return found
