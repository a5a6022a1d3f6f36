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


def test_without_results_there_is_no_table(tmp_path):
    for make in ("fine_tuned", "classifier_orders", "classifier_heads", "bench_finetune", "classifier_pruners"):
        with pytest.raises(FileNotFoundError):
            getattr(glue_result_tables, make)(tmp_path)
