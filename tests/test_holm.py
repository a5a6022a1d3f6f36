"""Holm's correction against worked examples."""

import pytest

from fairseq_headprune.evaluation.p_values import holm


def test_worked_example():
    # Source: by hand. Sorted .005 .01 .03 .04, times 4 3 2 1 = .02 .03 .06 .04; the last is raised to the one before.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_capped_at_one_and_ties_get_one_value():
    # Source: by hand. 3 x .5 = 1.5 -> 1, and nothing after it can be smaller.
    assert holm([0.5, 0.5, 0.9]) == [1.0, 1.0, 1.0]
    # 2 x .02 = .04 for both.
    assert holm([0.02, 0.02]) == pytest.approx([0.04, 0.04])


def test_one_value_stays_and_none_gives_none():
    assert holm([0.03]) == [0.03]
    assert holm([]) == []


@pytest.mark.parametrize("wrong", [-0.1, 1.1, float("nan")])
def test_values_that_are_no_probabilities_are_refused(wrong):
    with pytest.raises(ValueError, match="between 0 and 1"):
        holm([0.5, wrong])
