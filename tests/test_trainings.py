"""Statistics over trainings: against scipy, statsmodels, closed forms, and simulations of their errors."""

import numpy as np
import pytest
import tiny
import type_1_errors
from scipy import stats
from type_1_errors import by_seed, mean, system

from fairseq_headprune.evaluation import trainings
from fairseq_headprune.evaluation.p_values import corrected, holm
from fairseq_headprune.evaluation.trainings import (
    against_value,
    hierarchical_bootstrap,
    mixed_model,
    paired,
    spread,
    welch,
)
from fairseq_headprune.files import read_json

ERRORS = tiny.ROOT / "examples" / "questions" / "results" / "type-1-errors.json"
BASE, MINE = [40.1, 39.4, 40.9, 40.2], [38.0, 38.3, 39.9, 38.1]


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


STORED = {(row["test"], row["trainings"]): row for row in read_json(ERRORS)["rows"]}
#: tests that are exact for normal draws
EXACT = (
    "paired t-test",
    "one-sample t-test",
    "TOST, at the edge of the margin",
    "mixed-effects model, one of 4 methods",
)


def contains(row, level, share, confidence=0.999):
    """Whether the exact interval (Clopper and Pearson) of a share of rejections contains another share."""
    interval = stats.binomtest(row[level]["rejected"], row["trials"]).proportion_ci(confidence, method="exact")
    return interval.low <= share <= interval.high


def test_type_1_errors_are_those_of_the_levels():
    """Of every test that is simulated; the trials are those of the manual."""
    assert list(STORED) == list(type_1_errors.CASES) and {row["trials"] for row in STORED.values()} == {5000}
    for (test, _), row in STORED.items():
        for level in ("0.05", "0.01"):
            found = stats.binomtest(row[level]["rejected"], row["trials"])
            assert row[level]["ci"] == pytest.approx(list(found.proportion_ci(0.95, method="exact")))
            if test in EXACT:
                assert contains(row, level, float(level)), test
    share = {case: row["0.05"]["share"] for case, row in STORED.items()}
    # Welch's test is not exact; with few trainings it keeps below its level.
    assert all(0.02 < value < 0.055 for (test, _), value in share.items() if test.startswith("Welch"))
    # The paired bootstrap of sentences keeps its level for two models; for two methods it does not.
    one, method = "paired bootstrap of sentences, two models", "the same, read as if it spoke of methods"
    assert 0.03 < share[one, "1"] < 0.08 and share[method, "1"] > 0.12
    # A percentile interval knows no t distribution: above 5% with few trainings.
    both = [share["hierarchical bootstrap", trainings] for trainings in ("3", "5", "10")]
    assert 0.13 > both[0] > both[1] > both[2] and both[2] < 0.06


@pytest.mark.slow
@pytest.mark.parametrize("case", type_1_errors.CASES, ids=" ".join)
def test_type_1_errors_are_found_again(case):
    row = type_1_errors.simulate(*case, 200)
    assert all(contains(row, level, STORED[case][level]["share"]) for level in ("0.05", "0.01"))
