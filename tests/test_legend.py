"""p of resamples, and the legend: what few resamples cannot show. By hand: m tests, 2 m / (resamples + 1)."""

import pytest
from reports import hand_ablation, hand_pruning

from fairseq_headprune.cli.report import document
from fairseq_headprune.evaluation.p_values import enough_resamples, least_resamples, p_text, resampled_p
from fairseq_headprune.files import read_json, write_json
from fairseq_headprune.report.marks import Family, marks_named


@pytest.mark.parametrize(
    ("tests", "alpha", "needed"),
    [
        (2, 0.01, "for 2 tests it takes 400 or more (--resamples)"),
        (8, 0.01, "for 8 tests it takes 1600 or more (--resamples)"),
        (1, 0.001, "for 1 test it takes 2000 or more (--resamples)"),
        (2, 0.08, ""),  # 2 x 2 / 50 is not above alpha
    ],
)
def test_what_cannot_be_a_finding_is_told(tests, alpha, needed):
    text = marks_named(Family(alpha, 50, 1, tests).legend(), "text")
    if needed:
        assert (
            text.startswith(f"* differs from unpruned at p < {alpha:g} before Holm's correction") and "**" not in text
        )
        assert "50 resamples show no p below 0.04, and" in text and text.endswith(needed)
    else:
        assert text.startswith(f"** differs from unpruned at p < {alpha:g} after Holm's correction, * before it only")
        assert text.endswith("seed 1)")


@pytest.mark.parametrize(
    ("resamples", "tests", "p", "p_holm", "mark"),
    [
        (1000, 5, 2 / 1001, 10 / 1001, "holm"),
        (1000, 6, 2 / 1001, 12 / 1001, "raw"),
        (1000, 5, 0.0, 0.0, "holm"),  # of an older version: below 5 x 0.002 = 0.01
        (1000, 6, 0.0, 0.0, "raw"),  # below 0.012 only
        (10000, 44, 0.0, 0.0, "holm"),
        (1000, 44, 0.0, 0.0, "raw"),  # issue: a mark of p < 0.01 beside "p (Holm) < 0.088"
        (100, 1, 0.0, 0.0, ""),  # below 0.02: not even by its own test
        (1000, 5, 0.002, 0.01, "raw"),
        (1000, 5, 0.5, 1.0, ""),
        (1000, 5, 0.0, None, "raw"),  # a study that is not finished
    ],
)
def test_no_mark_that_so_few_resamples_cannot_carry(resamples, tests, p, p_holm, mark):
    assert Family(0.01, resamples, 1, tests).mark({"p": p, "p_holm": p_holm}) == mark


def test_the_estimate_of_p_and_its_text():
    # By hand: 2 (b + 1) / (n + 1), at most 1; with b = 0 only a bound is known.
    assert [resampled_p(b, 999) for b in (0, 4, 499, 999)] == [0.002, 0.01, 1.0, 1.0]
    assert [p_text(2 / 1001, 1000), p_text(4 / 1001, 1000), p_text(1.0, 1000)] == ["<0.002", "0.004", "1.000"]
    assert [p_text(2 / 1001, 1000, 0.04, 20), p_text(4 / 1001, 1000, 0.08, 20)] == ["<0.04", "0.080"]
    assert p_text(0.0, 1000) == "<0.002"  # of an older version
    # Many resamples tell smaller ones than three decimals can show.
    assert [p_text(4 / 50001, 50000), p_text(4 / 50001, 50000, 8 / 50001, 2)] == ["8e-05", "2e-04"]
    assert p_text(0.0005, 50000) == "0.001"  # as elsewhere: rounded to three decimals from here on


@pytest.mark.parametrize("tests", [1, 5, 44, 72, 144])
def test_as_many_resamples_as_the_family_needs(tests):
    least, enough = least_resamples(tests, 0.01), enough_resamples(tests, 0.01)
    assert least == 200 * tests and Family(0.01, least, 1, tests).fine and not Family(0.01, least - 1, 1, tests).fine
    assert enough == max(1000, 200 * tests + 100) and Family(0.01, enough, 1, tests).fine


def test_the_marks_have_the_names_of_their_form():
    text = Family(0.01, 1000, 1, 1).legend()
    assert marks_named(text, "markdown").startswith("** differs") and ", * before it only" in marks_named(text, "text")
    assert marks_named(text, "latex").startswith("bold and underlined: differs")


def test_the_page_tells_it_of_every_study(tmp_path):
    studies = [hand_ablation(tmp_path / "a"), hand_pruning(tmp_path / "p")]
    for path, tests in zip(studies, (5, 2), strict=True):
        content = read_json(path / "study.json")
        content["settings"]["resamples"] = 100
        write_json(path / "study.json", content)
        texts = [part["text"] for part in document([path], "t")["studies"][0]["parts"] if "text" in part]
        assert [f"for {tests} tests" in text for text in texts if "differs from" in text] == [True]
