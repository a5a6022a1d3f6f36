"""The legend of tables of significance: what p = 0 is worth with few resamples. By hand: n tests, 2n / resamples."""

import pytest
from reports import hand_ablation, hand_pruning

from fairseq_headprune.cli.comparison_flags import epoch_legend, legend
from fairseq_headprune.files import read_json, write_json
from fairseq_headprune.report.page.document import document


def cells(*p_holm):
    return [{"p_holm": p} for p in p_holm]


@pytest.mark.parametrize(
    ("tested", "tests", "alpha", "numbers"),
    [
        (cells(0.0, 1.0), None, 0.01, ("0.04", "2 tests", 400)),
        (cells(0.0), 8, 0.01, ("0.04", "8 tests", 1600)),
        (cells(0.0), None, 0.001, ("0.04", "1 test", 2000)),
        (cells(0.04, 1.0), None, 0.01, None),  # no p is 0
        (cells(0.0, 1.0), None, 0.08, None),  # 2 x 2 / 50 is not above alpha
        (cells(None, None), None, 0.01, None),  # a study that is not finished
    ],
)
def test_a_p_of_0_that_is_no_finding_is_told(tested, tests, alpha, numbers):
    text = legend(alpha, 50, 1, tested=tested, tests=tests)
    assert text.startswith(f"** differs from unpruned at p < {alpha:g} after Holm's correction")
    note = text.partition("seed 1)")[2]
    if numbers is None:
        assert note == ""
    else:
        least, count, needed = numbers
        assert note.startswith(f"; p = 0 means below {least}; for {count} that is below --alpha after Holm's ")
        assert note.endswith(f" only with --resamples {needed} or more")


def test_a_sweep_is_corrected_within_each_epoch():
    epochs = [{"curves": {"all": cells(1.0, 0.0, 0.5)}}, {"curves": {"all": cells(1.0, 1.0)}}]
    assert "for 2 tests" in epoch_legend(epochs, 0.01, 100, 1)


def test_the_page_tells_it_of_every_study(tmp_path):
    studies = [hand_ablation(tmp_path / "a"), hand_pruning(tmp_path / "p")]
    for path, tests in zip(studies, (5, 2), strict=True):
        content = read_json(path / "study.json")
        content["settings"]["resamples"] = 100
        write_json(path / "study.json", content)
        texts = [part["text"] for part in document([path], "t")["studies"][0]["parts"] if "text" in part]
        assert [f"for {tests} tests" in text for text in texts if "differs from" in text] == [True]
