"""Statistics of sentences, correlation, corrected p and paired tests. Sources: sacrebleu, closed forms, by hand."""

import itertools
import math
import random

import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF

from fairseq_headprune.evaluation.correlation import correlations
from fairseq_headprune.evaluation.p_values import corrected, holm, p_number
from fairseq_headprune.evaluation.paired_tests import mcnemar_exact, paired_t_test
from fairseq_headprune.evaluation.statistics import bleu_tokeniser, corpus_metric
from fairseq_headprune.evaluation.trainings import paired

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


def right(lost, gained, both=3, neither=2):
    """Correctness of a baseline and a system with these numbers of examples."""
    pairs = [(1, 0)] * lost + [(0, 1)] * gained + [(1, 1)] * both + [(0, 0)] * neither
    return [list(column) for column in zip(*pairs, strict=True)]


@pytest.mark.parametrize("lost, gained", [(1, 9), (9, 1), (0, 5), (3, 4), (5, 5), (0, 1)])
def test_mcnemar_is_the_binomial_tail_doubled(lost, gained):
    """2 sum_{k <= min(b, c)} C(b + c, k) / 2^(b + c), at most 1; b = 1, c = 9: 22 / 1024."""
    found, count = mcnemar_exact(*right(lost, gained)), lost + gained
    tail = sum(math.comb(count, k) for k in range(min(lost, gained) + 1)) / 2**count
    assert found.p == found.p_holm == pytest.approx(min(1, 2 * tail), rel=1e-12)
    assert (found.lost, found.gained, found.note) == (lost, gained, "")
    assert {lost, gained} != {1, 9} or found.p == pytest.approx(22 / 1024)


def test_mcnemar_against_all_ways_to_swap_the_systems():
    """The exact permutation test: of 2^7 swaps, how many differ at least as much."""
    base, system = right(1, 6)
    deltas = [b - a for a, b in zip(base, system, strict=True) if a != b]
    swaps = np.array(list(itertools.product((1, -1), repeat=7)))
    assert mcnemar_exact(base, system).p == pytest.approx(np.mean(np.abs(swaps @ deltas) >= 5))


def test_systems_that_are_right_on_the_same_examples():
    found = mcnemar_exact(*right(0, 0))
    assert (found.p, found.lost, found.gained) == (1, 0, 0) and "no example that only one" in found.note


@pytest.mark.parametrize("lost, gained, both, neither", [(1, 9, 3, 2), (4, 4, 1, 0), (2, 5, 40, 10)])
def test_t_of_correctness_from_the_counts(lost, gained, both, neither):
    """With n examples: mean (c - b) / n, sum of squares b + c, t = mean / sqrt(variance / n)."""
    found = paired_t_test(*right(lost, gained, both, neither))
    count, mean = lost + gained + both + neither, (gained - lost) / (lost + gained + both + neither)
    variance = (lost + gained - count * mean**2) / (count - 1)
    assert found.mean_difference == pytest.approx(mean) and found.df == count - 1
    assert found.t == pytest.approx(mean / math.sqrt(variance / count))


def test_p_of_t_in_closed_form():
    """1 degree of freedom: 1 - 2 arctan(t) / pi; 2: 1 - t / sqrt(2 + t^2); the differences are 1, 3 and 0, 0, 1."""
    two = paired_t_test([0, 0], [1, 3])
    assert (two.t, two.mean_difference) == pytest.approx((2, 2))
    assert two.p == pytest.approx(1 - 2 * math.atan(2) / math.pi)
    three = paired_t_test([0, 1, 0], [0, 1, 1])
    assert three.t == pytest.approx(1) and three.p == three.p_holm == pytest.approx(1 - 1 / math.sqrt(3))
    back = paired_t_test([0, 1, 1], [0, 1, 0])
    assert (back.t, back.p) == pytest.approx((-1, three.p))


def test_t_where_all_differences_are_equal():
    same = paired_t_test([0.1, 0.7, 0.3], [0.1, 0.7, 0.3])
    assert (same.t, same.p, same.mean_difference) == (None, 1, 0) and "equal on every example" in same.note
    # 0.1 + 0.2 is not 0.3: rounding is no variance.
    for scale in (1, 1e9):
        rounded = paired_t_test([0.3 * scale] * 3, [(0.1 + 0.2) * scale, 0.3 * scale, 0.3 * scale])
        assert (rounded.t, rounded.p) == (None, 1)
    shifted = paired_t_test([0, 0, 0], [1, 1, 1])
    assert (shifted.t, shifted.p, shifted.mean_difference) == (None, None, 1) and "no variance" in shifted.note


def test_no_p_is_0_however_large_the_effect():
    """McNemar's 2 / 2^2000 is below the smallest float, as is p of a perfect correlation."""
    lost = mcnemar_exact(*right(2000, 0))
    assert 0 < lost.p < 1e-300 and p_number(lost.p) == "<1e-300"
    ordered = correlations([1, 2, 3, 4, 5], [2, 4, 6, 8, 10])
    assert all(0 < found.p for found in ordered.values())
    assert 0 < paired({n: 0 for n in range(500)}, {n: 1000 + 0.001 * (n % 2) for n in range(500)}, 0.3).p < 1e-300


@pytest.mark.parametrize(
    "values, adjusted",
    [
        # Sorted .005 .01 .03 .04, times 4 3 2 1 = .02 .03 .06 .04; the last is raised to the one before.
        ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),
        # 3 x .5 = 1.5 -> 1, and nothing after it can be smaller.
        ([0.5, 0.5, 0.9], [1.0, 1.0, 1.0]),
        ([0.02, 0.02], [0.04, 0.04]),
        ([0.03], [0.03]),
        ([], []),
    ],
)
def test_holm_by_hand(values, adjusted):
    assert holm(values) == pytest.approx(adjusted)


@pytest.mark.parametrize("wrong", [-0.1, 1.1, float("nan")])
def test_values_that_are_no_probabilities_are_refused(wrong):
    with pytest.raises(ValueError, match="between 0 and 1"):
        holm([0.5, wrong])


def test_holm_over_the_systems():
    """p 22/1024, 1 and 2/32 of three systems: times 3, 1 and 2."""
    tests = [mcnemar_exact(*right(*counts)) for counts in ((1, 9), (0, 0), (0, 5))]
    assert [test.p_holm for test in corrected(tests)] == pytest.approx([66 / 1024, 1, 4 / 32])
    assert [test.p for test in corrected(tests)] == pytest.approx([22 / 1024, 1, 2 / 32])


@pytest.mark.parametrize("test, values", [(mcnemar_exact, "1 .right. or 0 .wrong."), (paired_t_test, "finite values")])
def test_what_cannot_be_paired_is_refused(test, values):
    with pytest.raises(ValueError, match="the baseline has 3 examples, the system 2"):
        test([1, 0, 1], [1, 0])
    with pytest.raises(ValueError, match="at least 2 examples, got 1"):
        test([1], [0])
    with pytest.raises(ValueError, match=f"needs {values}"):
        test([1, 0], [1, float("nan")])
    with pytest.raises(ValueError, match="1 .right. or 0 .wrong."):
        mcnemar_exact([1, 0], [2, 0])
