"""``headprune correlate`` on hand-made studies, and the coefficients it computes."""

import math
import xml.etree.ElementTree as ET

import pytest
from ablations import write_ablation
from reports import COMPARISON
from scipy import stats
from verbs import refused, run_json

from fairseq_headprune.cli import main
from fairseq_headprune.evaluation.correlation import correlations
from fairseq_headprune.files import write_json
from fairseq_headprune.parts import Mask
from fairseq_headprune.studies.ablate import Ablate

FIRST, SECOND = [0.1, -0.5, 0.3, -2.0, 0.05], [0.4, -0.2, -0.1, -1.5, 0.2]


@pytest.fixture
def studies(tmp_path):
    return write_ablation(tmp_path / "a", FIRST), write_ablation(tmp_path / "b", SECOND, "mtnt", baseline=20.0)


def test_closed_forms():
    # Source: by hand. r = 1 - 6 * 2 / (4 * 15) = .8 (these are ranks, so both coefficients agree);
    # for n = 4 the t statistic is r sqrt(2 / (1 - r^2)), whose two-sided p with 2 degrees of freedom is 1 - r.
    found = correlations([1, 2, 3, 4], [1, 3, 2, 4])
    for coefficient in found.values():
        assert coefficient.value == pytest.approx(0.8) and coefficient.p == pytest.approx(0.2)
    # tanh(atanh(.8) -+ 1.959964 / sqrt(1)), and for Spearman with the standard error sqrt(1 + .8^2 / 2).
    for name, error in (("pearson", 1.0), ("spearman", math.sqrt(1.32))):
        expected = [math.tanh(math.log(9) / 2 + sign * 1.959964 * error) for sign in (-1, 1)]
        assert found[name].ci == pytest.approx(expected, abs=1e-6)


def test_perfect_correlation():
    # Source: the definition: a rising line has r = 1, a falling one -1; a monotone curve only rho = 1.
    found = correlations([1, 2, 3, 4, 5], [-2, -4, -6, -8, -10])
    assert [c.value for c in found.values()] == pytest.approx([-1, -1])
    assert found["spearman"].ci[0] == pytest.approx(-1) and found["pearson"].ci[1] == pytest.approx(-1)
    curve = correlations([1, 2, 3, 4, 5], [1, 16, 81, 256, 625])
    assert curve["spearman"].value == pytest.approx(1) and curve["pearson"].value < 0.95


def test_against_scipy(studies):
    # Source: scipy's own functions on the hand-made differences, and its own Fisher interval.
    found = run_json("correlate", *studies)
    pearson, spearman = stats.pearsonr(FIRST, SECOND), stats.spearmanr(FIRST, SECOND)
    assert found["pearson"]["value"] == pytest.approx(pearson.statistic)
    assert found["pearson"]["p"] == pytest.approx(pearson.pvalue)
    assert found["pearson"]["ci"] == pytest.approx(list(pearson.confidence_interval(0.95)))
    assert found["spearman"]["value"] == pytest.approx(spearman.statistic)
    assert found["spearman"]["p"] == pytest.approx(spearman.pvalue)
    assert found["heads"] == 5 and found["figures"] == [] and found["checkpoint"] == "c" * 64
    assert found["effects"][3] == {
        "component": "enc_self", "layer": 1, "head": 0, "delta": pytest.approx([-2.0, -1.5]),
    }  # fmt: skip
    assert [study["data"]["split"] for study in found["studies"]] == ["test", "mtnt"]


def test_the_figure_and_the_table(studies, tmp_path, capsys):
    names = ["--names", "newstest2014", "MTNT"]
    assert main(["correlate", *map(str, studies), "--figure", str(tmp_path / "fig.png"), *names]) == 0
    out = capsys.readouterr().out
    # Source: scipy, by the test above: the effects' r.
    r = stats.pearsonr(FIRST, SECOND).statistic
    assert f"the effects of 5 heads on the two test sets correlate with r = {r:.2f}" in out
    assert "Bonett and Wright" in out and (tmp_path / "fig.png").stat().st_size > 1000
    text = ["".join(t.itertext()) for t in ET.parse(tmp_path / "fig.svg").iter("{http://www.w3.org/2000/svg}text")]
    assert {"BLEU on newstest2014", "BLEU on MTNT", "Original scores", "Enc-Enc"} <= set(text)
    rho = stats.spearmanr(FIRST, SECOND).statistic
    assert f"Head ablation scores (Pearson {r:.2f}, Spearman {rho:.2f})" in text and "MTNT: " in out
    groups = {g.get("id"): g for g in ET.parse(tmp_path / "fig.svg").iter("{http://www.w3.org/2000/svg}g")}
    # One marker a head.
    assert len(list(groups["heads-enc_self"].iter("{http://www.w3.org/2000/svg}use"))) == 5
    assert main(["correlate", *map(str, studies), "--format", "latex"]) == 0
    assert r"\begin{tabular}" in capsys.readouterr().out


def test_printed_studies_tell_the_same_and_how_they_were_made(tmp_path, capsys):
    # Source: the folders, tested above.
    folders, files = [], []
    for name, deltas, split in (("a", FIRST, "test"), ("b", SECOND, "mtnt")):
        folders.append(write_ablation(tmp_path / name, deltas, split, **COMPARISON))
        files.append(tmp_path / f"{name}.json")
        study = Ablate.read(folders[-1])
        made = {"runs": [{"git": {"commit": name, "dirty": False}}], "updates": 7, "data_files": {f"{split}.bin": "0"}}
        write_json(files[-1], study.result(study.cells()).data | made)
    found, same = run_json("correlate", *files), run_json("correlate", *folders)
    for key in ("pearson", "spearman", "effects", "checkpoint", "heads"):
        assert found[key] == same[key]
    for one, name, split in zip(found["studies"], "ab", ("test", "mtnt"), strict=True):
        assert one["runs"] == [{"git": {"commit": name, "dirty": False}}]
        assert one["updates"] == 7 and one["data_files"] == {f"{split}.bin": "0"}
    write_json(tmp_path / "other.json", {"settings": {"study": "prune"}})
    line = refused(capsys, "correlate", files[0], tmp_path / "other.json")
    assert "other.json is not what headprune ablate --json prints of a finished study" in line
    write_json(tmp_path / "cut.json", {"settings": {"study": "ablate"}, "cells": [{}]})
    assert "cut.json is damaged" in refused(capsys, "correlate", files[0], tmp_path / "cut.json")


def test_studies_that_do_not_compare_are_refused(studies, tmp_path, capsys):
    first, _ = studies
    other = write_ablation(tmp_path / "other", SECOND, checkpoint="d" * 64)
    line = refused(capsys, "correlate", first, other)
    assert "different checkpoints" in line and "c" * 64 in line and "d" * 64 in line
    few = {"enc_self": [3]}
    small = [write_ablation(tmp_path / name, FIRST[:3], shape=few) for name in ("x", "y")]
    assert "at least 4 pairs, got 3" in refused(capsys, "correlate", *small)
    level = write_ablation(tmp_path / "level", [0.0] * 5)
    line = refused(capsys, "correlate", first, level)
    assert "all 5 values of the second side are 0: without variance there is no correlation" in line
    assert "not finished" in refused(capsys, "correlate", first, write_ablation(tmp_path / "part", FIRST[:2]))
    assert "none: there is no such folder" in refused(capsys, "correlate", first, tmp_path / "none")
    start = Mask({"enc_self": [[1, 1, 1], [1, 0]]}).rows
    masked = write_ablation(tmp_path / "masked", FIRST[:4], start=start)
    assert "start from different masks" in refused(capsys, "correlate", first, masked)
    both = {"enc_self": [2], "dec_self": [2]}
    whole = write_ablation(tmp_path / "whole", FIRST[:4], shape=both)
    part = write_ablation(tmp_path / "half", FIRST[:2], shape=both, components=["enc_self"])
    assert "ablates enc_self, dec_self" in refused(capsys, "correlate", whole, part)


def test_models_of_two_tasks_compare(tmp_path, capsys):
    # Source: scipy; two tasks of GLUE are two fine-tuned checkpoints of one encoder.
    def task(name, checkpoint):
        data = {"split": "dev", "task": name, "sha256": {}}
        return {"data": data, "metric": "accuracy", "checkpoint": checkpoint * 64}

    first = write_ablation(tmp_path / "a", FIRST, **task("MNLI", "c"))
    second = write_ablation(tmp_path / "b", SECOND, **task("SST-2", "d"))
    found = run_json("correlate", first, second, "--figure", tmp_path / "figure")
    assert found["pearson"]["value"] == pytest.approx(stats.pearsonr(FIRST, SECOND).statistic)
    assert [study["checkpoint"][0] for study in found["studies"]] == ["c", "d"] and "checkpoint" not in found
    texts = {element.text for element in ET.parse(tmp_path / "figure.svg").iter() if element.text}
    assert {"accuracy on MNLI dev", "accuracy on SST-2 dev"} <= texts
    assert main(["correlate", str(first), str(second)]) == 0
    assert "MNLI dev: " in capsys.readouterr().out
    same = write_ablation(tmp_path / "e", SECOND, **task("MNLI", "d"))
    assert "of different checkpoints" in refused(capsys, "correlate", first, same)


def test_numbers_that_have_no_correlation_are_refused():
    with pytest.raises(ValueError, match="not finite"):
        correlations([1, 2, 3, float("nan")], [1, 2, 3, 4])
    with pytest.raises(ValueError, match="4 values on one side and 5 on the other"):
        correlations([1, 2, 3, 4], [1, 2, 3, 4, 5])
    with pytest.raises(ValueError, match="values of the first side are 7"):
        correlations([7, 7, 7, 7], [1, 2, 3, 4])


def test_doubtful_pairs_are_warned_of(studies, tmp_path, capsys):
    first, second = studies
    run_json("correlate", first, second)
    assert "warning" not in capsys.readouterr().err
    run_json("correlate", first, first)
    assert "of the same test set" in capsys.readouterr().err
    run_json("correlate", first, write_ablation(tmp_path / "c", SECOND, "mtnt", generation={"beam": 1}))
    assert "translate with different settings" in capsys.readouterr().err
