"""Pruning curves: what their sentence says was tested, their means over orders, and the lines of progress."""

import pytest

from fairseq_headprune.progress import Bar, Progress
from fairseq_headprune.report.marks import Family
from fairseq_headprune.studies.curves import curve_found, mean_of


def points(*scores, heads=9):
    """A curve of a model with a score of 30; scores below 25 are losses with p = 0."""
    cells = [{"step": 0, "percent": 0.0, "pruned": 0, "score": 30.0, "p": 1.0, "p_holm": 1.0}]
    for step, score in enumerate(scores, 1):
        p = 0.0 if score < 25 else 1.0
        percent = 100.0 * step / len(scores)
        cells.append({"step": step, "percent": percent, "pruned": heads * step, "score": score, "p": p, "p_holm": p})
    return cells


@pytest.mark.parametrize(
    ("curve", "resamples", "expected"),
    [
        # Source: by hand.
        (points(20, 10), 1000, "fewer than 9 of 18 heads (not tested) can go without a significant loss of BLEU, 9 "
         "(step 1, 50%) lose it"),
        (points(29, 10), 1000, "9 of 18 heads can go without a significant loss of BLEU, 18 (step 2, 100%) lose it; "
         "numbers between were not tested"),
        (points(20, 10, heads=1), 1000, "0 of 2 heads can go without a significant loss of BLEU, 1 (step 1, 50%) loses "
         "it"),
        (points(29, 28), 1000, "18 of 18 heads can go without a significant loss of BLEU"),
        (points(20, heads=1), 100, "0 of 1 heads can go without a significant loss of BLEU, 1 (step 1, 100%) loses it; "
         "100 resamples are too few to call that significant"),
    ],
)  # fmt: skip
def test_the_sentence_says_what_was_tested(curve, resamples, expected):
    assert curve_found("all", curve, Family(0.01, resamples, 1, len(curve) - 1), "BLEU") == f"All: {expected}"


def test_the_interval_of_a_mean_is_a_95_percent_interval():
    # Source: t with 2 degrees of freedom is 4.3027 (a table): 20 -+ 4.3027 x 2 / sqrt(3).
    found = mean_of([{"score": 18.0}, {"score": 20.0}, {"score": 22.0}])
    assert (found["score"], found["sd"]) == (20.0, 2.0) and found["ci"] == pytest.approx([15.032, 24.968], abs=1e-3)
    assert mean_of([{"score": 18.0}]) == {"score": 18.0, "sd": 0.0, "ci": None}


def test_without_a_terminal_each_cell_has_a_line(capsys):
    progress = Progress("prune", 2, quiet=False)
    progress.cell({"id": "all-01", "score": 21.256})
    progress.close()
    Bar("timing", "round").part("batch size 1")
    out, err = capsys.readouterr()
    assert out == "" and err == "prune: 1 of 2: all-01, 21.26 (0 s, about 0 s left)\ntiming: batch size 1\n"
    Progress("prune", 2, quiet=True).cell({"id": "all-01"})
    Bar("timing", "round", quiet=True).part("batch size 1")
    assert capsys.readouterr().err == ""
