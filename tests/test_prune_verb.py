"""``headprune prune`` on a tiny checkpoint: the study folder, its cells, and how it goes on."""

import json
import re

import pytest
from verbs import BEAM, cells, count_masks, generated, holm_by_hand, mask, refused, run_json, stopped

from fairseq_headprune.cli import main
from fairseq_headprune.files import read_lines
from fairseq_headprune.modules import multihead
from fairseq_headprune.parts import HEADS
from fairseq_headprune.parts.scores import Scores
from fairseq_headprune.studies import estimates

SCORE = ["--score-sentences", "20"]
CELL_KEYS = {"id", "curve", "step", "percent", "pruned", "kept", "score", "ci", "wins", "losses", "ties", "p"}


@pytest.fixture(scope="module")
def flags(flags):
    return [*flags, *SCORE]


@pytest.fixture(scope="module")
def joint(flags, tmp_path_factory):
    """All heads jointly, 25% a step: {"folder", "document"}."""
    folder = tmp_path_factory.mktemp("joint") / "study"
    return {"folder": folder, "document": run_json("prune", *flags, "-o", folder, "--step", "25%")}


@pytest.fixture(scope="module")
def each(flags, tmp_path_factory):
    """Every component by itself, 50% a step, as ``joint``."""
    folder = tmp_path_factory.mktemp("each") / "study"
    argv = ["-o", folder, "--components", "each", "--step", "50%"]
    return {"folder": folder, "document": run_json("prune", *flags, *argv)}


def test_the_study_folder(joint):
    folder = joint["folder"]
    ids = ["unpruned", "all-01", "all-02", "all-03", "all-04"]
    found = cells(folder)
    assert [cell["id"] for cell in found] == ids
    assert all(CELL_KEYS <= set(cell) and cell["signature"] for cell in found)
    # Source: by hand, 12 heads.
    assert [cell["pruned"] for cell in found] == [0, 3, 6, 9, 12]
    assert [cell["percent"] for cell in found] == [0, 25, 50, 75, 100]
    for cell in found:
        kept = mask(folder, cell["id"])
        assert len(kept.dropped()) == cell["pruned"] == 12 - sum(cell["kept"].values())
        assert len(read_lines(folder / "hyps" / f"{cell['id']}.txt")) == 8
    assert mask(folder, "all-04").kept() == []
    assert sorted(path.name for path in (folder / "masks").iterdir()) == sorted(f"{name}.json" for name in ids)
    settings = json.loads((folder / "study.json").read_text())["settings"]
    assert settings["resamples"] == 50 and settings["step"] == "1/4" and settings["score"]["sentences"] == 20
    assert settings["data"]["split"] == "test" and settings["score_data"]["split"] == "train"
    assert settings["generation"]["beam"] == 2
    names = {path.name for path in (folder / "figures").iterdir()}
    assert names == {f"{stem}.{end}" for stem in ("pruning", "scores") for end in ("png", "svg")}


def test_the_document(joint):
    found = joint["document"]
    assert set(found["curves"]) == {"all"} and len(found["curves"]["all"]) == 5
    assert found["study"] == str(joint["folder"]) and len(found["figures"]) == 4
    assert found["data"]["split"] == "test" and found["score_data"] == {"split": "train", "of": 60, "sentences": 20}
    # How the numbers were computed: all settings, the checkpoint's hash, and where each run computed.
    study = json.loads((joint["folder"] / "study.json").read_text())
    assert found["settings"] == study["settings"] and found["runs"] == study["runs"] != []
    assert found["checkpoint"]["sha256"] == found["settings"]["checkpoint"]
    first, *steps = found["curves"]["all"]
    assert [cell["p_holm"] for cell in steps] == pytest.approx(holm_by_hand([cell["p"] for cell in steps]))
    # Source: the definition; identical systems.
    assert (first["p"], first["wins"], first["losses"], first["ties"]) == (1.0, 0.0, 0.0, 1.0)
    assert all(cell["wins"] + cell["losses"] + cell["ties"] == pytest.approx(1) for cell in steps)


def test_scores_equal_the_score_verb_and_lead_the_pruning(joint, flags):
    # Source: headprune score with the same flags; the order is ascending importance.
    stored = json.loads((joint["folder"] / "scores.json").read_text())
    scored = run_json("score", *[flag for flag in flags if flag not in ("--resamples", "50")])
    # study.json has the environment, the study's document both.
    assert stored == {key: value for key, value in scored.items() if key not in ("environment", "origin")}
    order = Scores.load(joint["folder"] / "scores.json").pruning_order()
    for cell in cells(joint["folder"]):
        assert set(mask(joint["folder"], cell["id"]).dropped()) == set(order[: cell["pruned"]])


def test_each_prunes_just_one_component(each):
    folder = each["folder"]
    assert list(each["document"]["curves"]) == list(HEADS)
    order = Scores.load(folder / "scores.json")
    assert len(cells(folder)) == 1 + 3 * 2
    for component in HEADS:
        # Source: by hand, 4 heads a component: 2, then all 4.
        for step, count in ((1, 2), (2, 4)):
            found = mask(folder, f"{component}-{step:02d}").dropped()
            assert set(found) == set(order.pruning_order([component])[:count])
        points = each["document"]["curves"][component]
        assert [point["pruned"] for point in points] == [0, 2, 4]
        assert points[0]["id"] == "unpruned" and points[0]["p_holm"] == 1.0


def test_a_stopped_study_goes_on_where_it_stopped_and_a_finished_one_is_only_shown(each, flags, tmp_path, monkeypatch):
    # Source: the study that was never stopped. A stop may leave a mask and hypotheses without their cell.
    folder = stopped(each["folder"], tmp_path / "study", 3, 40)
    packs = count_masks(monkeypatch)
    argv = ["prune", *flags, "-o", folder, "--components", "each", "--step", "50%"]
    run_json(*argv)
    assert cells(folder) == cells(each["folder"]) and packs == [4]
    monkeypatch.setattr(estimates, "estimate_scores", lambda *_: pytest.fail("nothing is left to compute"))
    before = (folder / "cells.jsonl").read_bytes()
    again = run_json(*argv)["curves"]
    assert packs == [4] and (folder / "cells.jsonl").read_bytes() == before
    assert [[p["p_holm"] for p in c] for c in again.values()] == [
        [p["p_holm"] for p in c] for c in each["document"]["curves"].values()
    ]


@pytest.mark.parametrize(
    "other, name",
    [
        (["--step", "20%"], "step"),
        (["--step", "25%", "--beam", "3"], "beam"),
        (["--step", "25%", "--score-seed", "9"], "seed"),
        (["--step", "25%", "--preset", "michel-2019"], "score.normalize"),
        (["--step", "25%", "--bf16"], "precision"),
        (["--step", "25%", "--model-overrides", "{'dropout': 0.5}"], "model_overrides"),
    ],
)
def test_a_folder_of_another_study_is_refused_and_left_alone(joint, flags, other, name, capsys):
    before = {path: path.read_bytes() for path in joint["folder"].rglob("*") if path.is_file()}
    line = refused(capsys, "prune", *flags, "-o", joint["folder"], *other)
    assert "other settings" in line and name in line
    assert {path: path.read_bytes() for path in joint["folder"].rglob("*") if path.is_file()} == before


def test_tables_in_other_forms(joint, flags, capsys):
    argv = ["prune", *map(str, flags), "-o", str(joint["folder"]), "--step", "25%"]
    forms = {}
    for form in ("text", "markdown", "latex", "csv"):
        assert main([*argv, "--format", form]) == 0
        forms[form] = capsys.readouterr().out
    unpruned = f"{joint['document']['baseline']['score']:.2f}"
    assert f"| 0% | {unpruned} |" in forms["markdown"] and re.search(rf"^ +0% +{unpruned}", forms["text"], re.M)
    before, table = forms["latex"].split(r"\begin{tabular}")
    assert before.startswith("% ") and rf"0\% & {unpruned} & " in table
    chrf = f"{joint['document']['baseline']['chrf']:.2f}"
    lines = [line for line in forms["csv"].splitlines() if line and not line.startswith("# ")]
    assert lines[1].startswith(f"0%,{unpruned},") and lines[1].endswith(f",{chrf}") and len(lines) == 6
    assert all(line.startswith("% ") for line in table.split(r"\end{tabular}")[1].strip().splitlines())


def test_importance_is_told_with_the_sentences_that_were_read(joint, flags, tmp_path, capsys):
    # Source: the test's data: 60 sentences of train, of which SCORE takes 20; test has 8.
    assert joint["document"]["score_data"]["sentences"] == 20
    few = [*flags, "--step", "1"]
    argv = ["--score-subset", "test", "--score-sentences", "2000", "--bleu", "tok"]
    found = run_json("prune", *few, "-o", tmp_path / "test", *argv)
    assert (found["score_data"]["split"], found["score_data"]["sentences"]) == ("test", 8)
    assert "importance and results both come from test" in capsys.readouterr().err
    # Tokenised BLEU is named in the signature.
    assert "13a" in joint["document"]["signature"] and "13a" not in found["signature"] != ""
    three = ["--score-subset", "train", "--score-sentences", "3", "-o", tmp_path / "three.json"]
    run_json("score", *flags[:3], "--cpu", *three)
    found = run_json("prune", *few, "-o", tmp_path / "three", "--order", tmp_path / "three.json")
    assert found["score_data"]["sentences"] == 3 and "both come from" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong, message",
    [
        (["--step", "0"], "--step 0 is out of range"),
        (["--step", "nan"], "--step 'nan' is not a share"),
        (["--components", "encoder"], "unknown component 'encoder'"),
        (["--resamples", "0"], "--resamples must be at least 1"),
        (["--alpha", "1"], "--alpha must be between 0 and 1"),
        (["--order", "random", "--reestimate"], "--reestimate needs estimated importance"),
        (["--order-seeds", "1", "2"], "--order-seeds 1 2: only --order random has seeds, not scores"),
        (["--order", "random", "--order-seeds", "1", "1"], "--order-seeds 1 1: a seed is given twice"),
        (["--order", "no-such-file"], "--order no-such-file: neither scores, random, oracle:STUDY nor a file"),
        (["--gen-subset", "dev"], "has no split 'dev'; there are: test, train, valid"),
        (["--score-subset", "dev"], "has no split 'dev'; there are: test, train, valid"),
        (["--bootstrap-seed", "-3"], "--bootstrap-seed must be at least 0, got -3"),
        (["--score-seed", "-3"], "(--score-seed) is at least 0, not -3"),
        (["--order", "random", "--order-seeds", "-3"], "(--score-seed) is at least 0, not -3"),
    ],
)
def test_wrong_input_is_refused_and_nothing_is_written(flags, wrong, message, tmp_path, capsys):
    assert message in refused(capsys, "prune", *flags, "-o", tmp_path / "s", *wrong)
    assert not (tmp_path / "s").exists()


def test_gates_without_effect_stop_the_study(flags, tmp_path, monkeypatch, capsys):
    # Negative control: attention that forgets its gates.
    monkeypatch.setattr(multihead, "apply_gate", lambda heads, gate, keep: heads)
    assert main(["prune", *map(str, flags), "-o", str(tmp_path / "s")]) == 1
    assert "enc_self have no effect on the output" in capsys.readouterr().err
    assert not (tmp_path / "s").exists()


def test_the_step_without_any_head_can_be_all_that_is_left(joint, flags, lively, tmp_path):
    # Source: the study that was never stopped, and fairseq-generate under the same mask.
    folder = stopped(joint["folder"], tmp_path / "study", 4)
    run_json("prune", *flags, "-o", folder, "--step", "25%")
    assert cells(folder) == cells(joint["folder"])
    argv = [lively["data"], "--path", lively["checkpoint"], *BEAM, "--task", "translation_headprune"]
    argv += ["--head-mask", folder / "masks" / "all-04.json"]
    assert read_lines(folder / "hyps" / "all-04.txt") == generated("D", *argv)
