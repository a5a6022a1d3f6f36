"""Sentence statistics of BLEU and chrF that add up to the corpus score, as arrays.

Both metrics are sacrebleu's (Post 2018), with the same statistics and scores, vectorised over systems and sums. The
score of a sum of rows is the corpus score of those sentences, so resampling never tokenises again.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from sacrebleu.metrics import BLEU, CHRF

from fairseq_headprune.evaluation.ngrams import ReferenceNgrams

#: The metrics by name.
METRICS = ("bleu", "chrf")

#: Sentence -> its tokens (any hashable); a string is a sequence of characters.
Tokeniser = Callable[[str], Sequence]

#: Name for tokenised BLEU: the text is tokenised already, only ASCII white space separates tokens.
TOKENISED = "tok"


class Metric:
    """A corpus metric bound to its references, which are tokenised and counted once for all systems.

    Attributes:
        name: ``bleu`` or ``chrf``.
        signature: sacrebleu's signature, which says how the score was computed.
        tokens: sentence -> the tokens that are counted.
        score: sums of statistics (…, stats) -> corpus scores (…), 0 to 100.
        recipe: what :func:`score_of` makes ``score`` of, as JSON values.

    Raises:
        ValueError: the references are not a list of strings, or there are none.
    """

    def __init__(
        self, recipe: Mapping[str, str], signature: str, references: Sequence[str], tokens: Tokeniser, order: int
    ) -> None:
        _check_sentences("references", references)
        if not references:
            raise ValueError("no references (0 sentences): there is nothing to score")
        self.name, self.recipe, self.score = recipe["metric"], dict(recipe), score_of(recipe)
        self.signature, self.tokens = signature, tokens
        self._ngrams = ReferenceNgrams([tokens(sentence) for sentence in references], order)

    def extract(self, hypotheses: Sequence[str]) -> np.ndarray:
        """Return the statistics of one system, int64 [sentences, stats], column for column as sacrebleu's.

        BLEU has 10 columns: hypothesis length, reference length, matches of orders 1-4, n-grams of orders 1-4.
        chrF has 18: n-grams of the hypothesis, of the reference, and matches, for each of the orders 1-6.

        Raises:
            ValueError: not one hypothesis per reference (the message has both lengths), or not strings.
        """
        check_lengths(len(hypotheses), len(self._ngrams.lengths))
        _check_sentences("hypotheses", hypotheses)
        lengths, matches = self._ngrams.match([self.tokens(sentence) for sentence in hypotheses])
        totals = self._ngrams.totals(lengths)
        if self.name == "bleu":
            return np.column_stack([lengths, self._ngrams.lengths, matches, totals])
        # sacrebleu does not count n-grams longer than the reference.
        expected = self._ngrams.totals(self._ngrams.lengths)
        counted = np.where(expected > 0, totals, 0)
        return np.stack([counted, expected, matches], axis=2).reshape(len(lengths), -1)


def corpus_metric(name: str, references: Sequence[str], tokenize: str = "13a") -> Metric:
    """Return a metric bound to its references (one per sentence).

    ``bleu`` is sacrebleu's with one of its tokenisers and "exp" smoothing; with ``tokenize="tok"`` it is tokenised
    BLEU as multi-bleu.perl computes it: no tokenisation, no smoothing. (It differs from sacrebleu's ``none``
    tokeniser only where a sentence has non-ASCII white space, which multi-bleu.perl keeps inside a token.)
    ``chrf`` is sacrebleu's chrF2; it has no tokeniser.

    Raises:
        ValueError: unknown metric or tokeniser, or no references.
    """
    if name == "bleu":
        tokens = bleu_tokeniser(tokenize)
        smooth = "none" if tokenize == TOKENISED else "exp"
        bleu = BLEU(tokenize="none" if tokenize == TOKENISED else tokenize, smooth_method=smooth)
        recipe = {"metric": name, "smooth": smooth}
        return Metric(recipe, _signature(bleu), references, tokens, bleu.max_ngram_order)
    if name == "chrf":
        chrf, recipe = CHRF(), {"metric": name, "smooth": "exp"}
        return Metric(recipe, _signature(chrf), references, characters, chrf.char_order)
    raise ValueError(f"unknown metric {name!r}; known are {', '.join(METRICS)}")


def score_of(recipe: Mapping[str, Any]) -> Callable[[np.ndarray], np.ndarray]:
    """Return the score of a metric of translations by its recipe.

    Raises:
        ValueError: an unknown metric.
    """
    if recipe["metric"] == "bleu":
        return bleu_unsmoothed if recipe["smooth"] == "none" else bleu_smoothed
    if recipe["metric"] == "chrf":
        return chrf_score
    raise ValueError(f"unknown metric {recipe['metric']!r}; known are {', '.join(METRICS)}")


def check_lengths(hypotheses: int, references: int) -> None:
    """Check that a system has one sentence per reference.

    Raises:
        ValueError: the numbers differ or are 0; the message has both.
    """
    if hypotheses != references:
        raise ValueError(f"{hypotheses} hypotheses for {references} references; every sentence needs one of each")
    if not references:
        raise ValueError("0 hypotheses for 0 references: there is nothing to score")


def bleu_smoothed(sums: np.ndarray) -> np.ndarray:
    """Return BLEU with sacrebleu's default smoothing from summed statistics: (…, 10) -> (…).

    The k-th order without a match counts 1/2^k matches ("exp", method 3 of Chen and Cherry 2014); no match of any
    order, or no n-gram of some order, gives 0.
    """
    sums = np.asarray(sums, dtype=np.float64)
    correct, total = sums[..., 2:6], sums[..., 6:10]
    halvings = np.cumsum(correct == 0, axis=-1)
    smoothed = np.where(correct == 0, np.exp2(-halvings), correct)
    defined = np.any(correct > 0, axis=-1) & np.all(total > 0, axis=-1)
    return _bleu(smoothed, sums, np.asarray(defined))


def bleu_unsmoothed(sums: np.ndarray) -> np.ndarray:
    """Return BLEU without smoothing (Papineni et al. 2002) from summed statistics: (…, 10) -> (…).

    An order without a match gives 0.
    """
    sums = np.asarray(sums, dtype=np.float64)
    return _bleu(sums[..., 2:6], sums, np.asarray(np.all(sums[..., 2:6] > 0, axis=-1)))


def _bleu(correct: np.ndarray, sums: np.ndarray, defined: np.ndarray) -> np.ndarray:
    # 100 x brevity penalty x geometric mean of the precisions where defined, otherwise 0.
    hypothesis, reference = sums[..., 0], sums[..., 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        penalty = np.minimum(0.0, 1.0 - reference / hypothesis)
        logs = np.log(correct / sums[..., 6:10]).mean(axis=-1)
        return np.where(defined, 100.0 * np.exp(penalty + logs), 0.0)


def chrf_score(sums: np.ndarray) -> np.ndarray:
    """Return chrF2 (Popović 2015, 2016) from summed statistics: (…, 18) -> (…).

    Precision and recall are averaged over the orders that both sides have, then joined with beta 2.
    """
    sums = np.asarray(sums, dtype=np.float64)
    triples = sums.reshape(*sums.shape[:-1], -1, 3)
    hypothesis, reference, matches = triples[..., 0], triples[..., 1], triples[..., 2]
    used = (hypothesis > 0) & (reference > 0)
    orders = np.maximum(used.sum(axis=-1), 1)
    factor = CHRF.BETA**2
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = np.where(used, matches / hypothesis, 0.0).sum(axis=-1) / orders
        recall = np.where(used, matches / reference, 0.0).sum(axis=-1) / orders
        score = 100.0 * (1 + factor) * precision * recall / (factor * precision + recall)
    return np.where(precision + recall > 0, score, 0.0)


def _signature(metric: BLEU | CHRF) -> str:
    # sacrebleu sets this when it counts references itself.
    metric.num_refs = 1
    return metric.get_signature().format()


def _check_sentences(what: str, sentences: Sequence[str]) -> None:
    if isinstance(sentences, str):
        raise ValueError(f"{what} must be a list with one string a sentence, got one string")
    for number, sentence in enumerate(sentences):
        if not isinstance(sentence, str):
            raise ValueError(f"{what} must be one string a sentence; number {number} is a {type(sentence).__name__}")


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


def _by_words(segment: Callable[[str], str]) -> Tokeniser:
    # 13a looks at one neighbouring character at most, and treats a blank like any character that is no digit and no
    # punctuation mark. So a word's tokens do not depend on its neighbours, and each word is tokenised only once. The
    # exception is "-" before a line feed, which 13a joins.
    of_word = functools.cache(lambda word: tuple(segment(word).split()))

    def tokens(sentence: str) -> list[str]:
        if "\n" in sentence:
            return segment(sentence).split()
        return list(chain.from_iterable(map(of_word, sentence.split())))

    return tokens
