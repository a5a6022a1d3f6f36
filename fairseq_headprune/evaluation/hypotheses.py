"""Read references and translations: plain text, or the output of fairseq-generate and fairseq-interactive."""

import dataclasses
import re
from collections.abc import Iterable

from fairseq_headprune.files import PathLike, read_lines

#: fairseq's line prefix: S(ource), T(arget), H(ypothesis) or D(etokenised hypothesis), and the sentence id.
_LINE = re.compile(r"([STHD])-(\d+)\t")

#: Maximum number of missing ids that an error lists.
_NAMED = 5


@dataclasses.dataclass(frozen=True)
class Sentences:
    """The sentences of a file in test-set order, and the kind of lines they were read from.

    ``form`` is ``text`` (one sentence per line) or the kind of fairseq's lines: ``H``, ``D`` or ``T``.
    """

    lines: list[str]
    form: str


def read_systems(path: PathLike) -> Sentences:
    """Read the translations of one system.

    From fairseq's output, read the best hypothesis of each id, from D- lines (detokenised) if there are any and from H-
    lines otherwise, sorted by id.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not UTF-8, or an id has no hypothesis; the message names it.
    """
    return _read(path, "DH")


def read_references(path: PathLike) -> Sentences:
    """Read references: one per line, or the targets (T-) of fairseq-generate's output sorted by id.

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
    """Whether this is fairseq's output: it has a line of the form ``H-<id><tab><score><tab>``."""
    return any(re.match(r"H-\d+\t(-?\d|-?inf|nan)[^\t]*\t", line) for line in lines)


def _by_kind(lines: Iterable[str]) -> dict[str, dict[int, str]]:
    # kind -> id -> sentence. Hypotheses have a score before the text; later tabs belong to the text. The first line of
    # an id is its best hypothesis.
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
