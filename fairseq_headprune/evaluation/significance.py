"""Paired bootstrap resampling (Koehn 2004) on cached sentence statistics, for many systems at once."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fairseq_headprune.errors import errors_of
from fairseq_headprune.evaluation.p_values import LEAST, holm, resampled_p
from fairseq_headprune.evaluation.statistics import check_lengths, corpus_metric

#: Differences below this many points are rounding and count as ties.
TIE = 1e-9

#: Maximum number of entries of the matrix of counts in memory at once (float64).
_CHUNK = 4_000_000

#: Maximum number of counts that are kept for the next comparison of the same study, most in one byte each.
_KEPT = 256_000_000


@dataclasses.dataclass(frozen=True)
class SystemResult:
    """One system against the baseline, the first system.

    Attributes:
        score: on the whole test set, 0 to 100.
        ci: percentile interval of the score over the resamples.
        wins, losses, ties: shares of the resamples where the system is better than, worse than, or equal to the
            baseline; they sum to 1.
        p: two-sided, min(1, 2 (b + 1) / (n + 1)): b of the n resamples have a delta = system - baseline of 0 or of
            the rarer sign. It is never 0; with b = 0 it is only a bound.
        p_holm: p after Holm's correction over all systems but the baseline.
    """

    name: str
    score: float
    ci: tuple[float, float]
    wins: float
    losses: float
    ties: float
    p: float
    p_holm: float

    def alone(self) -> dict[str, Any]:
        """Return all but the name and ``p_holm``, which depends on the other systems."""
        return {name: getattr(self, name) for name in ("score", "ci", "wins", "losses", "ties", "p")}


def paired_bootstrap(
    metric: str,
    references: Sequence[str],
    systems: Mapping[str, Sequence[str]],
    resamples: int = LEAST,
    seed: int = 12345,
    alpha_ci: float = 0.05,
    sample_fraction: float = 1.0,
    tokenize: str = "13a",
) -> list[SystemResult]:
    """Compare every system with the first one; see :func:`bootstrap_statistics` for the method.

    Args:
        metric: ``bleu`` or ``chrf``; ``tokenize`` as for :func:`~.statistics.corpus_metric`.
        references: one string per sentence.
        systems: name -> one string per sentence.

    Raises:
        ValueError: a system's number of sentences differs from the references' (checked for all systems before
            anything is scored), fewer than two sentences, no system, or a setting out of range.
    """
    for name, hypotheses in systems.items():
        with errors_of(name):
            check_lengths(len(hypotheses), len(references))
    bound = corpus_metric(metric, references, tokenize)
    statistics = {name: bound.extract(hypotheses) for name, hypotheses in systems.items()}
    return bootstrap_statistics(bound.score, statistics, resamples, seed, alpha_ci, sample_fraction)


def bootstrap_statistics(
    score: Callable[[np.ndarray], np.ndarray],
    statistics: Mapping[str, np.ndarray],
    resamples: int = LEAST,
    seed: int = 12345,
    alpha_ci: float = 0.05,
    sample_fraction: float = 1.0,
) -> list[SystemResult]:
    """Compare every system with the first one, given extracted statistics [sentences, stats].

    ``resamples`` times, ``sample_fraction`` of the test set is drawn with replacement, with the same draws for every
    system. At least two sentences are needed: a single one has no variance.

    Args:
        score: sums of statistics (…, stats) -> scores (…).
        seed: of numpy's default generator; 0 is a seed like any other.
        alpha_ci: the interval of the score covers 1 - alpha_ci of the resamples.

    Raises:
        ValueError: as for :func:`paired_bootstrap`.
    """
    size = _check(statistics, resamples, seed, alpha_ci, sample_fraction)
    names = list(statistics)
    # [sentences, systems * stats]: one matrix product sums the statistics of all systems.
    matrix = np.concatenate([statistics[name] for name in names], axis=1).astype(np.float64)
    sentences = len(matrix)
    scores = score(matrix.sum(axis=0).reshape(len(names), -1))  # [systems]
    drawn = [
        score((counts @ matrix).reshape(len(counts), len(names), -1))
        for counts in draw_counts(sentences, size, resamples, seed)
    ]
    sampled = np.concatenate(drawn)  # [resamples, systems]
    delta = sampled - sampled[:, :1]
    wins, losses = (delta > TIE).sum(axis=0), (delta < -TIE).sum(axis=0)  # [systems], numbers of resamples
    ties = resamples - wins - losses
    p_values = [resampled_p(int(against), resamples) for against in np.minimum(losses, wins) + ties]
    corrected = [1.0, *holm(p_values[1:])]
    low, high = np.quantile(sampled, [alpha_ci / 2, 1 - alpha_ci / 2], axis=0)
    shares = (number / resamples for number in (wins, losses, ties))
    rows = np.column_stack([scores, low, high, *shares, p_values, corrected]).tolist()
    return [SystemResult(name, row[0], (row[1], row[2]), *row[3:]) for name, row in zip(names, rows, strict=True)]


def draw_counts(sentences: int, size: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Yield how often each sentence was drawn, float64 [some resamples, sentences], until all resamples are done.

    Every row sums to ``size``: draws with replacement, each sentence equally likely.
    """
    draws = _kept_draws if resamples * sentences <= _KEPT else _draws
    for counts in draws(sentences, size, resamples, seed):
        yield counts.astype(np.float64)


@functools.lru_cache(maxsize=1)
def _kept_draws(*settings: int) -> list[np.ndarray]:
    """The draws of a study, which are the same for all its cells."""
    return list(_draws(*settings))


def _draws(sentences: int, size: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Yield the counts as integers, in one byte each where they fit."""
    generator = np.random.default_rng(seed)
    rows = max(1, _CHUNK // max(sentences, size))
    for first in range(0, resamples, rows):
        count = min(rows, resamples - first)
        indices = generator.integers(0, sentences, size=(count, size))
        indices += np.arange(count)[:, None] * sentences
        counts = np.bincount(indices.ravel(), minlength=count * sentences).reshape(count, sentences)
        yield counts.astype(np.uint8) if counts.max() < 256 else counts


def sample_size(sentences: int, sample_fraction: float) -> int:
    """Return how many sentences one resample has: the fraction rounded down, at least 1."""
    return max(1, int(sentences * sample_fraction))


def _check(
    statistics: Mapping[str, np.ndarray], resamples: int, seed: int, alpha_ci: float, sample_fraction: float
) -> int:
    if not statistics:
        raise ValueError("no systems to compare; the first one is the baseline")
    lengths = {name: len(rows) for name, rows in statistics.items()}
    baseline, sentences = next(iter(lengths.items()))
    for name, length in lengths.items():
        if length != sentences:
            raise ValueError(f"{name} has {length} sentences, the baseline {baseline} has {sentences}")
    if sentences < 2:
        raise ValueError(f"the paired bootstrap needs at least 2 sentences, got {sentences}: p is not defined")
    if resamples < 1:
        raise ValueError(f"resamples must be at least 1, got {resamples}")
    if seed < 0:
        raise ValueError(f"the seed must be 0 or more, got {seed}")
    if not 0 < alpha_ci < 1:
        raise ValueError(f"alpha_ci must be between 0 and 1, got {alpha_ci}")
    if not 0 < sample_fraction <= 1:
        raise ValueError(f"the sample fraction must be above 0 and at most 1, got {sample_fraction}")
    return sample_size(sentences, sample_fraction)
