"""The paired bootstrap against full enumeration, closed forms, and compare-mt."""

import itertools
import math
import random

import numpy as np
import pytest
from sacrebleu.metrics import BLEU

from fairseq_headprune.evaluation.compare_mt import compare_mt_bootstrap
from fairseq_headprune.evaluation.significance import _kept_draws, bootstrap_statistics, draw_counts, paired_bootstrap

REFERENCES = [
    "the cat sat on the mat today", "a dog runs very fast in the park", "we saw it all before noon",
    "one two three four five",
]  # fmt: skip
LEFT = [
    "the cat sat on a mat today", "a dog runs very fast in a park", "we saw it all before noon",
    "one two three four six",
]  # fmt: skip
RIGHT = [
    "the cat sat on the mat now", "a dog runs fast in the park", "we saw this all before noon",
    "one two three four five",
]  # fmt: skip


def _words(sentences: int, seed: int) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(chance.choices("abcdefghijklmnop", k=chance.randint(8, 15))) for _ in range(sentences)]


def _drop(text: list[str], share: float, seed: int) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(["a", *(word for word in line.split() if chance.random() > share)]) for line in text]


def test_all_256_resamples_of_four_sentences():
    # Source: every one of the 4^4 equally likely resamples, scored by sacrebleu.
    bleu = BLEU()
    deltas, scores = [], []
    for draw in itertools.product(range(4), repeat=4):
        references = [[REFERENCES[i] for i in draw]]
        left = bleu.corpus_score([LEFT[i] for i in draw], references).score
        scores.append(bleu.corpus_score([RIGHT[i] for i in draw], references).score)
        deltas.append(scores[-1] - left)
    wins, losses = np.mean(np.array(deltas) > 1e-9), np.mean(np.array(deltas) < -1e-9)
    ties = 1 - wins - losses
    assert min(wins, losses) > 0.02
    resamples = 20000
    result = paired_bootstrap("bleu", REFERENCES, {"left": LEFT, "right": RIGHT}, resamples, seed=0)[1]
    # Bound: five standard deviations of a share of 20,000 draws.
    for share, exact in ((result.wins, wins), (result.losses, losses), (result.ties, ties)):
        assert abs(share - exact) <= 5 * math.sqrt(exact * (1 - exact) / resamples) + 1e-12
    exact_p = min(1, 2 * min(losses + ties, wins + ties))  # the limit of 2 (b + 1) / (n + 1)
    half = exact_p / 2
    assert abs(result.p - exact_p) <= 10 * math.sqrt(half * (1 - half) / resamples)
    assert result.score == pytest.approx(bleu.corpus_score(RIGHT, [REFERENCES]).score, abs=1e-9)
    # The scores of 256 resamples are few: the ends of the interval are among them, or between two neighbours.
    low, high = np.quantile(scores, [0.02, 0.98])
    assert result.ci[0] <= low + 1e-9 and high - 1e-9 <= result.ci[1]
    assert min(scores) - 1e-9 <= result.ci[0] and result.ci[1] <= max(scores) + 1e-9


def test_draws_have_full_size_and_repeats():
    counts = np.concatenate(list(draw_counts(4, 4, 500, seed=0)))
    assert counts.shape == (500, 4)
    assert (counts.sum(axis=1) == 4).all()
    # P[a resample of 4 has no repeat] = 4!/4^4 = 0.094 (closed form); bound of five standard deviations.
    unrepeated = (counts.max(axis=1) == 1).mean()
    assert abs(unrepeated - 24 / 256) <= 5 * math.sqrt(24 / 256 * (1 - 24 / 256) / 500)


def test_mean_and_variance_of_resampled_means():
    values = np.array([1.0, 2.0, 4.0, 9.0])
    resamples = 20000
    means = np.concatenate(list(draw_counts(4, 4, resamples, seed=1))) @ values / 4
    # Source: closed form; the mean of means is the mean, their variance s^2 (n - 1) / n / n.
    variance = values.var(ddof=1) * 3 / 4 / 4
    assert abs(means.mean() - values.mean()) <= 5 * math.sqrt(variance / resamples)
    assert means.var() == pytest.approx(variance, rel=0.05)


def test_draws_do_not_depend_on_the_chunks(monkeypatch):
    whole = np.concatenate(list(draw_counts(50, 50, 30, seed=3)))
    _kept_draws.cache_clear()
    monkeypatch.setattr("fairseq_headprune.evaluation.significance._CHUNK", 100)
    chunks = list(draw_counts(50, 50, 30, seed=3))
    assert len(chunks) == 15
    # The same generator gives the same stream in pieces, kept for the next comparison or not.
    assert np.array_equal(np.concatenate(chunks), whole)
    monkeypatch.setattr("fairseq_headprune.evaluation.significance._KEPT", 0)
    assert np.array_equal(np.concatenate(list(draw_counts(50, 50, 30, seed=3))), whole)


def test_swapped_systems_swap_wins_and_keep_p():
    references = _words(30, 1)
    better, worse = _drop(references, 0.1, 2), _drop(references, 0.2, 3)
    forth = paired_bootstrap("bleu", references, {"worse": worse, "better": better}, 500, seed=5)[1]
    back = paired_bootstrap("bleu", references, {"better": better, "worse": worse}, 500, seed=5)[1]
    # Source: definition of the two-sided p.
    assert (forth.wins, forth.losses, forth.p) == (back.losses, back.wins, back.p)
    assert forth.wins > 0.9
    assert forth.p == 2 * (round(500 * (1 - forth.wins)) + 1) / 501


def test_identical_systems_do_not_differ():
    references = _words(20, 4)
    system = _drop(references, 0.2, 5)
    baseline, same = paired_bootstrap("chrf", references, {"a": system, "b": list(system)}, 200)
    # Source: definition; the baseline against itself is the same case.
    for result in (baseline, same):
        assert (result.wins, result.losses, result.ties, result.p, result.p_holm) == (0, 0, 1, 1, 1)
    assert baseline.ci == same.ci


def test_shares_sum_to_one_and_holm_counts_the_other_systems():
    references = _words(40, 6)
    systems = {str(share): _drop(references, share, 7) for share in (0.1, 0.12, 0.14, 0.3)}
    results = paired_bootstrap("bleu", references, systems, 300)
    for result in results:
        assert result.wins + result.losses + result.ties == pytest.approx(1, abs=1e-12)
        assert result.ci[0] <= result.score <= result.ci[1]
    smallest = min(results[1:], key=lambda result: result.p)
    # Source: Holm's first step multiplies by the number of hypotheses, which is 3 here.
    assert smallest.p_holm == pytest.approx(min(1, 3 * smallest.p))


def test_the_same_draws_for_every_system():
    references = _words(30, 11)
    first, second, third = (_drop(references, share, 12) for share in (0.1, 0.15, 0.2))
    many = paired_bootstrap("bleu", references, {"a": first, "b": second, "c": third}, 200, seed=4)
    pair = paired_bootstrap("bleu", references, {"a": first, "c": third}, 200, seed=4)
    assert (many[2].wins, many[2].p, many[2].ci) == (pair[1].wins, pair[1].p, pair[1].ci)


def test_half_size_samples_give_compare_mts_win_shares():
    references = _words(60, 13)
    baseline, system = _drop(references, 0.15, 14), _drop(references, 0.17, 15)
    ours = paired_bootstrap("bleu", references, {"a": baseline, "b": system}, 4000, seed=1, sample_fraction=0.5)[1]
    tokens = [[line.split() for line in text] for text in (references, baseline, system)]
    theirs = compare_mt_bootstrap(*tokens, resamples=1000, seed=1)
    # Source: compare-mt, another program. Bound: five standard deviations of the difference of two shares.
    for share, other in ((ours.wins, theirs.wins), (ours.losses, theirs.losses)):
        assert abs(share - other) <= 5 * math.sqrt(share * (1 - share) * (1 / 4000 + 1 / 1000))
    assert 0.05 < ours.wins < 0.95
    assert theirs.score == pytest.approx(ours.score, abs=1e-9)
    # compare-mt counts the losses as ties too.
    assert theirs.wins + theirs.losses + theirs.ties == pytest.approx(1 + theirs.losses)
    assert theirs.wins + theirs.losses + theirs.ties_corrected == pytest.approx(1)


def test_compare_mt_is_repeatable_and_leaves_numpys_generator_alone():
    tokens = [[line.split() for line in text] for text in (REFERENCES, LEFT, RIGHT)]
    np.random.seed(3)
    expected = np.random.random()
    np.random.seed(3)
    first = compare_mt_bootstrap(*tokens, resamples=50, seed=0)
    assert np.random.random() == expected
    assert compare_mt_bootstrap(*tokens, resamples=50, seed=0) == first
    with pytest.raises(ValueError, match="is empty"):
        compare_mt_bootstrap(*(text[:1] for text in tokens))


def test_empty_hypotheses_score_zero():
    baseline, empty = paired_bootstrap("bleu", REFERENCES, {"a": LEFT, "b": [""] * 4}, 100)
    # Source: definition; the empty translation loses every resample.
    assert (empty.score, empty.ci, empty.losses, empty.p) == (0, (0, 0), 1, 2 / 101)


@pytest.mark.parametrize(
    "references, systems, message",
    [
        (["a"], {"x": ["a", "b"]}, "x: 2 hypotheses for 1 references"),
        (["a", "b"], {"x": ["a", "b"], "y": ["a"]}, "y: 1 hypotheses for 2 references"),
        ([], {"x": []}, "0 hypotheses for 0 references"),
        ([["a", "b"]], {"x": ["a", "b"]}, "2 hypotheses for 1 references"),
        (["a"], {"x": ["a"]}, "at least 2 sentences, got 1"),
        (["a", "b"], {}, "no systems"),
    ],
)
def test_wrong_texts_are_refused(references, systems, message):
    with pytest.raises(ValueError, match=message):
        paired_bootstrap("bleu", references, systems)


def test_the_interval_covers_the_share_that_was_asked_for():
    # Source: numpy's quantiles of the means of all resamples.
    values = np.random.default_rng(1).normal(size=10)
    system = np.column_stack([values, np.ones(10)])
    [found] = bootstrap_statistics(lambda sums: sums[..., 0] / sums[..., 1], {"a": system}, 200, seed=3, alpha_ci=0.2)
    means = np.concatenate(list(draw_counts(10, 10, 200, 3))) @ values / 10
    assert found.ci == pytest.approx(np.quantile(means, [0.1, 0.9]))
    # Two sentences and one resample are the least.
    assert bootstrap_statistics(lambda sums: sums[..., 0], {"a": system[:2]}, 1)[0].ties == 1


@pytest.mark.parametrize(
    "setting, message",
    [
        ({"resamples": 0}, "resamples must be at least 1, got 0"),
        ({"seed": -1}, "seed must be 0 or more, got -1"),
        ({"alpha_ci": 0.0}, "alpha_ci must be between 0 and 1"),
        ({"alpha_ci": 1.0}, "alpha_ci must be between 0 and 1"),
        ({"sample_fraction": 1.5}, "sample fraction .* got 1.5"),
        ({"sample_fraction": float("nan")}, "sample fraction .* got nan"),
    ],
)
def test_wrong_settings_are_refused(setting, message):
    with pytest.raises(ValueError, match=message):
        paired_bootstrap("bleu", REFERENCES, {"a": LEFT, "b": RIGHT}, **setting)


def test_statistics_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="b has 3 sentences, the baseline a has 2"):
        bootstrap_statistics(lambda sums: sums[..., 0], {"a": np.ones((2, 1)), "b": np.ones((3, 1))})
