"""A study added in one file: its cells and its result; all else (running, resuming, every form of output) is shared."""

import shutil
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path

import pytest
import sacrebleu
import tiny
import toys

from fairseq_headprune.parts.scores import Scores
from fairseq_headprune.report.document import Curves
from fairseq_headprune.report.drawings import draw
from fairseq_headprune.report.page.document import page_document, page_entry, render
from fairseq_headprune.report.tables import Marked, Table
from fairseq_headprune.studies.ablate import Ablate
from fairseq_headprune.studies.mask_study import Comparison, MaskStudy, model_settings
from fairseq_headprune.studies.masked import MaskWork
from fairseq_headprune.studies.prune import Prune, PruneSettings
from fairseq_headprune.studies.results import with_delta, with_holm
from fairseq_headprune.studies.stored import read_study
from fairseq_headprune.studies.study import UNPRUNED, Cell, run


class WholeComponents(MaskStudy):
    """Mask every component whole; then the two that cost least, together."""

    name = "whole-components"

    def plan(self):
        masks = {c: self.start.without(self.start.kept([c])) for c in self.start.rows}
        return [self.unpruned(), *(Cell(c, mask, {"component": c}) for c, mask in masks.items())]

    def next(self, done):
        cheap = sorted((c for c in self.start.rows), key=lambda c: -done[c]["score"])[:2]
        mask = self.start.without(self.start.kept(cheap))
        return [] if "both" in done else [Cell("both", mask, {"component": "+".join(cheap)})]

    def planned(self):
        return 2 + len(self.start.rows)

    def result(self, cells):
        baseline, rest = cells.get(UNPRUNED), [cell for name, cell in cells.items() if name != UNPRUNED]
        document = self.document("Components masked whole", baseline, [], len(rest))
        document.state["done"] = len(cells)
        tested, family = with_holm([with_delta(cell, baseline) for cell in rest]), self.family(len(rest))
        rows = [[cell["component"], Marked(f"{cell['delta']:+.2f}", family.mark(cell))] for cell in tested]
        document.tables = [Table(["Component", "Difference"], rows, caption="Each component masked whole")]
        document.notes = [family.legend()]
        points = [{**cell, "percent": 100 * place / 4} for place, cell in enumerate([baseline, *tested])]
        document.charts = [
            Curves("Components", self.measure, baseline["score"], [{"name": "All", "points": points}], "c")
        ]
        document.findings = [f"{tested[-1]['component']} cost least"]
        document.data = {"cells": tested, **document.data}
        return document


def opened(folder, **more):
    session = toys.ToySession(**more)
    settings = {**model_settings(session, WholeComponents.name, "test"), **asdict(Comparison(resamples=1000))}
    study = WholeComponents(settings, session)
    study.open(folder)
    return study


@pytest.fixture
def finished(tmp_path):
    study = opened(tmp_path / "study")
    list(run(study, MaskWork(study)))
    return study


def test_it_runs_and_resumes(finished, tmp_path, monkeypatch):
    # Source: by hand: the unpruned model, three components, and the two that depend on them.
    cells = finished.folder.cells()
    assert list(cells) == ["unpruned", "enc_self", "enc_dec", "dec_self", "both"]
    # A copy, since the process that holds the first folder's claims lives.
    folder = shutil.copytree(finished.folder.path, tmp_path / "again")
    kept = (folder / "cells.jsonl").read_text().splitlines(keepends=True)
    (folder / "cells.jsonl").write_text("".join(kept[:3]) + kept[3][:20])
    monkeypatch.setattr(toys, "PACKS", packs := [])
    again = opened(folder)
    assert len(list(run(again, MaskWork(again)))) == 5 and packs == [1, 1]
    same = [{key: value for key, value in cell.items() if key != "seconds"} for cell in cells.values()]
    found = again.folder.cells().values()
    assert [{key: value for key, value in cell.items() if key != "seconds"} for cell in found] == same


@pytest.mark.parametrize(("at_once", "expected"), [(1, [1, 1, 1, 1, 1]), (2, [1, 2, 1, 1]), (8, [1, 3, 1])])
def test_masks_known_ahead_are_answered_in_packs(tmp_path, monkeypatch, at_once, expected):
    monkeypatch.setattr(toys, "PACKS", packs := [])
    study = opened(tmp_path / "s", masks_at_once=at_once)
    list(run(study, MaskWork(study)))
    assert packs == expected


def test_it_is_shown_in_every_form(finished):
    document = finished.result(finished.cells())
    text, markdown, latex = (document.render(form, ["f.png"]) for form in ("text", "markdown", "latex"))
    delta = f"{document.data['cells'][0]['delta']:+.2f}"
    assert document.data["cells"][0]["p_holm"] == 4 * 2 / 1001  # no resample of 1,000 is against it
    assert text.startswith("Each component masked whole\nComponent") and f"{delta}**" in text
    assert "** differs from unpruned" in text and document.findings[0]
    place = finished.folder.path
    assert text.endswith(f"{document.findings[0]}\nstudy {place}: look at f.png, or headprune open {place}")
    assert rf"| enc\_self | {delta}\*\* |" in markdown
    assert r"\begin{tabular}" in latex and "% bold and underlined: differs from unpruned" in latex
    assert [path.name for path in draw(document, finished.folder.figure_stem)] == ["c.png", "c.svg"]
    content = page_document([page_entry("mine", finished.name, document)], "title")
    [entry] = content["studies"]
    assert (entry["heading"], entry["done"], entry["planned"]) == ("Components masked whole", 5, 5)
    assert entry["parts"][1]["table"]["rows"][0][1] == {"text": delta, "mark": "holm"}
    page = render(content)
    assert "Each component masked whole" in page


def test_other_settings_are_refused(finished):
    finished.settings["alpha"] = 0.05
    with pytest.raises(ValueError, match="other settings: alpha is 0.01 there and 0.05 now"):
        finished.open(finished.folder.path)


def test_a_folder_of_format_1_opens_and_resumes(tmp_path, monkeypatch):
    # Source: a folder in the form of the first versions, with 4 of 5 cells; the toy model answers the fifth.
    folder = shutil.copytree(Path(__file__).with_name("data") / "old_ablation", tmp_path / "old")
    before, stored = (folder / "cells.jsonl").read_bytes(), read_study(folder)
    document = stored.result(stored.cells())
    assert document.missing[0].startswith("3 of 4 masks are done on test")
    monkeypatch.setattr(toys, "PACKS", packs := [])
    session = toys.ToySession({"enc_self": [2], "dec_self": [2]})
    study = Ablate.of(session, "test", "all", Comparison())
    study.open(folder)
    list(run(study, MaskWork(study)))
    assert packs == [1] and (folder / "cells.jsonl").read_bytes().startswith(before)
    document = study.result(study.cells())
    assert [round(cell["delta"], 2) for cell in document.data["cells"]][-1] == -4.4 and not document.missing
    # Four tests of 1,000 resamples: b = 0 gives 8 / 1001 after correction; the old cells have p = 0 there.
    assert document.data["found"]["significant"] == sum(cell["p_holm"] < 0.01 for cell in study_cells(document))


def test_the_number_of_resamples_follows_the_tests_unless_the_folder_has_one(tmp_path):
    # By hand: 12 heads are 12 tests, which need more than 2,400 resamples at .01.
    study = Ablate.of(toys.ToySession(), "test", "all", Comparison())
    assert study.tests == 12 and study.settings["resamples"] == 2500
    assert "2.5 times the work of 1,000" in study.notices()[0] and "fewer than 2,400" in study.notices()[0]
    assert Ablate.of(toys.ToySession(), "test", "all", Comparison(resamples=1000)).notices() == []
    Ablate.of(toys.ToySession(), "test", "all", Comparison(resamples=30)).open(tmp_path / "s")
    study.open(tmp_path / "s")
    assert study.settings["resamples"] == 30


def test_chrf_stands_beside_bleu(tmp_path):
    # Source: sacrebleu, on the translations in the folder.
    session, how = toys.ToySession(), Comparison(resamples=20)
    references = session.evaluator("test").references
    ranking = {c: [[float(i + j) for j in range(2)] for i in range(2)] for c in tiny.SHAPE}
    settings = PruneSettings(**asdict(how), order="file", step=Fraction(1, 2))
    studies = [
        Ablate.of(session, "test", "all", how),
        Prune.of(session, "test", settings, Scores(ranking, estimator="file"), "hash"),
    ]
    for study in studies:
        study.open(tmp_path / study.name)
        list(run(study, MaskWork(study)))
        cells = study.cells()
        for name, cell in cells.items():
            answers = (tmp_path / study.name / "hyps" / f"{name}.txt").read_text().splitlines()
            assert cell["chrf"] == pytest.approx(sacrebleu.corpus_chrf(answers, [references]).score, abs=1e-9)
            assert cell["chrf_signature"].startswith("nrefs:1|case:mixed|eff:yes|nc:6")
    ablated, pruned = (study.result(study.cells()) for study in studies)
    first, whole = ablated.data["cells"][1], ablated.data["baseline"]
    assert first["delta_chrf"] == first["chrf"] - whole["chrf"] != 0
    text = ablated.render()
    assert "difference in chrF without each head" in text and f"chrF: {whole['chrf']:.2f}" in text
    [table] = pruned.tables
    assert list(table.header) == ["Pruned", "All", "All (chrF)"]
    assert table.rows[1][2] == f"{pruned.data['curves']['all'][1]['chrf']:.2f}"
    lines = [line for line in pruned.render("csv").splitlines() if line and not line.startswith("#")]
    assert lines[0].startswith("Pruned,All,") and lines[0].endswith("All (chrF)") and len(lines) == 4
    # Folders of before have no chrF: nothing is said of it.
    for study in studies:
        old = {n: {k: v for k, v in cell.items() if "chrf" not in k} for n, cell in study.cells().items()}
        assert "chrF" not in study.result(old).render()


def study_cells(document):
    return document.data["cells"][1:]
