"""The tables of examples/glue, on made-up results. Sources: means, deviations and counts by hand."""

import sys

import pytest
import tiny

from fairseq_headprune.files import write_json

sys.path.insert(0, str(tiny.ROOT / "scripts"))
import glue_result_tables  # noqa: E402


def texts(table):
    return [[str(cell) for cell in row] for row in table.rows]


def test_fine_tuned_models_beside_the_reference(tmp_path):
    for seed, (mine, theirs) in enumerate([(80.0, 81.0), (82.0, 81.5), (84.0, 82.0)], 1):
        scores = {"metric": "f1", "results": [{"scores": {"score": mine}}]}
        write_json(tmp_path / f"tuned-MRPC-{seed}.json", scores)
        write_json(tmp_path / f"reference-MRPC-{seed}.json", {"best": {"score": theirs}})
    write_json(tmp_path / "tuned-RTE-1.json", {"metric": "accuracy", "results": [{"scores": {"score": 55.5}}]})
    table, _ = glue_result_tables.fine_tuned(tmp_path)
    assert texts(table) == [
        ["MRPC", "f1", "3", "82.00 (2.00)", "81.50 (0.50)"],
        ["RTE", "accuracy", "1", "55.50", "None"],
    ]


def test_single_heads_on_two_sets(tmp_path):
    folder = tmp_path / "CoLA"
    folder.mkdir()
    cell = lambda delta, p: {"delta": delta, "p": p, "p_holm": p, "layer": 0}  # noqa: E731
    for name, cells in (("dev", [cell(-2.0, 0.001), cell(1.0, 0.5)]), ("train", [cell(-2.0, 0.0), cell(1.0, 0.0)])):
        write_json(folder / f"ablate-{name}.json", {"alpha": 0.01, "cells": cells})
    write_json(folder / "effects.json", {"pearson": {"value": 0.5, "p": 0.02}, "spearman": {"value": 0.4, "p": 0.3}})
    write_json(folder / "keep-one.json", {"cells": [cell(-1.0, 0.2), {**cell(-3.0, 0.001), "layer": 1}]})
    table, _ = glue_result_tables.classifier_heads(tmp_path)
    (row,) = table.rows
    assert [str(value) for value in row[:5]] == ["CoLA", "1 / 0", "1 / 1", "+0.50 (p = 0.02)", "+0.40 (p = 0.3)"]
    assert (row[5].text, row[5].mark) == ("-3.00 (layer 2)", "holm")


def test_orders_are_columns_and_random_ones_are_means(tmp_path):
    folder = tmp_path / "SST-2"
    folder.mkdir()
    point = lambda percent, score, **more: {"percent": percent, "score": score, "p": 1.0, "p_holm": 1.0, **more}  # noqa: E731
    write_json(folder / "order-scores.json", {"alpha": 0.01, "curves": {"all": [point(0, 90.0), point(50, 88.0)]}})
    means = {"all": [point(0, 90.0, sd=0.0), point(50, 70.0, sd=5.0)]}
    write_json(folder / "order-random.json", {"alpha": 0.01, "curves": {}, "means": means})
    table, _ = glue_result_tables.classifier_orders(tmp_path)
    assert table.header == ["pruned", "SST-2, random", "SST-2, scores"]
    assert texts(table) == [["0%", "90.0 (sd 0.0)", "90.0"], ["50%", "70.0 (sd 5.0)", "88.0"]]


def test_random_pruning_beside_the_paper(tmp_path):
    # Source: Budhraja et al. 2020, Table 4 (92.00 and 92.88), Table 5 (Top 6 of 12: 90.02); the rest by hand.
    entry = {"samplings": 3, "p": 0.001, "p_holm": 0.002}
    items = [
        {
            "item": "random-50%",
            "kind": "random",
            "text": "50%",
            "percent": 50.0,
            "score": 88.0,
            "delta": -1.5,
            "sd": 0.25,
        },
        {
            "item": "layers-top3",
            "kind": "layers",
            "text": "top:3",
            "percent": 50.0,
            "score": 87.0,
            "delta": -2.5,
            "sd": 0.5,
        },
        {
            "item": "layers-top1",
            "kind": "layers",
            "text": "top:1",
            "percent": 16.7,
            "score": 89.0,
            "delta": -0.5,
            "sd": None,
        },
    ]
    value = {"baseline": {"score": 89.5}, "items": [{**item, **entry} for item in items], "alpha": 0.01}
    write_json(tmp_path / "random-SST-2.json", {**value, "signature": "accuracy of SST-2, in percent"})
    table, note = glue_result_tables.classifier_random(tmp_path)
    assert [[getattr(cell, "text", cell) for cell in row] for row in table.rows] == [
        ["0%", "none", "89.50", None, None, None],
        ["50%", "random heads", "88.00", "-1.50", "0.25", "-0.88"],
        ["50%", "layers top 3", "87.00", "-2.50", "0.50", "-2.86"],
        ["17%", "layers top 1", "89.00", "-0.50", None, None],
    ]
    assert table.rows[1][3].mark == "holm" and "Mean of 3 samplings" in note


def test_without_results_there_is_no_table(tmp_path):
    names = ("fine_tuned", "classifier_orders", "classifier_heads", "bench_finetune", "classifier_pruners")
    for make in (*names, "classifier_random"):
        with pytest.raises(FileNotFoundError):
            getattr(glue_result_tables, make)(tmp_path)
