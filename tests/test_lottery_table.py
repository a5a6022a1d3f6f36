"""``headprune lottery table``: means, deviations and tests over seeds, by hand, of made-up studies."""

import json
import shutil

import pytest
from scipy import stats
from verbs import holm_by_hand, refused, run_json

from fairseq_headprune.cli import main
from fairseq_headprune.cli.report import document
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
    good = by_name["good", "retrained"]
    assert (good["mean"], good["sd"], good["n"]) == (80, 1, 3)
    assert found["line"] == 82 - 2 and by_name["full", "retrained"]["p"] is None
    # Differences -3, 1, -4: mean -2, variance 7; t = -2 / sqrt(7 / 3), 2 degrees of freedom.
    assert good["p"] == pytest.approx(2 * stats.t.sf(2 / (7 / 3) ** 0.5, 2))
    tested = [entry for entry in found["tickets"] if entry["p"] is not None]
    assert [entry["p_holm"] for entry in tested] == pytest.approx(holm_by_hand([entry["p"] for entry in tested]))
    assert len(tested) == found["tests"] == 3
    assert main(["lottery", "table", *map(str, studies), "--format", "markdown"]) == 0
    text = capsys.readouterr().out
    assert "| good | 65.00 ± 5.00 (3)" in text and "most frequent label | 51.00" in text
    assert "good, trained again: 80.00 over 3 seeds, at or above" in text


def changed(path, folder, **settings):
    """A copy of a study with other settings."""
    shutil.copytree(path, folder)
    study = json.loads((folder / "study.json").read_text())
    study["settings"] |= settings
    (folder / "study.json").write_text(json.dumps(study))
    return folder


def test_two_tasks_and_two_kinds(studies, tmp_path, capsys):
    # The scores are the same ones: the mean over tasks is each one's mean.
    task = {"split": "dev", "task": "RTE"}
    rte = [changed(path, tmp_path / f"rte-{path.name}", data=task) for path in studies]
    weights = {"good": {"weights": "a" * 64, "kept": 5}}
    wide = [changed(path, tmp_path / f"w-{path.name}", data=task, tickets=weights) for path in rte]
    found = run_json("lottery", "table", *studies, *rte, *wide, "-o", tmp_path / "t")
    assert [(task["task"], task["kind"]) for task in found["tasks"]] == [
        ("accuracy on dev", ""), ("RTE", ""), ("RTE", "weights")
    ]  # fmt: skip
    assert found["tests"] == 9 and "tickets" not in found
    assert main(["lottery", "table", *map(str, studies), *map(str, rte), "--format", "latex"]) == 0
    text = capsys.readouterr().out
    assert r"good & 65.00 ± 5.00 (3) & 65.00 ± 5.00 (3) & 65.00 \\" in text
    assert r"most frequent label & 51.00 & 51.00 & 51.00 \\" in text
    drawn = (tmp_path / "t" / "tickets.svg").read_text()
    assert "good (weights)" in drawn and "minus one sd" in drawn
    [entry] = document([tmp_path / "t"], "title")["studies"]
    assert entry["pictures"][0]["caption"].startswith("Tickets") and entry["kind"] == "lottery table"


def test_wrong_input_is_one_line(studies, tmp_path, capsys):
    assert "two seeds or more" in refused(capsys, "lottery", "table", studies[0])
    assert "same checkpoint" in refused(capsys, "lottery", "table", studies[0], studies[0])
    cells = studies[1] / "cells.jsonl"
    cells.write_text("".join(cells.read_text().splitlines(keepends=True)[:2]))
    assert "is not finished" in refused(capsys, "lottery", "table", *studies)
    settings = studies[2] / "study.json"
    settings.write_text(settings.read_text().replace("--max-epoch", "--max-update"))
    assert "differ in more than a seed" in refused(capsys, "lottery", "table", studies[0], studies[2])
