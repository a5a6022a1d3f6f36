"""The README's tables of studies and of removal, from made-up results; numbers by hand."""

import sys

import pytest
import tiny

from fairseq_headprune.files import write_json

sys.path.insert(0, str(tiny.ROOT / "scripts"))
import removal_result_tables as removal_tables  # noqa: E402
import study_result_tables as study_tables  # noqa: E402


def texts(table):
    return [[None if cell is None else str(cell) for cell in row] for row in table.rows]


def cell(component, layer, head, delta, p_holm):
    return {"component": component, "layer": layer, "head": head, "delta": delta, "p": p_holm / 2, "p_holm": p_holm}


def test_single_heads(tmp_path):
    (tmp_path / "studies").mkdir()
    cells = [
        cell(c, 0, h, d, p)
        for c in ("enc_self", "enc_dec", "dec_self")
        for h, d, p in [(0, -1.5, 0.002), (1, 0.2, 0.4)]
    ]
    cells[1] = cell("enc_self", 1, 3, 0.3, 0.001)
    value = {"cells": cells, "alpha": 0.01, "signature": "sig"}
    write_json(tmp_path / "studies" / "ablate-test2016.json", value)
    table, note = study_tables.single_heads(tmp_path)
    assert texts(table)[0] == ["test2016", "Enc-Enc", "2", "1", "1", "-1.50", "layer 1, head 1"]
    assert texts(table)[1] == ["test2016", "Enc-Dec", "2", "1", "0", "-1.50", "layer 1, head 1"]
    assert table.rows[0][5].mark == "holm" and note.startswith("sig; ** p < 0.01")


def test_epochs(tmp_path):
    points = [{"percent": 100 * k / 10, "relative": 1 - k / 10} for k in range(11)]
    row = {"epoch": 3, "baseline": {"score": 20.0, "signature": "sig"}, "curves": {"all": points}}
    write_json(tmp_path / "sweep.json", {"epochs": [row], "kept_within": {"all": {"3": 10.0}}})
    assert texts(study_tables.epochs(tmp_path)[0]) == [["3", "20.00", "80%", "60%", "40%", "20%", "10%"]]
    with pytest.raises(FileNotFoundError):
        study_tables.epochs(tmp_path / "nothing")


def test_removal_and_speed(tmp_path):
    row = {"percent": 50, "config": {"ES": "21", "ED": "11"}, "parameters": {"before": 4_000_000, "after": 3_000_000}}
    row |= {
        "bytes": {"before": 0, "after": 2**21},
        "bleu_masked": 30.0,
        "bleu_slim": 30.0,
        "identical": 9,
        "sentences": 10,
    }
    environment = {"gpu": None, "torch": "2"}
    write_json(
        tmp_path / "slim.json",
        {
            "commands": {"unpruned": "fairseq-generate --fp16"},
            "bleu_unpruned": 31.0,
            "rows": [row],
            "signature": "sig",
            "environment": environment,
        },
    )
    assert texts(removal_tables.removal(tmp_path)[0])[1] == [
        "fp16", "50%", "ES=21 ED=11", "3.0 M (-25%)", "2 MiB", "30.00", "30.00", "9 of 10",
    ]  # fmt: skip
    rows = [
        {"model": name, "beam": 5, "batch_size": 0, "speed": {"median": speed, "min": speed, "max": speed}}
        for name, speed in (("full.pt", 1.0), ("slim.pt", 1.25))
    ]
    value = {"device": "cpu", "precision": "fp32", "threads": 2, "rows": rows, "environment": environment}
    value["models"] = {"full.pt": {"floor_speed": 1.0}, "slim.pt": {"floor_speed": 1.3}}
    write_json(tmp_path / "bench-speed-cpu.json", value)
    table, note = removal_tables.speed(tmp_path)
    assert texts(table) == [["2 CPU threads, fp32", "5", "max-tokens", "1.25 (1.25-1.25)"]]
    assert "By multiply-adds: slim.pt 1.30" in note and "Operations" not in note
    for count, row in zip((4900, 3200), value["rows"], strict=True):
        row["operations"] = count
    write_json(tmp_path / "bench-speed-cpu.json", value)
    assert "beam 5, unpruned and then as in the columns: 4,900, 3,200." in removal_tables.speed(tmp_path)[1]


def test_ablation_speed_with_and_without_a_control(tmp_path):
    spread = {"median": 2.0, "min": 1.0, "max": 3.0}
    value = {"device": "cpu", "precision": "fp32", "masks": 3, "sentences": 4, "beam": 5, "rounds": 2}
    value |= {"seconds": {"many": spread, "loop": spread}, "speedup": spread, "floor_seconds": 1.5}
    value |= {"identical_hypotheses": 0.75, "environment": {"gpu": None}}
    write_json(tmp_path / "bench-ablation-a.json", value)
    control = {"control_masks": 2, "control_identical_hypotheses": 0.5, "control_many_identical_hypotheses": 0.625}
    write_json(tmp_path / "bench-ablation-b.json", value | control | {"largest_bleu_difference": 0.0123})
    table, note = removal_tables.ablation_speed(tmp_path)
    assert [row[6:] for row in texts(table)] == [
        ["75.000%", None, None, None],
        ["75.000%", "62.500%", "50.000%", "0.012"],
    ]
    assert "at two batch sizes" in note
    table.render("markdown")
