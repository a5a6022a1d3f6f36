"""``headprune prune`` on a tiny checkpoint: the study folder, its cells, and how it goes on."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
import tiny
from verbs import cells, count_masks, generated, mask, refused, run_json

from fairseq_headprune.cli import main
from fairseq_headprune.evaluation.translate import Translator
from fairseq_headprune.files import read_lines
from fairseq_headprune.modules import multihead
from fairseq_headprune.parts import HEADS
from fairseq_headprune.parts.scores import Scores
from fairseq_headprune.studies import prune as study_module

SHAPE = {"enc_self": [2, 2], "enc_dec": [2, 2], "dec_self": [2, 2]}
BEAM = ["--beam", "2", "--max-len-b", "10", "--cpu"]
SCORE = ["--score-sentences", "20"]
CELL_KEYS = {"id", "curve", "step", "percent", "pruned", "kept", "score", "ci", "wins", "losses", "ties", "p"}


@pytest.fixture(scope="module")
def flags(lively):
    return [lively["data"], "--path", lively["checkpoint"], *BEAM, *SCORE, "--resamples", "50"]


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


def test_the_study_folder(joint, lively):
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
    p = [cell["p"] for cell in found["curves"]["all"][1:]]
    # Source: Holm by hand, from the smallest p on.
    expected, running = [0.0] * 4, 0.0
    for rank, place in enumerate(sorted(range(4), key=lambda i: p[i])):
        running = max(running, min(1.0, (4 - rank) * p[place]))
        expected[place] = running
    assert [cell["p_holm"] for cell in found["curves"]["all"][1:]] == pytest.approx(expected)


def test_the_unpruned_model_does_not_differ_from_itself(joint):
    # Source: the definition; identical systems.
    cell = cells(joint["folder"])[0]
    assert (cell["p"], cell["wins"], cell["losses"], cell["ties"]) == (1.0, 0.0, 0.0, 1.0)
    for cell in cells(joint["folder"]):
        assert cell["wins"] + cell["losses"] + cell["ties"] == pytest.approx(1)


def test_scores_equal_the_score_verb_and_lead_the_pruning(joint, flags):
    # Source: headprune score with the same flags; the order is ascending importance.
    stored = json.loads((joint["folder"] / "scores.json").read_text())
    scored = run_json("score", *[flag for flag in flags if flag not in ("--resamples", "50")])
    assert stored == {key: value for key, value in scored.items() if key != "environment"}  # study.json has it
    order = Scores.load(joint["folder"] / "scores.json").pruning_order()
    for cell in cells(joint["folder"]):
        assert set(mask(joint["folder"], cell["id"]).dropped()) == set(order[: cell["pruned"]])


def test_hypotheses_are_fairseq_generates_under_the_mask(joint, lively):
    # Source: fairseq-generate with --head-mask.
    folder, argv = joint["folder"], [lively["data"], "--path", lively["checkpoint"], *BEAM]
    argv += ["--task", "translation_headprune", "--head-mask"]
    found = {}
    for cell in ("unpruned", "all-02"):
        found[cell] = read_lines(folder / "hyps" / f"{cell}.txt")
        assert found[cell] == generated("D", *argv, folder / "masks" / f"{cell}.json")
    assert found["unpruned"] != found["all-02"]


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


def test_a_finished_study_is_not_done_again(each, flags, tmp_path, monkeypatch):
    folder = tmp_path / "study"
    shutil.copytree(each["folder"], folder)
    before = (folder / "cells.jsonl").read_bytes()

    def never(*_):
        raise AssertionError("nothing is left to compute")

    monkeypatch.setattr(Translator, "answers", never)
    monkeypatch.setattr(Translator, "answers_of", never)
    monkeypatch.setattr(study_module, "estimate_scores", never)
    found = run_json("prune", *flags, "-o", folder, "--components", "each", "--step", "50%")
    assert (folder / "cells.jsonl").read_bytes() == before
    assert found["curves"] == each["document"]["curves"]


def test_a_stopped_study_goes_on_where_it_stopped(each, flags, tmp_path, monkeypatch):
    # Source: the study that was never stopped. A stop may leave a mask and hypotheses without their cell.
    folder = tmp_path / "study"
    shutil.copytree(each["folder"], folder)
    lines = (folder / "cells.jsonl").read_text().splitlines(keepends=True)
    (folder / "cells.jsonl").write_text("".join(lines[:3]) + lines[3][:40])
    packs = count_masks(monkeypatch)
    run_json("prune", *flags, "-o", folder, "--components", "each", "--step", "50%")
    assert cells(folder) == cells(each["folder"]) and packs == [4]


def test_a_killed_study_goes_on_to_the_same_result(joint, flags, tmp_path):
    # Source: the study that was never disturbed.
    folder = tmp_path / "study"
    argv = ["prune", *map(str, flags), "-o", str(folder), "--step", "25%", "--quiet", "--masks-at-once", "2"]
    environment = {**os.environ, "PYTHONPATH": str(tiny.ROOT), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, "-m", "fairseq_headprune", *argv], env=environment, text=True)
    listed = folder / "cells.jsonl"
    try:
        while process.poll() is None and not (listed.exists() and listed.read_bytes().count(b"\n") >= 2):
            time.sleep(0.002)
        os.kill(process.pid, signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == -signal.SIGKILL and 2 <= len(cells(folder)) < 5
    run_json(*argv)
    assert cells(folder) == cells(joint["folder"])
    for part in ("masks", "hyps"):
        for path in (joint["folder"] / part).iterdir():
            assert (folder / part / path.name).read_bytes() == path.read_bytes()
    assert (folder / "scores.json").read_bytes() == (joint["folder"] / "scores.json").read_bytes()


@pytest.mark.parametrize(
    "other, name",
    [
        (["--step", "20%"], "step"),
        (["--step", "25%", "--beam", "3"], "beam"),
        (["--step", "25%", "--score-seed", "9"], "seed"),
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
    assert f"| 0% | {unpruned} |" in forms["markdown"] and f"0%    {unpruned}" in forms["text"].replace("   ", "  ")
    before, table = forms["latex"].split(r"\begin{tabular}")
    assert before.startswith("% ") and rf"0\% & {unpruned} & " in table
    chrf = f"{joint['document']['baseline']['chrf']:.2f}"
    lines = [line for line in forms["csv"].splitlines() if line and not line.startswith("# ")]
    assert lines[1].startswith(f"0%,{unpruned},") and lines[1].endswith(f",{chrf}") and len(lines) == 6
    assert all(line.startswith("% ") for line in table.split(r"\end{tabular}")[1].strip().splitlines())


def test_importance_is_told_with_the_sentences_that_were_read(joint, flags, tmp_path):
    # Source: the test's data: 60 sentences of train, of which SCORE takes 20; valid has 8.
    assert joint["document"]["score_data"]["sentences"] == 20
    few = [*flags, "--step", "1"]
    found = run_json("prune", *few, "-o", tmp_path / "valid", "--score-subset", "valid", "--score-sentences", "2000")
    assert (found["score_data"]["split"], found["score_data"]["sentences"]) == ("valid", 8)
    run_json(
        "score", *flags[:3], "--cpu", "--score-subset", "train", "--score-sentences", "3", "-o", tmp_path / "three.json"
    )
    found = run_json("prune", *few, "-o", tmp_path / "three", "--order", tmp_path / "three.json")
    assert found["score_data"]["sentences"] == 3


def test_importance_and_results_from_one_split_are_warned_of(flags, tmp_path, capsys):
    run_json("prune", *flags, "-o", tmp_path / "s", "--step", "1", "--score-subset", "test")
    assert "importance and results both come from test" in capsys.readouterr().err
    run_json("prune", *flags, "-o", tmp_path / "t", "--step", "1")
    assert "both come from" not in capsys.readouterr().err


def test_tokenised_bleu_is_named_in_the_signature(flags, tmp_path):
    document = run_json("prune", *flags, "-o", tmp_path / "s", "--step", "1", "--bleu", "tok")
    assert document["signature"] != "" and "13a" not in document["signature"]


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


def test_a_folder_with_other_files_is_refused(flags, tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("mine")
    assert "holds other files" in refused(capsys, "prune", *flags, "-o", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_gates_without_effect_stop_the_study(flags, tmp_path, monkeypatch, capsys):
    # Negative control: attention that forgets its gates.
    monkeypatch.setattr(multihead, "apply_gate", lambda heads, gate, keep: heads)
    assert main(["prune", *map(str, flags), "-o", str(tmp_path / "s")]) == 1
    assert "enc_self have no effect on the output" in capsys.readouterr().err
    assert not (tmp_path / "s").exists()


def test_the_step_without_any_head_can_be_all_that_is_left(joint, flags, lively, tmp_path):
    # Source: the study that was never stopped, and fairseq-generate under the same mask.
    folder = tmp_path / "study"
    shutil.copytree(joint["folder"], folder)
    lines = (folder / "cells.jsonl").read_text().splitlines(keepends=True)
    (folder / "cells.jsonl").write_text("".join(lines[:-1]))
    run_json("prune", *flags, "-o", folder, "--step", "25%")
    assert cells(folder) == cells(joint["folder"])
    argv = [lively["data"], "--path", lively["checkpoint"], *BEAM, "--task", "translation_headprune"]
    argv += ["--head-mask", folder / "masks" / "all-04.json"]
    assert read_lines(folder / "hyps" / "all-04.txt") == generated("D", *argv)
