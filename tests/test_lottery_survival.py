"""``headprune lottery survival`` and ``table``: counts, means and tests over seeds by hand, of made-up tickets."""

import json
import shutil

import numpy as np
import pytest
import torch
from scipy import stats
from statsmodels.stats.inter_rater import fleiss_kappa
from verbs import holm_by_hand, refused, run_json

from fairseq_headprune.choosing.magnitude import layer_matrices, save_weights
from fairseq_headprune.cli import main
from fairseq_headprune.cli.report import document
from fairseq_headprune.parts import Mask, Part
from fairseq_headprune.parts.scores import Scores
from fairseq_headprune.studies.folder import StudyFolder
from fairseq_headprune.studies.ticket_folders import by_part, shares, sizes

SHAPE = {"enc_self": [2, 2], "enc_ffn": [1, 1]}

#: mode -> heads and blocks that each of two searches keeps
KEPT = {
    "both": ([[1, 0], [1, 1]], [1, 0]), "both2": ([[1, 0], [0, 1]], [1, 1]), "heads": ([[1, 0], [0, 0]], [1, 1]),
    "heads2": ([[0, 1], [0, 0]], [1, 1]),
}  # fmt: skip


def folder(path, mode, goods, task="RTE", checkpoints=("a", "b")):
    """Write what ``headprune lottery tickets`` writes, as far as it is read."""
    start = Mask.full(SHAPE).rows
    settings = {
        "mode": mode, "start": start, "metric": "accuracy", "data": {"task": task}, "select_data": {"split": "dev"},
    }  # fmt: skip
    searches = [{"path": str(path / "gone"), "checkpoint": checkpoint} for checkpoint in checkpoints]
    path.mkdir()
    (path / "tickets.json").write_text(json.dumps({"settings": settings, "searches": searches}))
    for number, (heads, blocks) in enumerate(goods, 1):
        (path / str(number)).mkdir()
        Mask({"enc_self": heads, "enc_ffn": [[block] for block in blocks]}).save(path / str(number) / "good.json")
    return path


@pytest.fixture
def matrices():
    """One layer of width 4 with two heads of width 2, and a block of 6 units."""
    prefix = "encoder.layers.0."
    found = {
        f"{prefix}self_attn.{name}.weight": torch.zeros(4, 4) for name in ("q_proj", "k_proj", "v_proj", "out_proj")
    }
    return found | {f"{prefix}fc1.weight": torch.zeros(6, 4), f"{prefix}fc2.weight": torch.zeros(4, 6)}


def test_weights_of_each_part(matrices):
    shape = {"enc_self": [2], "enc_ffn": [1]}
    # Rows of q, k, v and columns of out_proj: 4 x (2 x 4); the block 2 x (6 x 4).
    assert sizes(matrices, shape) == {Part("enc_self", 0, 0): 32, Part("enc_self", 0, 1): 32, Part("enc_ffn", 0, 0): 48}
    kept = {name: torch.ones_like(matrix).bool() for name, matrix in matrices.items()}
    kept["encoder.layers.0.self_attn.q_proj.weight"][2:] = False
    kept["encoder.layers.0.self_attn.out_proj.weight"][:, 2] = False
    kept["encoder.layers.0.fc2.weight"][:, 0] = False
    # Head 1 loses 8 + 4 of 32 weights, the block 4 of 48.
    assert shares(kept, shape) == {
        Part("enc_self", 0, 0): 1,
        Part("enc_self", 0, 1): 20 / 32,
        Part("enc_ffn", 0, 0): 44 / 48,
    }
    assert sum(len(entries) for entries in by_part(matrices, shape).values()) == 4 + 4 + 2


def test_weights_of_a_model(tiny_model):
    # Heads and blocks have all weights of the layers' matrices between them.
    shape = {"enc_self": [2, 2], "enc_dec": [2, 2], "dec_self": [2, 2], "enc_ffn": [1, 1], "dec_ffn": [1, 1]}
    total = sum(matrix.numel() for matrix in layer_matrices(tiny_model).values())
    assert sum(sizes(tiny_model.state_dict(), shape).values()) == total


def test_apart_and_together(tmp_path):
    both = folder(tmp_path / "both", "both", [KEPT["both"], KEPT["both2"]])
    heads = folder(tmp_path / "heads", "heads", [KEPT["heads"], KEPT["heads2"]])
    found = run_json("lottery", "survival", heads, both, "-o", tmp_path / "s")
    # Together 3 and 2 of 4 heads, 1 and 2 of 2 blocks; alone 1 and 1 of 4 heads.
    assert found["survival"]["both"]["heads"]["mean"] == 62.5 and found["survival"]["both"]["blocks"]["mean"] == 75
    assert set(found["survival"]["heads"]) == {"heads"} and found["survival"]["heads"]["heads"]["sd"] == 0
    assert found["super_survivors"]["both"] == {"heads": 2, "blocks": 1}
    [test] = found["apart_and_together"]
    assert (test["alone_mean"], test["together_mean"], test["mean"], test["n"]) == (25, 62.5, 37.5, 2)
    # Differences 50 and 25: t = 37.5 / 12.5 with one degree of freedom.
    assert test["p"] == pytest.approx(2 * stats.t.sf(3, 1)) == test["p_holm"]
    # Head 0 of layer 1 survives in one of two searches: 0.5, deviation sqrt(0.5).
    cell = found["maps"][1]["components"][0]["layers"][1][0]
    assert (cell["importance"], cell["sd"]) == (0.5, pytest.approx(0.5**0.5)) and len(found["maps"]) == 2
    [entry] = document([tmp_path / "s"], "title")["studies"]
    assert "importance is not shown" in json.dumps(entry)


def test_over_tasks_and_importance(tmp_path):
    rte = folder(tmp_path / "rte", "both", [KEPT["both"], KEPT["both2"]])
    mrpc = folder(tmp_path / "mrpc", "both", [KEPT["both"], KEPT["both"]], "MRPC", ("c", "d"))
    values = {"enc_self": [[0.1, 0.9], [0.2, 0.3]], "enc_ffn": [[4.0], [5.0]]}
    (rte / "gone" / "scores").mkdir(parents=True)
    Scores(rows=values, estimator="gradient").save(rte / "gone" / "scores" / "unpruned.json")
    found = run_json("lottery", "survival", rte, mrpc, "-o", tmp_path / "s")
    *_, tasks = found["maps"]
    cells = {
        (c["component"], cell["layer"], cell["head"]): cell
        for c in tasks["components"]
        for row in c["layers"]
        for cell in row
    }
    # Seed 1 keeps head 0 of layer 1 in both tasks, seed 2 in one; block 1 survives in no task, and in one.
    assert (cells["enc_self", 1, 0]["importance"], cells["enc_self", 1, 0]["sd"]) == (1.5, pytest.approx(0.5**0.5))
    assert cells["enc_self", 0, 0]["importance"] == 2 and cells["enc_ffn", 1, 0]["importance"] == 0.5
    # Both searches have their scores in the one folder: each number counts twice.
    assert sorted(found["importance"]["rte"]["heads"]) == [0.1, 0.1, 0.2, 0.2, 0.3, 0.3, 0.9, 0.9]
    assert {"tasks-both.svg", "importance-1.png"} <= {path.name for path in (tmp_path / "s").iterdir()}


def test_weights(tmp_path, matrices, capsys):
    place = folder(tmp_path / "w", "magnitude", [])
    tickets = json.loads((place / "tickets.json").read_text())
    tickets["settings"]["start"] = {"enc_self": [[1, 1]]}
    (place / "tickets.json").write_text(json.dumps(tickets))
    draw = torch.Generator().manual_seed(1)
    goods = [{name: torch.rand(m.shape, generator=draw) > 0.5 for name, m in matrices.items()} for _ in "12"]
    for number, good in enumerate(goods, 1):
        save_weights(good, place / str(number) / "good.pt", {})
    found = run_json("lottery", "survival", place, "-o", tmp_path / "s")
    table = np.stack([torch.cat([m.flatten() for m in good.values()]).numpy() for good in goods], axis=1)
    assert found["survival"]["w"]["weights"]["mean"] == pytest.approx(100 * table.mean())
    assert found["super_survivors"]["w"]["weights"] == pytest.approx(100 * table.all(axis=1).mean())
    yes = table.sum(axis=1)
    assert found["agreement"]["w"]["weights"]["kappa"] == pytest.approx(fleiss_kappa(np.stack([2 - yes, yes], axis=1)))
    # With two searches Cochran's Q is McNemar's (b - c)² / (b + c).
    b, c = int((table[:, 0] & ~table[:, 1]).sum()), int((table[:, 1] & ~table[:, 0]).sum())
    assert found["agreement"]["w"]["weights"]["q"] == pytest.approx((b - c) ** 2 / (b + c))
    [cells] = [part["layers"] for part in found["maps"][0]["components"] if part["component"] == "enc_ffn"]
    block = [
        100 * torch.cat([good[f"encoder.layers.0.{n}.weight"].flatten() for n in ("fc1", "fc2")]).float().mean()
        for good in goods
    ]
    assert cells[0][0]["importance"] == pytest.approx(float(sum(block)) / 200)
    assert "has no tickets.json" in refused(capsys, "lottery", "survival", tmp_path, "-o", tmp_path / "o")
    one = folder(tmp_path / "one", "both", [KEPT["both"]], checkpoints=("a",))
    assert "two or more" in refused(capsys, "lottery", "survival", one, "-o", tmp_path / "o")


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
    # t(2) at .975 is 4.3027: -2 -+ 4.3027 sqrt(7 / 3).
    assert good["difference"]["ci"] == pytest.approx([-2 - 6.5725, -2 + 6.5725], abs=1e-3)
    assert "-2.00 \\[-8.57, +4.57\\] (3) |" in text and "| full | " in text


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


def test_wrong_input_is_one_line(studies, capsys):
    assert "two seeds or more" in refused(capsys, "lottery", "table", studies[0])
    assert "same checkpoint" in refused(capsys, "lottery", "table", studies[0], studies[0])
    cells = studies[1] / "cells.jsonl"
    cells.write_text("".join(cells.read_text().splitlines(keepends=True)[:2]))
    assert "is not finished" in refused(capsys, "lottery", "table", *studies)
    settings = studies[2] / "study.json"
    settings.write_text(settings.read_text().replace("--max-epoch", "--max-update"))
    assert "differ in more than a seed" in refused(capsys, "lottery", "table", studies[0], studies[2])
