"""Read references and translations, and say what kind of text they are.

Files are plain text, or the output of fairseq-generate and fairseq-interactive; text is detokenised, tokenised or
escaped (a guess), or still in subwords (an error).
"""

import dataclasses
import re
from collections.abc import Iterable, Sequence

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


#: Escapes of the Moses tokeniser, "@-@", and the marks of subword-nmt and sentencepiece.
_MARKS = re.compile(r"&(?:apos|quot|amp|lt|gt|bar|#124|#91|#93);|@@(?:\s|$)|\s@-@\s|▁")

#: Marks of subword-nmt and sentencepiece, which are gone once subwords are joined.
_PIECES = re.compile(r"@@(?:\s|$)|▁")

#: A full stop, comma or English clitic with a space before it, and without. (French has spaces before ! ? : ;)
_APART = re.compile(r"\s[.,](?=\s|$)|\w\s'(?:s|t|m|d|re|ve|ll)\b|\sn't\b")
_JOINED = re.compile(r"\w[.,](?=\s|$)|\w'(?:s|t|m|d|re|ve|ll)\b")


def looks_detokenised(sentences: Sequence[str]) -> bool:
    """Return False if 1 sentence in 100 has escapes or subword marks, or most punctuation follows a space."""
    if 100 * sum(1 for sentence in sentences if _MARKS.search(sentence)) >= max(1, len(sentences)):
        return False
    apart = sum(len(_APART.findall(sentence)) for sentence in sentences)
    joined = sum(len(_JOINED.findall(sentence)) for sentence in sentences)
    return apart <= joined


def refuse_marks(name: str, sentences: Sequence[str]) -> None:
    """Check that no sentence has subword marks, which would be scored as text.

    Raises:
        ValueError: some have; the message names the first and how many there are.
    """
    marked = [number for number, sentence in enumerate(sentences, 1) if _PIECES.search(sentence)]
    if marked:
        raise ValueError(
            f"{name}: {len(marked)} of {len(sentences)} sentences have marks of subwords (@@ or ▁; the first is line "
            f"{marked[0]}): join them, with --remove-bpe or --post-process where text is generated, or compare them as "
            "they are with --keep-marks"
        )


def empty_references(sentences: Sequence[str]) -> str:
    """Say how empty references are scored, if there are any."""
    count = sum(not sentence.strip() for sentence in sentences)
    if not count:
        return ""
    return (
        f"{count} of {len(sentences)} references are empty: BLEU counts the words of their translations as wrong, chrF "
        "leaves them out"
    )


def warning(reference: bool, systems: dict[str, bool], tokenises: bool) -> str | None:
    """Return a one-line warning if reference and systems differ in form or tokenised text would be tokenised again.

    Args:
        reference: whether the reference looks detokenised.
        systems: name -> whether the system looks detokenised.
        tokenises: whether the metric expects detokenised text.
    """
    differing = [name for name, detokenised in systems.items() if detokenised != reference]
    if differing:
        words = {True: "detokenised", False: "tokenised, escaped or in pieces"}
        return (
            f"the reference looks {words[reference]}, {', '.join(differing)} {words[not reference]}: "
            "the score compares different kinds of text"
        )
    if tokenises and not reference:
        return "the text looks tokenised, escaped or in pieces: detokenise it, or use --bleu tok for tokenised BLEU"
    return None
