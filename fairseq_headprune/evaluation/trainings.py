"""Statistics over trainings, where a claim is about a method: the unit is a training, not a sentence of one model."""

import math
import statistics
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairseq_headprune.evaluation.p_values import corrected, positive, resampled_p
from fairseq_headprune.evaluation.significance import TIE, draw_counts

#: Differences that vary by less than this share of the scores are equal: it is rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Spread:
    """The scores of several trainings.

    Attributes:
        n: number of trainings.
        mean, sd: mean and standard deviation (n - 1); sd is None for one training.
        ci: 95% interval of the mean by Student's t; None for one training.
    """

    n: int
    mean: float
    sd: float | None
    ci: tuple[float, float] | None


@dataclass(frozen=True)
class Difference:
    """The mean score of some trainings minus that of others.

    Attributes:
        test: ``paired t``, ``Welch's t`` or ``one-sample t``.
        n: number of trainings (or pairs) that are compared.
        mean: of the difference; None if nothing can be compared.
        ci: its 95% interval by Student's t.
        p: two-sided; ``p_equivalent`` is that of TOST, None without a margin. Without a test (fewer than two trainings,
            or differences without variance) all three are None.
        p_holm: p after Holm's correction (:func:`~fairseq_headprune.evaluation.p_values.corrected`).
    """

    test: str
    n: int
    mean: float | None
    ci: tuple[float, float] | None = None
    p: float | None = None
    p_equivalent: float | None = None
    p_holm: float | None = None


def spread(scores: Sequence[float]) -> Spread:
    """Return mean, deviation and 95% interval of the scores of trainings.

    Raises:
        ValueError: there is no score.
    """
    if not scores:
        raise ValueError("there is no training: give at least one score")
    mean = statistics.mean(scores)
    if len(scores) < 2:
        return Spread(1, mean, None, None)
    sd = statistics.stdev(scores)
    return Spread(len(scores), mean, sd, _interval(mean, sd / math.sqrt(len(scores)), len(scores) - 1))


def paired(base: Mapping[Any, float], mine: Mapping[Any, float], margin: float | None = None) -> Difference:
    """Compare two methods over the seeds that both have (paired t-test); other seeds are left out.

    Args:
        base, mine: seed -> score.
        margin: see :func:`_tested`.
    """
    shared = [seed for seed in mine if seed in base]
    differences = [mine[seed] - base[seed] for seed in shared]
    return _one_sample("paired t", differences, [base[seed] for seed in shared], margin)


def against_value(value: float, scores: Sequence[float], margin: float | None = None) -> Difference:
    """Compare the trainings of a method with one fixed score, such as that of the checkpoint they all start from."""
    return _one_sample("one-sample t", [score - value for score in scores], [value], margin)


def welch(base: Sequence[float], mine: Sequence[float], margin: float | None = None) -> Difference:
    """Compare two methods whose trainings share no seeds (Welch 1947); each needs two trainings."""
    n = min(len(base), len(mine))
    mean = statistics.mean(mine) - statistics.mean(base) if n else None
    parts = [statistics.variance(side) / len(side) for side in (base, mine) if len(side) > 1]
    if mean is None or len(parts) < 2 or not sum(parts) > (_ROUNDING * max(map(abs, [*base, *mine]))) ** 2:
        return Difference("Welch's t", n, mean)
    df = sum(parts) ** 2 / sum(part**2 / (len(side) - 1) for part, side in zip(parts, (base, mine), strict=True))
    return _tested("Welch's t", n, mean, math.sqrt(sum(parts)), df, margin)


def hierarchical_bootstrap(
    score: Callable[[np.ndarray], np.ndarray],
    base: Sequence[np.ndarray],
    mine: Sequence[np.ndarray],
    resamples: int,
    seed: int,
) -> dict[str, Any]:
    """Resample trainings and sentences together, and return the difference of two methods' mean scores.

    All trainings answer the same sentences, so that a resample draws sentences once for all of them, and trainings
    independently of that (the pigeonhole bootstrap, Owen 2007). Of n trainings n - 1 are drawn, which makes the
    variance over trainings unbiased (Rao and Wu 1988).

    Args:
        score: sums of statistics (…, stats) -> scores (…).
        base, mine: statistics (sentences, stats) of each training; the k-th of both have the same seed.

    Returns:
        ``difference``, ``ci`` (the percentile interval of 95%), ``p`` (two-sided), ``n``.

    Raises:
        ValueError: fewer than two trainings, or different numbers of them.
    """
    n = len(mine)
    if n < 2 or len(base) != n:
        raise ValueError(f"{len(base)} and {n} trainings: the bootstrap over trainings needs two or more pairs")
    matrix = np.concatenate([*mine, *base], axis=1).astype(np.float64)

    def differences(sums: np.ndarray) -> np.ndarray:
        scores = score(sums.reshape(len(sums), 2 * n, -1))
        return scores[:, :n] - scores[:, n:]  # [resamples, trainings]

    counts = draw_counts(len(matrix), len(matrix), resamples, seed)
    drawn = np.concatenate([differences(some @ matrix) for some in counts])
    # Another stream than that of the sentences.
    weights = np.random.default_rng([seed, n]).multinomial(n - 1, np.full(n, 1 / n), size=resamples)
    found = (drawn * weights).sum(axis=1) / (n - 1)
    low, high = np.quantile(found, [0.025, 0.975])
    against = min(int((found <= TIE).sum()), int((found >= -TIE).sum()))
    difference = float(differences(matrix.sum(axis=0)[None]).mean())
    return {"difference": difference, "ci": [float(low), float(high)], "p": resampled_p(against, resamples), "n": n}


def mixed_model(scores: Mapping[str, Mapping[Any, float]], reference: str) -> dict[str, Difference]:
    """Compare methods over seeds by a mixed-effects model: score = method (fixed) + seed (random) + rest.

    Only seeds that every method has are used. The model is fitted by REML (statsmodels' MixedLM); p and intervals are
    of Student's t with (seeds - 1)(methods - 1) degrees of freedom, exact for such a balanced design unless seeds
    explain nothing.

    Args:
        scores: method -> seed -> score.
        reference: the method that the others are compared with.

    Returns:
        method -> its difference from the reference, with Holm's correction over the methods.

    Raises:
        ValueError: fewer than two methods or two seeds that all have.
        ImportError: statsmodels is not installed.
    """
    others = [method for method in scores if method != reference]
    shared = [seed for seed in scores[reference] if all(seed in of_seed for of_seed in scores.values())]
    if not others or len(shared) < 2:
        raise ValueError(f"{len(scores)} methods share {len(shared)} seeds: a mixed model needs two of both")
    try:
        from statsmodels.regression.mixed_linear_model import MixedLM
    except ImportError as error:
        raise ImportError("the mixed-effects model needs statsmodels: pip install statsmodels") from error
    methods = [reference, *others]
    values = np.array([scores[method][seed] for method in methods for seed in shared])
    which = np.repeat(np.arange(len(methods)), len(shared))
    fixed = np.column_stack([np.ones(len(values)), *(which == k for k in range(1, len(methods)))]).astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a variance of 0 over seeds is at the edge of what is possible, and no fault
        # Other methods follow a gradient, which fails at that edge.
        fitted = MixedLM(values, fixed, groups=np.tile(shared, len(methods))).fit(reml=True, method="powell")
    df, n = (len(shared) - 1) * (len(methods) - 1), len(shared)
    means, errors = np.asarray(fitted.fe_params)[1:], np.asarray(fitted.bse_fe)[1:]
    found = [
        _tested("mixed model", n, float(mean), float(error), df, None)
        if np.isfinite(error) and error > _ROUNDING * np.abs(values).max()
        else Difference("mixed model", n, float(mean))
        for mean, error in zip(means, errors, strict=True)
    ]
    return dict(zip(others, corrected(found), strict=True))


def _one_sample(test: str, differences: Sequence[float], base: Sequence[float], margin: float | None) -> Difference:
    if not differences:
        return Difference(test, 0, None)
    n, mean = len(differences), statistics.mean(differences)
    size = max(map(abs, [*differences, *base]))
    if n < 2 or max(differences) - min(differences) <= _ROUNDING * size:
        return Difference(test, n, mean)
    return _tested(test, n, mean, statistics.stdev(differences) / math.sqrt(n), n - 1, margin)


def _tested(test: str, n: int, mean: float, error: float, df: float, margin: float | None) -> Difference:
    """Test a difference by Student's t.

    Args:
        error, df: standard error and degrees of freedom.
        margin: equivalence within -margin … +margin is tested by two one-sided tests (TOST, Schuirmann 1987), whose p
            is the larger of both.
    """
    from scipy.special import stdtr  # slow to import: not for --help

    p = positive(float(2 * stdtr(df, -abs(mean) / error)))
    equivalent = None if margin is None else positive(float(stdtr(df, (abs(mean) - margin) / error)))
    return Difference(test, n, mean, _interval(mean, error, df), p, equivalent)


def _interval(mean: float, error: float, df: float) -> tuple[float, float]:
    from scipy.special import stdtrit

    reach = float(stdtrit(df, 0.975)) * error
    return mean - reach, mean + reach
