"""Split a sentence into the tokens a metric counts, with sacrebleu's tokenisers and fast paths for many systems."""

from collections.abc import Callable, Sequence
from itertools import chain

from sacrebleu.metrics import BLEU

#: Sentence -> its tokens (any hashable); a string is a sequence of characters.
Tokeniser = Callable[[str], Sequence]

#: Name for tokenised BLEU: the text is tokenised already, only ASCII white space separates tokens.
TOKENISED = "tok"


def tokeniser_names() -> list[str]:
    """Return every name :func:`bleu_tokeniser` takes."""
    return [*BLEU.TOKENIZERS, TOKENISED]


def bleu_tokeniser(name: str) -> Tokeniser:
    """Return a function that splits a sentence into BLEU's tokens.

    ``tok`` splits at ASCII white space only, as multi-bleu.perl does on bytes; every other name is sacrebleu's.

    Raises:
        ValueError: the name is unknown; the message lists the known ones.
    """
    if name not in tokeniser_names():
        raise ValueError(f"unknown tokeniser {name!r}; known are {', '.join(tokeniser_names())}")
    if name == TOKENISED:
        return lambda sentence: sentence.encode("utf-8", "surrogatepass").split()
    segment = BLEU(tokenize=name)._preprocess_segment
    if name == "13a":
        return _by_words(segment)
    return lambda sentence: segment(sentence).split()


def characters(sentence: str) -> str:
    """Return chrF's tokens: the characters of the sentence without white space."""
    return "".join(sentence.split())


class _Words(dict):
    """A cache: word, as separated by white space -> its tokens."""

    def __init__(self, segment: Callable[[str], str]) -> None:
        super().__init__()
        self.segment = segment

    def __missing__(self, word: str) -> tuple[str, ...]:
        tokens = self[word] = tuple(self.segment(word).split())
        return tokens


def _by_words(segment: Callable[[str], str]) -> Tokeniser:
    # 13a looks at one neighbouring character at most, and treats a blank like any character that is no digit and no
    # punctuation mark. So a word's tokens do not depend on its neighbours, and each word is tokenised only once. The
    # exception is "-" before a line feed, which 13a joins.
    words = _Words(segment)

    def tokens(sentence: str) -> list[str]:
        if "\n" in sentence:
            return segment(sentence).split()
        return list(chain.from_iterable(map(words.__getitem__, sentence.split())))

    return tokens
