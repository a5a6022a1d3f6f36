"""Paired t-test, McNemar's test and Holm's correction. Reference: closed forms, values by hand, enumeration."""

import itertools
import math

import numpy as np
import pytest

from fairseq_headprune.evaluation.p_values import holm
from fairseq_headprune.evaluation.paired_tests import corrected, mcnemar_exact, paired_t_test


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
    rounded = paired_t_test([0.3, 0.3, 0.3], [0.1 + 0.2, 0.3, 0.3])
    assert (rounded.t, rounded.p) == (None, 1)
    shifted = paired_t_test([0, 0, 0], [1, 1, 1])
    assert (shifted.t, shifted.p, shifted.mean_difference) == (None, 0, 1) and "only in the limit" in shifted.note


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
