"""``headprune report`` of studies of random pruning: means, and which samplings differ."""

import pytest
from reports import hand_random, told

from fairseq_headprune.cli.report import document


def test_random_studies_show_means_and_what_differs(tmp_path):
    # Source: by hand. Holm over nine: p of 0 and 0.0005 become 0 and 0.004, 0.04 becomes 0.28.
    [study] = document([hand_random(tmp_path / "done", metric="accuracy", resamples=2000)], "title")["studies"]
    assert study["measure"] == "accuracy" and study["planned"] == study["done"] == 10 and not study["missing"]
    [table] = list(told(study))
    assert [line.split() for line in table.splitlines()[2:]] == [
        ["0%", "all", "(unpruned)", "30.00", "-", "-", "-", "-"],
        ["0%", "all,", "fine-tuned", "32.00", "+2.00", "[-0.48,", "+4.48]", "1.00", "3", "0", "/", "1"],
        ["60%", "random", "28.00", "-2.00", "[-4.48,", "+0.48]", "1.00", "3", "1", "/", "0"],
        ["20%", "random", "30.00", "+0.00", "[-1.24,", "+1.24]", "0.50", "3", "0", "/", "0"],
    ]
    assert study["parts"][-1]["text"].endswith("one method against another, 2000 resamples, seed 12345)")
    assert study["found"] == [
        "Random heads: up to 20% pruned no sampling is significantly worse than the unpruned model."
    ]
    [chart] = study["charts"]
    points = chart["curves"][0]["points"]
    assert [(point["percent"], point["score"]) for point in points] == [(0.0, 30.0), (20.0, 30.0), (60.0, 28.0)]
    # Source: Student's t with 2 degrees of freedom, 4.3027 (a table): mean -+ 4.3027 sd / sqrt(3).
    assert points[0]["ci"] == [29.0, 31.0] and points[1]["ci"] == pytest.approx([28.758, 31.242], abs=1e-3)
    assert points[2]["ci"] == pytest.approx([25.516, 30.484], abs=1e-3)
    assert points[1]["seeds"] == [1, 2, 3] and points[1]["sd"] == 0.5 and "seeds" not in points[0]

    # 9 x 2 / 1000 is above alpha.
    [study] = document([hand_random(tmp_path / "coarse")], "title")["studies"]
    assert " 0 / 0" in list(told(study))[0] and " 1 / 0" not in list(told(study))[0]
    assert study["parts"][-1]["text"].endswith("for 9 tests it takes 1800 or more (--resamples)")
    assert study["found"][0].endswith("; 1000 resamples are too few to call that significant.")


def test_unfinished_random_studies(tmp_path):
    [study] = document([hand_random(tmp_path / "half", done=4)], "title")["studies"]
    assert study["missing"] == ["5 of 10 cells are done: run headprune random-study again with its settings"]
    # One sampling has no deviation; its point is that of its cell.
    assert list(told(study))[0].splitlines()[-1].split() == "60% random 29.00 -1.00 - 1 0 / 0".split()
    point = study["charts"][0]["curves"][0]["points"][-1]
    assert (point["p"], point["p_holm"], point["ci"]) == (0.5, 1.0, [28.0, 30.0]) and not study["found"]
    [study] = document([hand_random(tmp_path / "begun", done=0)], "title")["studies"]
    assert (study["done"], study["charts"], study["parts"]) == (1, [], [])
    (tmp_path / "begun" / "cells.jsonl").write_text("")
    [study] = document([tmp_path / "begun"], "title")["studies"]
    assert study["done"] == 0 and study["unpruned"] is None


def test_an_encoder_before_fine_tuning_is_no_finding(tmp_path):
    data = {"split": "dev", "task": "SST-2"}
    [study] = document([hand_random(tmp_path / "study", metric="accuracy", data=data)], "title")["studies"]
    assert not study["missing"] and study["found"] == [] and "--baseline control" in study["parts"][-1]["text"]
