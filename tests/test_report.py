"""``headprune report``: what goes into the page, against what the verbs say of the same studies."""

import html.parser
import json
import shutil

import pytest
import sacrebleu
import tiny
from reports import HOSTILE, hand_ablation, hand_pruning, told
from verbs import generated, refused, run_json, stopped

from fairseq_headprune.cli import main
from fairseq_headprune.cli.report import document
from fairseq_headprune.files import read_lines
from fairseq_headprune.report.page.document import render
from fairseq_headprune.studies.folder import StudyFolder
from fairseq_headprune.studies.stored import read_study

PRUNE = ["--score-sentences", "20", "--step", "50%"]


@pytest.fixture(scope="module")
def studies(lively, flags, tmp_path_factory):
    """Verb -> {"folder", "said" (its JSON document), "argv"} of one study each."""
    folder, run = tmp_path_factory.mktemp("studies"), tmp_path_factory.mktemp("run")
    for epoch in (1, 2):
        shutil.copy(lively["checkpoint"], run / f"checkpoint{epoch}.pt")
    found = {
        "ablate": flags,
        "keep-one": [*flags, "--components", "dec_self"],
        "prune": [*flags, *PRUNE, "--components", "each"],
        "sweep-epochs": [flags[0], *flags[3:], *PRUNE, "--checkpoints", run],
    }
    return {
        verb: {"folder": folder / verb, "said": run_json(verb, *argv, "-o", folder / verb), "argv": argv}
        for verb, argv in found.items()
    }


@pytest.fixture(scope="module")
def content(studies):
    return document([study["folder"] for study in studies.values()], "title")


def entry(content, kind):
    return next(study for study in content["studies"] if study["kind"] == kind)


def map_cells(study):
    [head_map] = study["maps"]
    parts = [(part["component"], sum(part["layers"], [])) for part in head_map["components"]]
    return [{**cell, "component": component} for component, cells in parts for cell in cells]


def same(values, cell):
    """Whether these values, apart from the texts of the page, are those of a cell of the verb."""
    return all(values[name] == cell[name] for name in values if name in cell)


def test_head_maps_hold_what_the_verbs_say(content, studies):
    # Source: the verbs' own documents.
    cells = map_cells(entry(content, "ablate"))
    said = studies["ablate"]["said"]["cells"][1:]
    assert len(cells) == len(said) == 12 and all(map(same, cells, said))
    cells, said = map_cells(entry(content, "keep-one")), studies["keep-one"]["said"]
    assert len(cells) == 4 and all(map(same, cells, said["candidates"]))
    best = [cell for cell in cells if "reported" in cell]
    assert len(best) == len(said["cells"]) == 2
    for cell, reported in zip(best, said["cells"], strict=True):
        assert cell["head"] == reported["head"] and same(cell["reported"], reported)
    scores = json.loads((studies["prune"]["folder"] / "scores.json").read_text())["scores"]
    for cell in map_cells(entry(content, "prune")):
        assert cell["importance"] == scores[cell["component"]][cell["layer"]][cell["head"]]


def test_curves_hold_what_the_verbs_say(content, studies):
    said = studies["prune"]["said"]["curves"]
    [chart] = entry(content, "prune")["charts"]
    assert [curve["name"] for curve in chart["curves"]] == ["Enc-Enc", "Enc-Dec", "Dec-Dec"]
    for curve, points in zip(chart["curves"], said.values(), strict=True):
        assert len(points) == 3 and all(map(same, curve["points"], points))
    [chart] = entry(content, "sweep-epochs")["charts"]
    assert chart["kind"] == "epochs" and chart["panel"] == [1, 2]
    for row, epoch in zip(chart["epochs"], studies["sweep-epochs"]["said"]["epochs"], strict=True):
        assert (row["epoch"], row["unpruned"]) == (epoch["epoch"], epoch["baseline"]["score"])
        assert all(map(same, row["points"], epoch["curves"]["all"]))
        assert [point["relative"] for point in row["points"]] == [p["relative"] for p in epoch["curves"]["all"]]


@pytest.mark.parametrize("verb, tables", [("ablate", 7), ("keep-one", 1), ("prune", 1), ("sweep-epochs", 2)])
def test_tables_are_those_the_verbs_print(content, studies, verb, tables, capsys):
    assert main([verb, *map(str, studies[verb]["argv"]), "-o", str(studies[verb]["folder"])]) == 0
    printed = capsys.readouterr().out
    study, stored = entry(content, verb), read_study(studies[verb]["folder"])
    parts = stored.result(stored.cells()).parts()
    texts = [part.render() for part in parts if not isinstance(part, str)]
    assert len(texts) == tables and all(text in printed for text in texts)
    lines = printed.splitlines()
    assert all(part in lines for part in parts if isinstance(part, str))
    # The page differs only in that layers and heads count from 0, as in its maps.
    if verb == "ablate":
        assert [row.split()[0] for row in list(told(study))[0].splitlines()] == ["Layer/Head", "----------", "0", "1"]
        assert "counted from 0" in study["parts"][0]["text"] and "counted from 1" in parts[0]
    elif verb != "keep-one":
        assert list(told(study)) == texts
    assert study["found"] and all(text in lines for text in study["found"])
    assert study["signature"] in printed and not study["missing"]


def test_provenance_is_all_of_study_json(content, studies):
    for verb, study in studies.items():
        stored = json.loads((study["folder"] / "study.json").read_text())
        assert entry(content, verb)["provenance"] == {"settings": stored["settings"], "runs": stored["runs"]}
        # Printing the tables again (the test before this one) is no other run.
        assert [run["command"].split()[:2] for run in stored["runs"]] == [["headprune", verb]]


def test_examples_change_most(content, studies, lively):
    # Source: sacrebleu's sentence chrF of every sentence; fairseq-generate for source and reference.
    folder = studies["ablate"]["folder"]
    argv = [lively["data"], "--path", lively["checkpoint"], "--cpu", "--task", "translation_headprune"]
    sides = {"source": generated("S", *argv), "reference": generated("T", *argv)}
    sides["unpruned"] = read_lines(folder / "hyps" / "unpruned.txt")
    study, shown = entry(content, "ablate"), 0
    sentences = study["maps"][0]["sentences"]
    for cell in map_cells(study):
        masked = read_lines(folder / "hyps" / f"{cell['id']}.txt")
        pairs = zip(sides["unpruned"], masked, sides["reference"], strict=True)
        scores = [[sacrebleu.sentence_chrf(text, [ref]).score for text in (base, other)] for base, other, ref in pairs]
        change = {i: abs(b - a) for i, (a, b) in enumerate(scores) if masked[i] != sides["unpruned"][i]}
        largest = sorted(change.values(), reverse=True)[:2]
        assert [example["change"] for example in cell["examples"]] == pytest.approx(largest)
        for example in cell["examples"]:
            place = example["sentence"] - 1
            assert example["chrf"] == pytest.approx(scores[place]) and example["translation"] == masked[place]
            assert sentences[str(place + 1)] == {side: lines[place] for side, lines in sides.items()}
            shown += 1
    assert shown >= 12 and "nc:6" in study["maps"][0]["measure"]["signature"]


def test_a_study_without_references_compares_translations(studies, tmp_path):
    # Source: sacrebleu, the unpruned translation in the place of the reference.
    folder = tmp_path / "study"
    shutil.copytree(studies["ablate"]["folder"], folder)
    shutil.rmtree(folder / "texts")
    [study] = document([folder], "title", examples=1)["studies"]
    assert study["missing"] == ["sources and references: headprune ablate, run again with its settings, adds them"]
    assert "since the study keeps no references" in study["maps"][0]["measure"]["text"]
    base = read_lines(folder / "hyps" / "unpruned.txt")
    for cell in map_cells(study):
        masked = read_lines(folder / "hyps" / f"{cell['id']}.txt")
        least = min(sacrebleu.sentence_chrf(text, [other]).score for text, other in zip(masked, base, strict=True))
        expected = pytest.approx([100 - least] if least < 100 else [])
        assert [example["change"] for example in cell["examples"]] == expected
    run_json("ablate", *studies["ablate"]["argv"], "-o", folder)
    assert document([folder], "title")["studies"][0]["missing"] == []


def test_a_study_without_its_outputs_says_that_p_cannot_be_computed_again(studies, tmp_path):
    # By hand: 13 cells; two lose their translations.
    told = "cells are not kept: their p cannot be computed again"
    folder = shutil.copytree(studies["ablate"]["folder"], tmp_path / "study")
    texts = lambda: [part.get("text", "") for part in document([folder], "title")["studies"][0]["parts"]]  # noqa: E731
    assert not any(told in text for text in texts())
    for path in sorted((folder / "hyps").iterdir())[:2]:
        path.unlink()
    assert f"the outputs of 2 of 13 {told}" in texts()


def test_unfinished_studies_say_what_is_missing(studies, tmp_path):
    # Source: by hand, from the lines that were kept: 5 of 13, 3 of 8 (2 on valid), 4 of 7, 1 of 2 cells.
    kept = {"ablate": 5, "keep-one": 3, "prune": 4, "sweep-epochs": 1}
    for verb, lines in kept.items():
        stopped(studies[verb]["folder"], tmp_path / verb, lines)
    found = {study["kind"]: study for study in document([tmp_path / verb for verb in kept], "title")["studies"]}
    assert {verb: (study["done"], study["planned"]) for verb, study in found.items()} == {
        "ablate": (5, 13), "keep-one": (3, 8), "prune": (4, 7), "sweep-epochs": (1, None),
    }  # fmt: skip
    starts = ["4 of 12 masks are done on test", "2 of 4 masks are done on valid", "4 of 7 steps", "epoch 2 is begun"]
    assert all(study["missing"][0].startswith(start) for study, start in zip(found.values(), starts, strict=True))
    cells = map_cells(found["ablate"])
    assert [cell["p_holm"] for cell in cells[:4]] == [None] * 4 and {c["state"] for c in cells[4:]} == {"missing"}
    assert found["ablate"]["found"] == found["prune"]["found"] == [] != found["sweep-epochs"]["found"]
    # A study whose first cell is not done is shown, too.
    for verb in kept:
        (tmp_path / verb / "cells.jsonl").write_text("")
    empty = document([tmp_path / verb for verb in kept], "title")["studies"]
    assert all(study["done"] == 0 and study["unpruned"] is None and study["missing"] for study in empty)


def test_gaps_of_a_sweep_are_told(studies, tmp_path):
    # The second of two epochs becomes the fifth.
    sweep = shutil.copytree(studies["sweep-epochs"]["folder"], tmp_path / "sweep")
    (sweep / "epochs" / "002").rename(sweep / "epochs" / "005")
    cells = sweep / "cells.jsonl"
    cells.write_text(cells.read_text().replace('"epoch": 2', '"epoch": 5').replace("epoch-002", "epoch-005"))
    assert document([sweep], "title")["studies"][0]["missing"] == ["no result for epochs 2-4"]


def test_curves_of_the_same_model_are_drawn_together(tmp_path):
    folders = [hand_pruning(tmp_path / name) for name in ("one", "two")]
    folders.append(hand_pruning(tmp_path / "chance", "random"))
    [chart] = document(folders, "title")["together"]
    assert [curve["name"] for curve in chart["curves"]] == ["All (scores), one", "All (scores), two", "All (random)"]
    # Another checkpoint does not belong there.
    path = tmp_path / "two" / "study.json"
    path.write_text(path.read_text().replace("c" * 64, "d" * 64))
    assert document(folders, "title")["together"][0]["studies"] == ["one", "chance"]


def test_several_random_orders_are_shown_as_their_mean(tmp_path):
    # Source: by hand: 21.25 and 23.25 BLEU have the mean 22.25 and the standard deviation sqrt(2).
    [study] = document([hand_pruning(tmp_path / "done", "random", seeds=(1, 2))], "title")["studies"]
    [curve] = study["charts"][0]["curves"]
    assert curve["name"] == "All" and curve["points"][1]["score"] == pytest.approx(22.25)
    assert curve["points"][1]["sd"] == pytest.approx(2**0.5) and study["planned"] == study["done"] == 5
    row = [cell["text"] for cell in study["parts"][1]["table"]["rows"][1]]
    assert row == ["50%", "21.25", "23.25", "22.25 (sd 1.41)"]
    # Unfinished, each order has its own curve.
    [study] = document([hand_pruning(tmp_path / "half", "random", 1, (1, 2))], "title")["studies"]
    assert [len(curve["points"]) for curve in study["charts"][0]["curves"]] == [2, 2] and study["done"] == 3


class Links(html.parser.HTMLParser):
    """Collects what a page refers to, and the tags inside its body."""

    def __init__(self, text):
        super().__init__()
        self.found, self.tags = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.found += [value for name, value in attributes if name in ("src", "href", "action", "data")]


def test_the_page_is_one_file_and_escapes_all_text(tmp_path):
    found = document([hand_ablation(tmp_path / "a")], HOSTILE[0])
    page = render(found)
    links = Links(page)
    assert links.found == ["data:,"] and links.tags.count("script") == 3
    assert page.count("</script") == 3 and "http://127" in page
    assert "@import" not in page and "url(" not in page and "default-src 'none'" in page
    inside = page.split('id="document">')[1].split("</script>")[0]
    assert json.loads(inside) == found
    assert render(document([tmp_path / "a"], HOSTILE[0])) == page


def test_the_verb_writes_the_page_and_says_what_is_in_it(tmp_path, capsys):
    studies = [hand_ablation(tmp_path / "a"), hand_pruning(tmp_path / "p", done=1)]
    value = run_json("report", *studies, studies[0], "-o", tmp_path / "report.html", "--title", "Mine")
    assert value["bytes"] == (tmp_path / "report.html").stat().st_size and value["title"] == "Mine"
    assert [(s["name"], s["done"], s["planned"], s["examples"]) for s in value["studies"]] == [
        ("a", 6, 6, 9), ("p", 2, 3, 0),
    ]  # fmt: skip
    assert main(["report", str(studies[1]), "-o", str(tmp_path / "report.html")]) == 0
    out = capsys.readouterr().out
    assert "p: prune on test, 2 of 3 cells, 0 maps, 1 charts" in out and "missing: 2 of 3 steps" in out


def test_wrong_input_is_refused_and_nothing_is_written(tmp_path, capsys):
    good, page = hand_ablation(tmp_path / "a"), tmp_path / "report.html"
    (tmp_path / "empty").mkdir()
    StudyFolder.open(tmp_path / "other", {"study": "later"})
    StudyFolder.open(tmp_path / "bare", {"study": "ablate"})
    damaged = shutil.copytree(good, tmp_path / "damaged")
    (damaged / "hyps" / "enc_self-0-1.txt").write_text("one line\n")
    before = sorted(tmp_path.iterdir())
    for argv, message in (
        ([good, tmp_path / "empty"], "empty is not a study folder: it holds no study.json; name folders that"),
        ([tmp_path / "nowhere"], "nowhere: there is no such folder; name folders that"),
        ([tmp_path / "other"], "is a study of headprune later; a report shows studies of ablate, keep-one"),
        ([tmp_path / "bare"], "bare is damaged: 'start' is not in it"),
        ([damaged], "enc_self-0-1.txt has 1 lines, the unpruned model's translations have 3"),
        ([good, "--examples", "-1"], "--examples must be at least 0, got -1"),
    ):
        assert message in refused(capsys, "report", *argv, "-o", page)
    assert "name a file in it" in refused(capsys, "report", good, "-o", tmp_path)
    assert "there is no folder" in refused(capsys, "report", good, "-o", tmp_path / "nowhere" / "report.html")
    assert sorted(tmp_path.iterdir()) == before
    assert "is a file of the study" in refused(capsys, "report", good, "-o", good / "study.json") and StudyFolder(good)


def test_the_package_brings_the_parts_of_the_page(tmp_path):
    # Source: the files in the source tree.
    built = tiny.run_python(
        "setup.py", "-q", "egg_info", "-e", tmp_path, "build_py", "-d", tmp_path / "lib", cwd=tiny.ROOT
    )
    assert built.returncode == 0, built.stderr
    place = "fairseq_headprune/report/page/static"
    names = {path.name for path in (tiny.ROOT / place).iterdir()}
    assert names == {path.name for path in (tmp_path / "lib" / place).iterdir()} and "page.html" in names
