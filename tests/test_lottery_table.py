"""``headprune lottery table``: means, deviations and tests over seeds, by hand, of made-up studies."""

import pytest
from scipy import stats
from verbs import refused, run_json

from fairseq_headprune.cli import main
from fairseq_headprune.studies.folder import StudyFolder

#: seed -> scores of the model, the whole model trained again, the ticket pruned, the ticket trained again
SCORES = {1: (80, 82, 70, 79), 2: (84, 80, 60, 81), 3: (82, 84, 65, 80)}


@pytest.fixture
def studies(tmp_path):
    paths = []
    for seed, scores in SCORES.items():
        settings = {
            "study": "lottery-retrain", "checkpoint": f"{seed}" * 64, "start": {"enc_self": [[1, 1]]},
            "data": {"split": "dev"}, "metric": "accuracy", "tickets": {"good": {"enc_self": [[1, 0]]}},
            "fine_tuning": {"flags": [], "limit": ["--max-epoch", "3"], "slim": False}, "training_seed": seed,
            "begin": None, "fresh": None, "majority": {"label": "1", "score": 51.0}, "alpha": 0.01,
        }  # fmt: skip
        folder = StudyFolder.open(tmp_path / str(seed), settings)
        for name, score in zip(("unpruned", "retrained-full", "pruned-good", "retrained-good"), scores, strict=True):
            folder.append({"id": name, "score": score, "p": 0.5, "signature": "accuracy"})
        paths.append(tmp_path / str(seed))
    return paths


def test_by_hand(studies, capsys):
    found = run_json("lottery", "table", *studies)
    by_name = {(entry["ticket"], entry["how"]): entry for entry in found["tickets"]}
    assert (by_name["good", "pruned"]["mean"], by_name["good", "pruned"]["sd"]) == (65, 5)
    assert (by_name["good", "retrained"]["mean"], by_name["good", "retrained"]["sd"]) == (80, 1)
    assert found["line"] == 82 - 2 and by_name["full", "retrained"]["p"] is None
    # Differences -3, 1, -4: mean -2, variance 7; t = -2 / sqrt(7 / 3), 2 degrees of freedom.
    assert by_name["good", "retrained"]["p"] == pytest.approx(2 * stats.t.sf(2 / (7 / 3) ** 0.5, 2))
    assert main(["lottery", "table", *map(str, studies), "--format", "markdown"]) == 0
    text = capsys.readouterr().out
    assert (
        "80.00 (sd 1.00, p = " in text
        and "most frequent label | 51.00" in text
        and "good, trained again: 80.00" in text
    )


def test_wrong_input_is_one_line(studies, tmp_path, capsys):
    assert "two seeds or more" in refused(capsys, "lottery", "table", studies[0])
    assert "same checkpoint" in refused(capsys, "lottery", "table", studies[0], studies[0])
    cells = studies[1] / "cells.jsonl"
    cells.write_text("".join(cells.read_text().splitlines(keepends=True)[:2]))
    assert "is not finished" in refused(capsys, "lottery", "table", *studies)
    settings = studies[2] / "study.json"
    settings.write_text(settings.read_text().replace("--max-epoch", "--max-update"))
    assert "differ in more than a seed" in refused(capsys, "lottery", "table", studies[0], studies[2])
