"""The tables of the READMEs, from made-up results. Sources: means, deviations and counts by hand."""

import shlex

import shown
import shown_models
import shown_studies
import tables
import tiny
from reports import texts
from verbs import refused_script

from fairseq_headprune.files import read_json, write_json
from fairseq_headprune.studies.samplings import items

_EXAMPLES = tiny.ROOT / "examples"
_ENVIRONMENT = {"gpu": None, "torch": "2"}
#: So many resamples that a test can be significant.
_TESTED = {"alpha": 0.01, "resamples": 100_000, "seed": 1, "signature": "sig"}


def test_fine_tuned_models_beside_the_reference():
    values = {}
    for seed, (mine, theirs) in enumerate([(80.0, 81.0), (82.0, 81.5), (84.0, 82.0)], 1):
        about = {"task": "MRPC", "metric": "f1"}
        values[f"tuned-MRPC-{seed}"] = about | {"results": [{"scores": {"score": mine}}]}
        values[f"reference-MRPC-{seed}"] = about | {"best": {"score": theirs}}
    values["tuned-RTE-1"] = {"task": "RTE", "metric": "accuracy", "results": [{"scores": {"score": 55.5}}]}
    assert texts(shown_models.FINE_TUNED.table(values)) == [
        ["MRPC", "f1", "82.00 ± 2.00 (3)", "81.50 ± 0.50 (3)"],
        ["RTE", "accuracy", "55.50 (1)", None],
    ]


def test_single_heads_on_two_sets():
    def made(delta, p, layer=0):
        return {"component": "enc_self", "delta": delta, "p": p, "p_holm": p, "layer": layer, "head": 0}

    correlated = {"pearson": {"value": 0.5, "p": 0.02}, "spearman": {"value": 0.4, "p": 0.3}}
    table = shown_studies.task_heads(
        {
            "CoLA/ablate-dev": {**_TESTED, "cells": [made(-2.0, 0.001), made(1.0, 0.5)]},
            "CoLA/ablate-train": {**_TESTED, "cells": [made(-2.0, 0.0), made(1.0, 0.0)]},
            "CoLA/effects": correlated,
            "CoLA/keep-one": {**_TESTED, "cells": [made(-1.0, 0.2), made(-3.0, 0.001, 1)]},
        }
    )
    assert texts(table) == [["CoLA", "1 / 0", "1 / 1", "+0.50 (p = 0.020)", "+0.40 (p = 0.300)", "-3.00 (layer 2)"]]
    assert table.rows[0][5].mark == "holm" and "{holm} differs from unpruned" in table.notes[0]


def test_orders_are_columns_and_random_ones_are_means():
    def point(percent, score, **more):
        return {"percent": percent, "score": score, "p": 1.0, "p_holm": 1.0, **more}

    means = {"all": [point(0, 90.0, sd=0.0, seeds=[1, 2]), point(50, 70.0, sd=5.0, seeds=[1, 2])]}
    settings = {"settings": {"metric": "accuracy"}}
    table = shown_studies.curves(
        {
            "SST-2/order-random": {**_TESTED, "curves": {}, "means": means, **settings},
            "SST-2/order-scores": {**_TESTED, "curves": {"all": [point(0, 90.0), point(50, 88.0)]}, **settings},
        }
    )
    assert table.header == ["pruned", "SST-2, random", "SST-2, scores"]
    assert texts(table) == [["0%", "90.0", "90.0"], ["50%", "70.0 (sd 5.0)", "88.0"]]
    assert table.notes[0].endswith(" Random: mean of 2 random orders of one model (sd: over the orders).")
    curves = {"enc_self": [point(0, 41.0), point(50, 40.125)]}
    table = shown_studies.curves({"prune-each-reestimate": {**_TESTED, "curves": curves}})
    assert table.header == ["pruned", "Enc-Enc (reestimate)"] and texts(table)[1] == ["50%", "40.12"]
    # A study of more tests has more resamples: the table tells both.
    other = {**_TESTED, "resamples": 2000, "curves": {"all": [point(0, 41.0), point(50, 40.0), point(60, 39.0)]}}
    [note] = shown_studies.curves({"prune-each": {**_TESTED, "curves": curves}, "prune-all": other}).notes
    assert "2000 resamples, seed" in note and f"; {_TESTED['resamples']} resamples for studies of 1 tests." in note


def test_random_pruning_beside_the_paper():
    # Source: Budhraja et al. 2020, Table 4 (92.00 and 92.88), Table 5 (Top 6 of 12: 90.02); the rest by hand.
    half, sixth = {"percent": 50.0, "pruned": 6}, {"percent": 16.7, "pruned": 2}
    items = [
        {"item": "random-50%", "kind": "random", "text": "50%", **half, "scores": [88.0, 87.5, 88.5]},
        {"item": "layers-top3", "kind": "layers", "text": "top:3", **half, "scores": [86.5, 87.0, 87.5]},
        {"item": "layers-top1", "kind": "layers", "text": "top:1", **sixth, "scores": [89.0]},
    ]  # fmt: skip
    value = {"baseline": {"score": 89.5, "scores": [89.5, 89.25, 89.75]}, "items": items, **_TESTED}
    value["settings"] = {"start": {"enc_self": [[1] * 12]}, "metric": "accuracy"}
    heads, layers = shown_studies.random({"random": value}, read_json(_EXAMPLES / "glue" / "paper-random.json"))
    assert heads.header == ["% Pruning", "accuracy", "95% interval", "sd", "n", "paper"]
    assert texts(heads) == [
        ["0 (Baseline)", "89.50", None, None, None, None],
        ["50", "88.00 (-1.50)", "-2.12 to -0.88", "0.50", "3", "-0.88"],
    ]
    assert texts(layers)[1:] == [
        ["Top 3", "50", "87.00 (-2.50)", "-3.58 to -1.42", "0.50", "3", "-2.86"],
        ["Top 1", "17", "89.00 (-0.50)", None, None, "1", None],
    ]
    # t is -10.4 and -10, p .0091 and .0099 with two degrees of freedom: after Holm's correction over both, none.
    assert [heads.rows[1][1].mark, *(row[2].mark for row in layers.rows[1:])] == ["raw", "raw", ""]
    assert "Mean of n samplings" in layers.notes[0] and "over 2 tests" in layers.notes[0]


def test_the_example_runs_what_the_paper_has():
    script = (_EXAMPLES / "multi30k" / "random.sh").read_text()
    words = shlex.split(script[script.index("--control") : script.index("--train-flags")].replace("\\\n", " "))
    random = words[words.index("--random") + 1 : words.index("--config")]
    configs = [word for before, word in zip(words, words[1:], strict=False) if before == "--config"]
    triples = words[words.index("--triple") + 1 : words.index("--seeds")]
    names = [item.name for item in items(random, configs, triples, [], "--mirror" in words, control=False)]
    assert names == list(read_json(_EXAMPLES / "multi30k" / "paper-random.json")["items"]) and len(names) == 15


def test_random_pruning_of_translation_beside_the_paper():
    item = {"item": "random-60%", "kind": "random", "text": "60%", "mirror": False, "percent": 59.7, "pruned": 43}
    value = {"baseline": {"score": 41.0}, "items": [item | {"scores": [40.2, 40.5, 40.8]}], **_TESTED}
    value["settings"] = {"start": {"enc_self": [[1] * 72]}}
    [table] = shown_studies.random({"random": value}, read_json(_EXAMPLES / "multi30k" / "paper-random.json"))
    # Table 1 of the paper: 60% pruned, -0.15 and -0.07.
    assert texts(table)[1] == ["60", "40.50 (-0.50)", "-1.25 to +0.25", "0.30", "3", "-0.15", "-0.07"]
    assert table.rows[1][1].mark == "" and "one-sample t-test of the samplings" in table.notes[0]


def cell(component, layer, head, delta, p_holm):
    return {"component": component, "layer": layer, "head": head, "delta": delta, "p": p_holm / 2, "p_holm": p_holm}


def test_single_heads():
    cells = [
        cell(c, 0, h, d, p)
        for c in ("enc_self", "enc_dec", "dec_self")
        for h, d, p in [(0, -1.5, 0.002), (1, 0.2, 0.4)]
    ]
    cells[1] = cell("enc_self", 1, 3, 0.3, 0.001)
    table = shown_studies.heads({"ablate-test2016": {"cells": cells, **_TESTED}})
    assert texts(table)[0] == ["test2016", "Enc-Enc", "2", "1", "1", "-1.50", "layer 1, head 1"]
    assert texts(table)[1] == ["test2016", "Enc-Dec", "2", "1", "0", "-1.50", "layer 1, head 1"]
    assert table.rows[0][5].mark == "holm" and table.notes[0].startswith("sig; layers and heads from 1; lose")


def test_epochs():
    # A score of 20 that falls by 2 with each tenth of the heads: 90% of it is kept at the first step.
    points = [
        {"percent": 10.0 * k, "score": 20 - 2 * k, "relative": 1 - k / 10, "p": 1.0, "p_holm": 1.0} for k in range(11)
    ]
    row = {"epoch": 3, "baseline": {"score": 20.0}, "curves": {"all": points}}
    table = shown_studies.epochs({"sweep": {"epochs": [row], "kept_within": {"all": {"3": 10.0}}, **_TESTED}})
    assert table.header == ["Epoch", "0%", "20%", "40%", "60%", "80%", "90% kept up to"]
    assert texts(table) == [["3", "20.00", "16.00 (80%)", "12.00 (60%)", "8.00 (40%)", "4.00 (20%)", "10%"]]
    assert "tests" not in table.notes[0] and "seed 1" in table.notes[0]


def test_slim_models():
    row = {"percent": 50, "config": {"ES": "21", "ED": "11"}, "parameters": {"before": 4_000_000, "after": 3_000_000}}
    row |= {
        "bytes": {"before": 0, "after": 2**21}, "bleu_masked": 30.0, "bleu_slim": 30.0, "identical": 9,
        "sentences": 10,
    }  # fmt: skip
    value = {"commands": {"unpruned": "fairseq-generate --fp16"}, "bleu_unpruned": 31.0, "rows": [row]}
    table = shown_models.SLIM.table({"slim": value | {"signature": "sig", "environment": _ENVIRONMENT}})
    assert texts(table) == [
        ["fp16", "50%", "ES=21 ED=11", "3.0 M (-25%)", "2 MiB", "31.00", "30.00", "30.00", "9 of 10"]
    ]
    assert table.notes == ["BLEU, sig; CPU, torch 2."]


def test_speed():
    rows = [
        {"model": name, "beam": 5, "batch_size": size, "speed": {"median": speed, "min": speed, "max": speed}}
        for size in (0, 16, 4)
        for name, speed in (("full.pt", 1.0), ("slim.pt", 1.25 + size))
    ]
    value = {"device": "cpu", "precision": "fp32", "threads": 2, "rows": rows, "environment": _ENVIRONMENT}
    value["models"] = {"full.pt": {"floor_speed": 1.0}, "slim.pt": {"floor_speed": 1.3}}
    table = shown.SPEED.table({"cpu": value})
    [note] = table.notes
    assert table.header == ["device", "beam", "batch", "slim.pt"]
    assert texts(table) == [
        ["2 CPU threads, fp32", "5", "4", "5.25 (5.25-5.25)"],
        ["2 CPU threads, fp32", "5", "16", "17.25 (17.25-17.25)"],
        ["2 CPU threads, fp32", "5", "max-tokens", "1.25 (1.25-1.25)"],
    ]
    assert "By multiply-adds: slim.pt 1.30" in note and "Operations" not in note
    for count, row in zip((4900, 3200), value["rows"][-2:], strict=True):
        row["operations"] = count
    [note] = shown.SPEED.table({"cpu": value}).notes
    assert "beam 5, unpruned and then as in the columns: 4,900, 3,200." in note


def test_ablation_speed_with_and_without_a_control():
    spread = {"median": 2.0, "min": 1.0, "max": 3.0}
    value = {"device": "cpu", "precision": "fp32", "masks": 3, "sentences": 4, "beam": 5, "rounds": 2}
    value |= {"seconds": {"many": spread, "loop": spread}, "speedup": spread, "floor_seconds": 1.5}
    value |= {"identical_hypotheses": 0.75, "environment": _ENVIRONMENT}
    control = {"control_masks": 2, "control_identical_hypotheses": 0.5, "control_many_identical_hypotheses": 0.625}
    table = shown.ABLATION.table({"a": value, "b": value | control | {"largest_bleu_difference": 0.0123}})
    assert [row[6:] for row in texts(table)] == [
        ["75.000%", None, None, None],
        ["75.000%", "62.500%", "50.000%", "0.012"],
    ]
    assert "at two batch sizes" in table.notes[0] and table.notes[0].startswith("Beam 5; median (min-max) of 2 rounds")
    # Alone the first one has no columns for what it did not measure.
    assert len(shown.ABLATION.table({"a": value}).header) == 7


def test_results_without_sentence_statistics_are_told():
    with_them, without = {"statistics": [{"split": "test"}]}, {"statistics": []}
    assert shown_studies.without_statistics([with_them]) == ""
    assert "1 of 2 results hold no sentence statistics" in shown_studies.without_statistics([with_them, without])
    assert "The results hold no sentence statistics" in shown_studies.without_statistics([{}, without])
    text = (tiny.ROOT / "docs" / "papers" / "michel2019.md").read_text()
    tables_of_tests = [part.split("<!-- end -->")[0] for part in text.split("<!-- table ")[1:]]
    tables_of_tests = [part for part in tables_of_tests if "(paired bootstrap of sentences" in part]
    told = ["p cannot be computed again." in part for part in tables_of_tests]
    # Of the results of this page prune-*.json alone hold them.
    assert told == ["/prune-*.json" not in part for part in tables_of_tests] and True in told and False in told


def test_trained_models_and_their_means():
    runs = [
        {"arch": arch, "seed": seed, "best_epoch": 3, "valid_loss": loss}
        | {name: {"bleu": bleu, "signature": "sig"} for name in ("test2016", "test2017", "mscoco2017")}
        for arch, seed, bleu, loss in [("t", 1, 40.0, 3.5), ("t", 2, 42.0, 3.7), ("t_gated", 1, 41.0, 3.5)]
    ]
    runs.append(runs[2] | {"seed": 2})
    value = {"runs": runs, "environment": _ENVIRONMENT | {"python": "3"}}
    assert texts(shown_models.TRAINED.table({"train": value}))[0] == ["t", "1", "40.00", "40.00", "40.00", "3", "3.500"]
    table = shown_models.TRAINED_MEANS.table({"train": value})
    assert texts(table)[0] == ["t", *["41.00 ± 1.41 (2)"] * 3, "3.600"]
    assert "test2016 +0.00 [" in table.notes[0] and "CPU, torch 2, Python 3" in table.notes[0]


def test_tables_are_written_between_their_markers(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(tables.KINDS, "slim", lambda values, _: [tables.Table(["a"], [["*"]], notes=[*values])])
    marker = "<!-- table slim multi30k/results/slim*.json -->"
    lines = ["before", marker, "old", "<!-- end -->", "after"]
    names = ["slim", "slim-fp16", "slim-small-cpu"]
    table = ["", "| a |", "| :-- |", "| \\* |", *(line for name in names for line in ("", name)), ""]
    found = tables.written(lines, "F.md").split("\n")
    assert found == ["before", marker, *table, "<!-- end -->", "after", ""]
    for wrong, why in [
        (lines[:3], "line 2: a table without <!-- end -->"),
        ([marker.replace("slim ", "fat "), *lines[2:]], "line 1: unknown table fat; known are bench-ablation, "),
        ([marker.replace("slim*", "x*"), *lines[2:]], "line 1: there is no examples/multi30k/results/x"),
    ]:
        (tmp_path / "F.md").write_text("\n".join(wrong))
        assert why in refused_script(capsys, "tables", "--write", tmp_path / "F.md")


def test_one_table_of_results_of_your_own(capsys):
    path = _EXAMPLES / "quickstart" / "results" / "prune.json"
    tiny.run_main(tables, "curves", path)
    assert capsys.readouterr().out.startswith("| pruned | Enc-Enc | Enc-Dec | Dec-Dec |")


def test_what_sentence_tests_mark_without_a_difference_stands_beside_them(tmp_path):
    # By hand: one of two other seeds has p = 0, below 2 x 2 / 1001.
    systems = [{"p": p, "p_holm": p} for p in (1.0, 0.0, 0.4)]
    write_json(tmp_path / "models.json", {"alpha": 0.01, "resamples": 1000, "seed": 1, "systems": systems})
    curves = {"all": [{"percent": 0, "score": 41.0, "p": 1.0, "p_holm": 1.0}]}
    write_json(tmp_path / "prune-all.json", {**_TESTED, "curves": curves})
    document = tables.document("curves", [tmp_path / "models.json", tmp_path / "prune-all.json"])
    [note] = document.notes
    assert texts(document.tables[0]) == [["0%", "41.00"]]
    assert "marks 1 of 2 with {holm} and 0 with {raw} (compare-models.json)" in note


def test_the_manual_is_what_the_command_writes():
    found = tables.pages()
    assert len(found) >= 8
    used = set()
    for path in found:
        text = path.read_text()
        assert tables.written(text.splitlines(), path) == text
        used |= {line.split()[2] for line in text.splitlines() if line.startswith("<!-- table ")}
    assert used == set(tables.KINDS)
