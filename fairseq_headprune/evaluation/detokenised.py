"""Telling detokenised text from text that is tokenised, escaped or still in subword pieces (a guess, for a warning)."""

import re
from collections.abc import Sequence

#: Escapes of the Moses tokeniser, "@-@", and the marks of subword-nmt and sentencepiece.
_MARKS = re.compile(r"&(?:apos|quot|amp|lt|gt|bar|#124|#91|#93);|@@(?:\s|$)|\s@-@\s|▁")

#: A full stop, comma or English clitic with a blank before it, and without. (French has blanks before ! ? : ;)
_APART = re.compile(r"\s[.,](?=\s|$)|\w\s'(?:s|t|m|d|re|ve|ll)\b|\sn't\b")
_JOINED = re.compile(r"\w[.,](?=\s|$)|\w'(?:s|t|m|d|re|ve|ll)\b")


def looks_detokenised(sentences: Sequence[str]) -> bool:
    """Return False when 1 sentence in 100 has escapes or subword marks, or most punctuation stands apart."""
    if 100 * sum(1 for sentence in sentences if _MARKS.search(sentence)) >= max(1, len(sentences)):
        return False
    apart = sum(len(_APART.findall(sentence)) for sentence in sentences)
    joined = sum(len(_JOINED.findall(sentence)) for sentence in sentences)
    return apart <= joined


def warning(reference: bool, systems: dict[str, bool], tokenises: bool) -> str | None:
    """Return one line when the sides differ, or when text that looks tokenised is to be tokenised again.

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
