"""The legend of tables of significance: what p = 0 is worth with few resamples. By hand: n tests, 2n / resamples."""

import pytest
from reports import hand_ablation, hand_pruning

from fairseq_headprune.cli.report import document
from fairseq_headprune.files import read_json, write_json
from fairseq_headprune.report.marks import Family, marks_named


def cells(*p_holm):
    return [{"p_holm": p} for p in p_holm]


@pytest.mark.parametrize(
    ("tested", "tests", "alpha", "numbers"),
    [
        (cells(0.0, 1.0), 2, 0.01, ("0.04", "2 tests", 400)),
        (cells(0.0), 8, 0.01, ("0.04", "8 tests", 1600)),
        (cells(0.0), 1, 0.001, ("0.04", "1 test", 2000)),
        (cells(0.04, 1.0), 2, 0.01, None),  # no p is 0
        (cells(0.0, 1.0), 2, 0.08, None),  # 2 x 2 / 50 is not above alpha
        (cells(None, None), 2, 0.01, None),  # a study that is not finished
    ],
)
def test_a_p_of_0_that_is_no_finding_is_told(tested, tests, alpha, numbers):
    text = marks_named(Family(alpha, 50, 1, tests).legend(tested), "text")
    assert text.startswith(f"** differs from unpruned at p < {alpha:g} after Holm's correction")
    note = text.partition("seed 1)")[2]
    if numbers is None:
        assert note == ""
    else:
        least, count, needed = numbers
        assert note.startswith(f"; p = 0 means below {least}; for {count} that is below --alpha after Holm's ")
        assert note.endswith(f" only with --resamples {needed} or more")


@pytest.mark.parametrize(
    ("resamples", "tests", "p", "p_holm", "mark"),
    [
        (1000, 5, 0.0, 0.0, "holm"),  # below 5 x 0.002 = 0.01
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
