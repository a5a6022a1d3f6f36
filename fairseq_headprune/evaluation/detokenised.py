"""What kind of text is compared: detokenised, tokenised or escaped (a guess), or still in subwords (an error)."""

import re
from collections.abc import Sequence

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
