"""Sentence statistics and corpus scores against sacrebleu, and tokenised BLEU against a count by hand."""

import math
import random

import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF

from fairseq_headprune.evaluation.statistics import bleu_tokeniser, corpus_metric

WORDS = """the cat sat on a mat, 3.5 1,000-fold "yes" &quot;no&quot; it's x <b> .""".split()


def _text(sentences: int, seed: int, longest: int = 12) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=chance.randint(0, longest))) for _ in range(sentences)]


def _near(text: list[str], seed: int) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(chance.choice(WORDS) if chance.random() < 0.2 else w for w in line.split()) for line in text]


@pytest.mark.parametrize("tokenize", ["13a", "intl", "char", "zh", "none", None])
def test_statistics_are_sacrebleus(tokenize):
    """Of BLEU with its tokenisers, and of chrF."""
    references = _text(60, 1)
    hypotheses = _near(references, 2)
    hypotheses[0], references[1], hypotheses[2], references[2] = "", "", "", ""
    hypotheses[3], references[3] = "abcdefgh", "ab"
    if tokenize is None:
        metric, slow = corpus_metric("chrf", references), CHRF(references=[references])
    else:
        metric = corpus_metric("bleu", references, tokenize)
        slow = BLEU(tokenize=tokenize, references=[references])
    # Source: sacrebleu's own extraction.
    assert metric.extract(hypotheses).tolist() == slow._extract_corpus_statistics(hypotheses, None)
    score = metric.score(metric.extract(hypotheses).sum(axis=0))
    assert score == pytest.approx(slow.corpus_score(hypotheses, None).score, abs=1e-9)
    assert 0 < score < 100
    assert metric.signature == slow.get_signature().format()


@pytest.mark.parametrize("name, slow", [("bleu", BLEU()), ("chrf", CHRF())])
def test_scores_of_small_resamples_with_zero_counts_are_sacrebleus(name, slow):
    references = _text(12, 5, longest=5)
    hypotheses = [line if number % 3 else "q r s t" for number, line in enumerate(_near(references, 6))]
    metric = corpus_metric(name, references)
    statistics = metric.extract(hypotheses)
    draws = np.random.default_rng(0).integers(0, 12, size=(200, 2))
    scores = metric.score(statistics[draws].sum(axis=1))
    # Source: sacrebleu on the sentences of each draw. Draws of two short sentences leave orders without a match
    # ("exp" smoothing), without an n-gram, and without any match at all.
    for draw, score in zip(draws, scores, strict=True):
        expected = slow.corpus_score([hypotheses[i] for i in draw], [[references[i] for i in draw]]).score
        assert score == pytest.approx(expected, abs=1e-9)
    assert (scores == 0).any() and (scores > 0).any()


def test_tokenised_bleu_is_the_count_by_hand():
    references = ["the cat sat on the mat today .", "a dog runs very fast ."]
    hypotheses = ["the cat sat on the the mat .", "a dog runs fast"]
    metric = corpus_metric("bleu", references, "tok")
    # Source: counted by hand. Sentence 1: 7 of 8, 5 of 7, 3 of 6, 2 of 5; sentence 2: 4 of 4, 2 of 3, 1 of 2, 0 of 1;
    # lengths 12 and 14.
    assert metric.extract(hypotheses).sum(axis=0).tolist() == [12, 14, 11, 7, 4, 2, 12, 10, 8, 6]
    # multi-bleu.perl's formula: exp(1 - r/c) times the geometric mean of the precisions.
    expected = 100 * math.exp(1 - 14 / 12) * (11 / 12 * 7 / 10 * 4 / 8 * 2 / 6) ** 0.25
    assert metric.score(metric.extract(hypotheses).sum(axis=0)) == pytest.approx(expected, abs=1e-9)
    for part in ("nrefs:1", "case:mixed", "eff:no", "tok:none", "smooth:none", "version:"):
        assert part in metric.signature


def test_tokenised_bleu_is_not_smoothed_and_splits_at_ascii_blanks_only():
    # No 4-gram matches: 0 without smoothing (definition).
    metric = corpus_metric("bleu", ["a b c d e"], "tok")
    assert metric.score(metric.extract(["a b c x e"]).sum(axis=0)) == 0
    # A no-break space and U+2028 stay inside their token, as for a program that splits bytes.
    assert len(metric.tokens("a\u00a0b c\u2028d")) == 2


def test_13a_word_by_word_is_13a_of_the_line():
    chance = random.Random(7)
    pieces = [*" .,-&;<>'\"!$%()/ab019é\u00a0\u2028\t", "&quot;", "&amp;", "<skipped>", "1.5", "..", "-\n", " . "]
    tokens = bleu_tokeniser("13a")
    whole = BLEU(tokenize="13a")._preprocess_segment
    for _ in range(3000):
        line = "".join(chance.choices(pieces, k=chance.randint(0, 20)))
        # Source: sacrebleu's tokeniser on the whole line.
        assert list(tokens(line)) == whole(line).split()


def test_many_sums_at_once_keep_their_shape():
    references = _text(5, 8)
    metric = corpus_metric("bleu", references)
    sums = np.broadcast_to(metric.extract(references).sum(axis=0), (2, 3, 10))
    assert metric.score(sums).shape == (2, 3)
    assert metric.score(sums) == pytest.approx(100)  # a text against itself (definition)


@pytest.mark.parametrize(
    "metric, message",
    [
        (("bleu", []), "no references"),
        (("ter", ["a"]), "unknown metric 'ter'; known are bleu, chrf"),
        (("bleu", ["a"], "14a"), "unknown tokeniser '14a'; known are .*13a"),
        (("bleu", [["a"], ["b"]]), "number 0 is a list"),
        (("bleu", "a b"), "got one string"),
        (("bleu", ["a"]), "2 hypotheses for 1"),
        (("bleu", ["a", "b", "c"]), "2 hypotheses for 3"),
    ],
)
def test_wrong_input_is_named(metric, message):
    with pytest.raises(ValueError, match=message):
        corpus_metric(*metric).extract(["a", "b"])
