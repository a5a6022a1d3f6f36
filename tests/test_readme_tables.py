"""The tables of the READMEs, from made-up results. Sources: means, deviations and counts by hand."""

import shlex
import sys

import pytest
import tiny
from reports import texts

from fairseq_headprune.files import read_json, write_json
from fairseq_headprune.studies.samplings import items

sys.path.insert(0, str(tiny.ROOT / "scripts"))
import bench_tables  # noqa: E402
import readme_tables  # noqa: E402
import training_tables  # noqa: E402

_EXAMPLES = tiny.ROOT / "examples"
#: So many resamples that a test can be significant.
_TESTED = {"alpha": 0.01, "resamples": 100_000, "seed": 1, "signature": "sig"}


def test_fine_tuned_models_beside_the_reference(tmp_path):
    for seed, (mine, theirs) in enumerate([(80.0, 81.0), (82.0, 81.5), (84.0, 82.0)], 1):
        scores = {"metric": "f1", "results": [{"scores": {"score": mine}}]}
        write_json(tmp_path / f"tuned-MRPC-{seed}.json", scores)
        write_json(tmp_path / f"reference-MRPC-{seed}.json", {"best": {"score": theirs}})
    write_json(tmp_path / "tuned-RTE-1.json", {"metric": "accuracy", "results": [{"scores": {"score": 55.5}}]})
    table = bench_tables.fine_tuned(tmp_path)
    assert texts(table) == [
        ["MRPC", "f1", "3", "82.00 (2.00)", "81.50 (0.50)"],
        ["RTE", "accuracy", "1", "55.50", None],
    ]


def test_single_heads_on_two_sets(tmp_path):
    folder = tmp_path / "CoLA"
    folder.mkdir()
    cell = lambda delta, p: {"delta": delta, "p": p, "p_holm": p, "layer": 0}  # noqa: E731
    for name, cells in (("dev", [cell(-2.0, 0.001), cell(1.0, 0.5)]), ("train", [cell(-2.0, 0.0), cell(1.0, 0.0)])):
        write_json(folder / f"ablate-{name}.json", {**_TESTED, "cells": cells})
    write_json(folder / "effects.json", {"pearson": {"value": 0.5, "p": 0.02}, "spearman": {"value": 0.4, "p": 0.3}})
    write_json(folder / "keep-one.json", {**_TESTED, "cells": [cell(-1.0, 0.2), {**cell(-3.0, 0.001), "layer": 1}]})
    table = readme_tables.classifier_heads(tmp_path)
    (row,) = table.rows
    assert [str(value) for value in row[:5]] == ["CoLA", "1 / 0", "1 / 1", "+0.50 (p = 0.02)", "+0.40 (p = 0.3)"]
    assert (row[5].text, row[5].mark) == ("-3.00 (layer 2)", "holm")


def test_orders_are_columns_and_random_ones_are_means(tmp_path):
    folder = tmp_path / "SST-2"
    folder.mkdir()
    point = lambda percent, score, **more: {"percent": percent, "score": score, "p": 1.0, "p_holm": 1.0, **more}  # noqa: E731
    write_json(folder / "order-scores.json", {**_TESTED, "curves": {"all": [point(0, 90.0), point(50, 88.0)]}})
    means = {"all": [point(0, 90.0, sd=0.0), point(50, 70.0, sd=5.0)]}
    write_json(folder / "order-random.json", {**_TESTED, "curves": {}, "means": means})
    table = readme_tables.classifier_orders(tmp_path)
    assert table.header == ["pruned", "SST-2, random", "SST-2, scores"]
    assert texts(table) == [["0%", "90.0 (sd 0.0)", "90.0"], ["50%", "70.0 (sd 5.0)", "88.0"]]


def test_random_pruning_beside_the_paper(tmp_path):
    # Source: Budhraja et al. 2020, Table 4 (92.00 and 92.88), Table 5 (Top 6 of 12: 90.02); the rest by hand.
    half, sixth = {"percent": 50.0}, {"percent": 16.7}
    items = [
        {"item": "random-50%", "kind": "random", "text": "50%", **half, "scores": [88.0, 87.5, 88.5]},
        {"item": "layers-top3", "kind": "layers", "text": "top:3", **half, "scores": [86.5, 87.0, 87.5]},
        {"item": "layers-top1", "kind": "layers", "text": "top:1", **sixth, "scores": [89.0]},
    ]  # fmt: skip
    value = {"baseline": {"score": 89.5, "scores": [89.5, 89.25, 89.75]}, "items": items, **_TESTED}
    results = beside_the_paper(tmp_path, "glue")
    write_json(results / "random-SST-2.json", value)
    table = training_tables.classifier_random(results)
    assert [[getattr(cell, "text", cell) for cell in row] for row in table.rows] == [
        ["0%", "none", "89.50", None, None, None, None, None],
        ["50%", "random heads", "88.00", "-1.50", "-2.12 to -0.88", "0.50", 3, "-0.88"],
        ["50%", "layers top 3", "87.00", "-2.50", "-3.58 to -1.42", "0.50", 3, "-2.86"],
        ["17%", "layers top 1", "89.00", "-0.50", None, None, 1, None],
    ]
    # t is -10.4 and -10, p .0091 and .0099 with two degrees of freedom: after Holm's correction over both, none.
    assert [row[3].mark for row in table.rows[1:]] == ["raw", "raw", ""]
    assert "Mean of n samplings" in table.notes[0] and "over 2 tests" in table.notes[0]


def beside_the_paper(folder, example):
    write_json(folder / "paper-random.json", read_json(_EXAMPLES / example / "paper-random.json"))
    (folder / "results").mkdir()
    return folder / "results"


def test_the_example_runs_what_the_paper_has():
    script = (_EXAMPLES / "multi30k" / "random.sh").read_text()
    words = shlex.split(script[script.index("--control") : script.index("--train-flags")].replace("\\\n", " "))
    random = words[words.index("--random") + 1 : words.index("--config")]
    configs = [word for before, word in zip(words, words[1:], strict=False) if before == "--config"]
    triples = words[words.index("--triple") + 1 : words.index("--seeds")]
    names = [item.name for item in items(random, configs, triples, [], "--mirror" in words, control=False)]
    assert names == list(read_json(_EXAMPLES / "multi30k" / "paper-random.json")["items"]) and len(names) == 15


def test_random_pruning_of_translation_beside_the_paper(tmp_path):
    item = {"item": "random-60%", "kind": "random", "text": "60%", "mirror": False, "percent": 59.7}
    item |= {"scores": [40.2, 40.5, 40.8]}
    results = beside_the_paper(tmp_path, "multi30k")
    write_json(results / "random.json", {"baseline": {"score": 41.0}, "items": [item], **_TESTED})
    table = training_tables.random_pruning(results)
    # Table 1 of the paper: 60% pruned, -0.15 and -0.07.
    assert texts(table)[1] == ["60%", "random", "40.50", "-0.50", "-1.25 to +0.25", "0.30", "3", "-0.15", "-0.07"]
    assert table.rows[1][3].mark == "" and "one-sample t-test of the samplings" in table.notes[0]


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
    value = {"cells": cells, **_TESTED}
    write_json(tmp_path / "studies" / "ablate-test2016.json", value)
    table = readme_tables.single_heads(tmp_path)
    assert texts(table)[0] == ["test2016", "Enc-Enc", "2", "1", "1", "-1.50", "layer 1, head 1"]
    assert texts(table)[1] == ["test2016", "Enc-Dec", "2", "1", "0", "-1.50", "layer 1, head 1"]
    assert table.rows[0][5].mark == "holm" and table.notes[0].startswith("sig; lose, gain: before")


def test_epochs(tmp_path):
    points = [{"percent": 100 * k / 10, "relative": 1 - k / 10} for k in range(11)]
    row = {"epoch": 3, "baseline": {"score": 20.0, "signature": "sig"}, "curves": {"all": points}}
    write_json(tmp_path / "sweep.json", {"epochs": [row], "kept_within": {"all": {"3": 10.0}}})
    assert texts(readme_tables.epochs(tmp_path)) == [["3", "20.00", "80%", "60%", "40%", "20%", "10%"]]
    with pytest.raises(FileNotFoundError):
        readme_tables.epochs(tmp_path / "nothing")


def test_removal_and_speed(tmp_path):
    row = {"percent": 50, "config": {"ES": "21", "ED": "11"}, "parameters": {"before": 4_000_000, "after": 3_000_000}}
    row |= {
        "bytes": {"before": 0, "after": 2**21}, "bleu_masked": 30.0, "bleu_slim": 30.0, "identical": 9,
        "sentences": 10,
    }  # fmt: skip
    environment = {"gpu": None, "torch": "2"}
    write_json(tmp_path / "slim.json", {
        "commands": {"unpruned": "fairseq-generate --fp16"}, "bleu_unpruned": 31.0, "rows": [row], "signature": "sig",
        "environment": environment,
    })  # fmt: skip
    assert texts(bench_tables.removal(tmp_path))[1] == [
        "fp16", "50%", "ES=21 ED=11", "3.0 M (-25%)", "2 MiB", "30.00", "30.00", "9 of 10",
    ]  # fmt: skip
    rows = [
        {"model": name, "beam": 5, "batch_size": 0, "speed": {"median": speed, "min": speed, "max": speed}}
        for name, speed in (("full.pt", 1.0), ("slim.pt", 1.25))
    ]
    value = {"device": "cpu", "precision": "fp32", "threads": 2, "rows": rows, "environment": environment}
    value["models"] = {"full.pt": {"floor_speed": 1.0}, "slim.pt": {"floor_speed": 1.3}}
    write_json(tmp_path / "bench-speed-cpu.json", value)
    table = bench_tables.speed(tmp_path)
    [note] = table.notes
    assert texts(table) == [["2 CPU threads, fp32", "5", "max-tokens", "1.25 (1.25-1.25)"]]
    assert "By multiply-adds: slim.pt 1.30" in note and "Operations" not in note
    for count, row in zip((4900, 3200), value["rows"], strict=True):
        row["operations"] = count
    write_json(tmp_path / "bench-speed-cpu.json", value)
    assert "beam 5, unpruned and then as in the columns: 4,900, 3,200." in bench_tables.speed(tmp_path).notes[0]


def test_ablation_speed_with_and_without_a_control(tmp_path):
    spread = {"median": 2.0, "min": 1.0, "max": 3.0}
    value = {"device": "cpu", "precision": "fp32", "masks": 3, "sentences": 4, "beam": 5, "rounds": 2}
    value |= {"seconds": {"many": spread, "loop": spread}, "speedup": spread, "floor_seconds": 1.5}
    value |= {"identical_hypotheses": 0.75, "environment": {"gpu": None}}
    write_json(tmp_path / "bench-ablation-a.json", value)
    control = {"control_masks": 2, "control_identical_hypotheses": 0.5, "control_many_identical_hypotheses": 0.625}
    write_json(tmp_path / "bench-ablation-b.json", value | control | {"largest_bleu_difference": 0.0123})
    table = bench_tables.ablation(tmp_path)
    assert [row[6:] for row in texts(table)] == [
        ["75.000%", None, None, None],
        ["75.000%", "62.500%", "50.000%", "0.012"],
    ]
    assert "at two batch sizes" in table.notes[0]
    table.render("markdown")


def test_results_without_sentence_statistics_are_told():
    with_them, without = {"statistics": [{"split": "test"}]}, {"statistics": []}
    assert training_tables.without_statistics([with_them]) == ""
    assert "1 of 2 results hold no sentence statistics" in training_tables.without_statistics([with_them, without])
    assert "The results hold no sentence statistics" in training_tables.without_statistics([{}, without])
    text = (tiny.ROOT / "docs" / "papers" / "michel2019.md").read_text()
    told = "p cannot be computed again."
    assert all(told in part for part in text.split("(paired bootstrap of sentences")[1:] if "<!-- end -->" in part)


def test_tables_are_written_between_their_markers(tmp_path, monkeypatch):
    monkeypatch.setitem(
        readme_tables.TABLES, "training", lambda results: readme_tables.Table(["a"], [["*"]], notes=["*"])
    )
    kept = ["<!-- table removal nothing -->", "kept", "<!-- end -->"]
    lines = ["before", "<!-- table training any -->", "old", "<!-- end -->", *kept, "after"]
    table = ["", "| a |", "| :-- |", "| \\* |", "", "\\*", ""]
    found = readme_tables._replaced(lines, "F.md").split("\n")
    assert found == ["before", lines[1], *table, "<!-- end -->", *kept, "after", ""]
    with pytest.raises(SystemExit, match="F.md: a table marker has no"):
        readme_tables._replaced(lines[:3], "F.md")


def test_what_sentence_tests_mark_without_a_difference_stands_beside_them(tmp_path):
    # By hand: one of two other seeds has p = 0, below 2 x 2 / 1001.
    systems = [{"p": p, "p_holm": p} for p in (1.0, 0.0, 0.4)]
    value = {"alpha": 0.01, "resamples": 1000, "seed": 1, "systems": systems}
    assert readme_tables.control(tmp_path) == []
    write_json(tmp_path / "compare-models.json", value)
    [note] = readme_tables.control(tmp_path)
    assert "marks 1 of 2 with {holm} and 0 with {raw} (compare-models.json)" in note


@pytest.mark.parametrize("name", readme_tables.TABLES)
def test_without_results_there_is_no_table(tmp_path, name):
    with pytest.raises(FileNotFoundError):
        readme_tables.TABLES[name](tmp_path)


def test_the_readmes_are_what_the_command_writes():
    found = [path for path in readme_tables.pages() if "<!-- table" in path.read_text()]
    assert len(found) >= 8
    for path in found:
        text = path.read_text()
        assert readme_tables._replaced(text.splitlines(), path) == text
