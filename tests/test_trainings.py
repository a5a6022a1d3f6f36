"""Statistics over trainings: against scipy, statsmodels, closed forms, and simulations of their errors."""

import numpy as np
import pytest
from scipy import stats

from fairseq_headprune.evaluation import trainings
from fairseq_headprune.evaluation.p_values import corrected, holm
from fairseq_headprune.evaluation.significance import bootstrap_statistics
from fairseq_headprune.evaluation.trainings import (
    against_value,
    hierarchical_bootstrap,
    mixed_model,
    paired,
    spread,
    welch,
)

BASE, MINE = [40.1, 39.4, 40.9, 40.2], [38.0, 38.3, 39.9, 38.1]


def mean(sums):
    """A score: mean over sentences of the first statistic, whose second one counts sentences."""
    return sums[..., 0] / sums[..., 1]


def system(values):
    return np.column_stack([values, np.ones(len(values))])


def by_seed(scores):
    return dict(enumerate(scores, 1))


def test_mean_deviation_and_interval():
    # Source: t with 2 degrees of freedom is 4.3027 (a table): 20 -+ 4.3027 x 2 / sqrt(3).
    found = spread([18.0, 20.0, 22.0])
    assert (found.n, found.mean, found.sd) == (3, 20.0, 2.0) and found.ci == pytest.approx((15.032, 24.968), abs=1e-3)
    assert spread([18.0]) == trainings.Spread(1, 18.0, None, None)
    with pytest.raises(ValueError, match="no training"):
        spread([])


def test_t_tests_are_scipys_and_tost_is_statsmodels():
    from statsmodels.stats.weightstats import ttost_ind, ttost_paired

    cases = [
        (paired(by_seed(BASE), by_seed(MINE), 1.5), stats.ttest_rel(MINE, BASE)),
        (welch(BASE, MINE[:3], 1.5), stats.ttest_ind(MINE[:3], BASE, equal_var=False)),
        (against_value(39.0, MINE, 1.5), stats.ttest_1samp(MINE, 39.0)),
    ]
    for found, expected in cases:
        assert found.p == pytest.approx(expected.pvalue)
        interval = expected.confidence_interval(0.95)
        shift = 39.0 if found.test == "one-sample t" else 0
        assert found.ci == pytest.approx((interval.low - shift, interval.high - shift))
    a, b = np.array(BASE), np.array(MINE)
    assert cases[0][0].p_equivalent == pytest.approx(ttost_paired(b, a, -1.5, 1.5)[0])
    assert cases[1][0].p_equivalent == pytest.approx(ttost_ind(b[:3], a, -1.5, 1.5, usevar="unequal")[0])
    assert paired(by_seed(BASE), by_seed(MINE)).p_equivalent is None


def test_only_shared_seeds_are_compared_and_what_cannot_be_tested_is_not():
    # By hand: seeds 2 and 4 are shared, differences -1 and -3.
    found = paired({1: 50.0, 2: 40.0, 4: 40.0}, {2: 39.0, 3: 0.0, 4: 37.0})
    assert (found.n, found.mean) == (2, -2.0) and found.p == pytest.approx(stats.ttest_1samp([-1, -3], 0).pvalue)
    assert paired({1: 50.0}, {2: 39.0}) == trainings.Difference("paired t", 0, None)
    one = paired({1: 50.0}, {1: 39.0}, 0.3)
    assert (one.n, one.mean, one.ci, one.p, one.p_equivalent) == (1, -11.0, None, None, None)
    # Equal models: no variance, no test.
    assert paired(by_seed(BASE), by_seed(BASE)).p is None and welch([1.0, 1.0], [2.0, 2.0]).p is None
    assert welch([1.0], [2.0, 3.0]).p is None
    tested = [paired(by_seed(BASE), by_seed(MINE)), one, against_value(39.0, MINE)]
    assert [d.p_holm for d in corrected(tested)] == [*holm([tested[0].p, tested[2].p])[:1], None, holm(
        [tested[0].p, tested[2].p])[1]]  # fmt: skip


def test_the_hierarchical_bootstrap_on_a_toy_with_known_variance():
    """Moments of the weights: w of n - 1 draws, v of all m sentences, E[(w'Xv)^2] = tr(E[ww'] X E[vv'] X')."""
    n, m, resamples = 4, 30, 20_000
    draw = np.random.default_rng(1)
    x = draw.normal(size=(n, 1)) + draw.normal(size=(1, m)) + draw.normal(size=(n, m))
    found = hierarchical_bootstrap(mean, [system(np.zeros(m))] * n, [system(row) for row in x], resamples, seed=3)
    size = n - 1
    ww = size * (np.eye(n) / n - 1 / n**2) + (size / n) ** 2
    vv = np.eye(m) - 1 / m + 1
    variance = np.trace(ww @ x @ vv @ x.T) / (size * m) ** 2 - x.mean() ** 2
    assert found["difference"] == pytest.approx(x.mean()) and found["n"] == n
    # An interval of normal draws is 2 x 1.96 deviations wide; the mean over 4 trainings is nearly normal here.
    assert (found["ci"][1] - found["ci"][0]) / (2 * 1.96) == pytest.approx(variance**0.5, rel=0.06)
    # Without variance over sentences and with it over trainings: s^2 / n, unbiased; enumeration of the n^(n-1) draws.
    flat = np.array([0.0, 1.0, 5.0, 10.0])
    draws = np.array(np.meshgrid(*[flat] * size)).reshape(size, -1).mean(axis=0)
    assert draws.var() == pytest.approx(flat.var(ddof=1) / n)
    found = hierarchical_bootstrap(mean, [system(np.zeros(m))] * n, [system(np.full(m, v)) for v in flat], 9999, 0)
    assert found["ci"] == pytest.approx(np.quantile(draws, [0.025, 0.975]).tolist(), abs=1.0)
    share = (draws <= 0).mean()  # 1 of 64
    assert found["p"] == pytest.approx(2 * share, abs=5 * 2 * (share / 9999) ** 0.5)
    with pytest.raises(ValueError, match="1 and 1 trainings"):
        hierarchical_bootstrap(mean, [system(flat)], [system(flat)], 10, 0)


def test_the_mixed_model_is_the_analysis_of_variance_of_blocks():
    # Source: a randomised block design (closed form): error of a difference sqrt(2 MS / seeds), df (M - 1)(S - 1).
    draw = np.random.default_rng(2)
    seeds, methods = 5, ["random", "michel", "dsp"]
    y = 30 + 3 * draw.normal(size=(1, seeds)) + np.array([[0], [1], [4]]) + 0.5 * draw.normal(size=(3, seeds))
    scores = {method: by_seed(row) for method, row in zip(methods, y, strict=True)}
    found = mixed_model(scores | {"dsp": scores["dsp"] | {9: 0.0}}, "random")  # seed 9 is not shared
    rest = y - y.mean(axis=0) - y.mean(axis=1, keepdims=True) + y.mean()
    df = 2 * (seeds - 1)
    error = np.sqrt(2 * (rest**2).sum() / df / seeds)
    assert list(found) == ["michel", "dsp"]
    for method, row in zip(found, y[1:], strict=True):
        one, difference = found[method], row.mean() - y[0].mean()
        assert one.n == seeds and one.mean == pytest.approx(difference, abs=1e-6)
        assert one.p == pytest.approx(2 * stats.t.sf(abs(difference) / error, df), rel=1e-3)
    assert [one.p_holm for one in found.values()] == holm([one.p for one in found.values()])
    with pytest.raises(ValueError, match="2 methods share 1 seeds"):
        mixed_model({"a": {1: 1.0}, "b": {1: 2.0, 2: 1.0}}, "a")


def test_seeds_that_explain_nothing_have_no_variance():
    # Means of en-fr trainings for which a gradient method fails. Source: REML at its boundary (closed form): the sums
    # of squares of seeds and rest are pooled.
    y = np.array([
        [4.60, 4.10, 4.49, 1.09, 4.11], [18.08, 17.28, 14.94, 13.55, 15.77], [47.24, 46.57, 47.51, 47.21, 46.54],
        [9.47, 12.88, 11.90, 8.50, 11.73], [46.40, 45.94, 46.68, 46.09, 46.08], [50.29, 50.47, 50.33, 50.95, 49.34],
        [46.78, 35.81, 45.07, 48.05, 47.02], [45.18, 44.32, 44.91, 46.97, 43.37], [51.89, 51.94, 52.37, 52.83, 51.52],
    ])  # fmt: skip
    methods, seeds = y.shape
    within = ((y - y.mean(axis=1, keepdims=True)) ** 2).sum() / (methods * (seeds - 1))
    of_seeds = methods * y.mean(axis=0).var(ddof=1)
    assert of_seeds < within
    found = mixed_model({str(k): by_seed(row) for k, row in enumerate(y)}, "0")
    reach = stats.t.ppf(0.975, (methods - 1) * (seeds - 1)) * np.sqrt(2 * within / seeds)
    for k, row in enumerate(y[1:], 1):
        mean = row.mean() - y[0].mean()
        assert found[str(k)].ci == pytest.approx((mean - reach, mean + reach), rel=1e-4)


def contains(rejected, level):
    """Whether the exact 99.9% interval (Clopper and Pearson) of the share of rejections contains the level."""
    interval = stats.binomtest(int(np.sum(rejected)), len(rejected)).proportion_ci(0.999, method="exact")
    return interval.low <= level <= interval.high


@pytest.mark.slow
def test_type_1_errors_of_tests_over_trainings():
    """No difference between methods; seeds differ by 1, sentences by 1. The level is 5%."""
    draw, repeats = np.random.default_rng(5), 2000
    for n in (3, 5):
        a, b = draw.normal(size=(2, repeats, n)) + draw.normal(size=(repeats, n))
        assert contains([paired(by_seed(x), by_seed(y)).p < 0.05 for x, y in zip(a, b, strict=True)], 0.05)
        unpaired = draw.normal(size=(repeats, n))
        levels = [welch(x, y).p < 0.05 for x, y in zip(a.tolist(), unpaired.tolist(), strict=True)]
        # Welch's test is not exact; with equal sizes it keeps below its level.
        assert 0.02 < np.mean(levels) < 0.055
    # TOST at the edge of the margin: the true difference is 0.3, and "equivalent within 0.3" an error in 5% at most.
    edge = 0.3 + 0.1 * draw.normal(size=(repeats, 5))
    assert contains([against_value(0.0, x, 0.3).p_equivalent < 0.05 for x in edge.tolist()], 0.05)


@pytest.mark.slow
def test_type_1_errors_of_the_bootstraps():
    """The paired bootstrap of sentences keeps its level for two models; for two methods it does not."""
    draw, repeats, m = np.random.default_rng(6), 1000, 200
    null = system(np.zeros(m))
    same = {"base": null} | {str(k): system(draw.normal(size=m)) for k in range(repeats)}
    p = np.array([found.p for found in bootstrap_statistics(mean, same, 999)[1:]])
    assert 0.03 < np.mean(p < 0.05) < 0.08 and np.mean(p < 0.01) < 0.03
    # Equivalent models of other seeds, which differ by as much as a sentence bootstrap's deviation.
    seeds = {"base": null} | {str(k): system(draw.normal(size=m) + draw.normal() / m**0.5) for k in range(repeats)}
    p = np.array([found.p for found in bootstrap_statistics(mean, seeds, 999)[1:]])
    assert np.mean(p < 0.05) > 0.12 and np.mean(p < 0.01) > 0.04
    # Both levels: above 5% with few trainings, whose percentile interval knows no t distribution (1,000 repeats: 8.0%,
    # 6.4 to 9.9, with three; 6.8%, 5.3 to 8.5, with five; 4.6%, 3.4 to 6.1, with ten).
    for n, most in ((3, 0.13), (5, 0.11), (10, 0.09)):
        rejected = []
        for _ in range(300):
            x = draw.normal(size=(n, 1)) * 0.1 + 0.1 * draw.normal(size=m) + draw.normal(size=(n, m)) * 0.5
            one = hierarchical_bootstrap(mean, [null] * n, [system(row) for row in x], 399, seed=1)
            rejected.append(one["p"] < 0.05)
        assert np.mean(rejected) < most, (n, np.mean(rejected))
