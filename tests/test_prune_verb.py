"""``headprune prune`` on a tiny checkpoint: the study folder, its cells, and how it goes on."""

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time

import pytest
import tiny
from verbs import count_masks, generated, refused, run_json, write_lively

from fairseq_headprune.cli import main
from fairseq_headprune.evaluation.translate import Translator
from fairseq_headprune.files import read_lines
from fairseq_headprune.heads import COMPONENTS, Head, HeadMask
from fairseq_headprune.importance.scores import HeadScores
from fairseq_headprune.modules import multihead
from fairseq_headprune.studies import prune as study_module

SHAPE = {"enc_self": [2, 2], "enc_dec": [2, 2], "dec_self": [2, 2]}
BEAM = ["--beam", "2", "--max-len-b", "10", "--cpu"]
SCORE = ["--score-sentences", "20"]
CELL_KEYS = {"id", "curve", "step", "percent", "pruned", "kept", "score", "ci", "wins", "losses", "ties", "p"}


@pytest.fixture(scope="module")
def lively(trained, tmp_path_factory):
    return write_lively(trained, tmp_path_factory.mktemp("lively"))


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


def cells(folder):
    """The cells of a study without their times."""
    found = [json.loads(line) for line in (folder / "cells.jsonl").read_text().splitlines()]
    return [{key: value for key, value in cell.items() if key != "seconds"} for cell in found]


def mask(folder, cell):
    return HeadMask.load(folder / "masks" / f"{cell}.json")


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
    assert found["data"]["split"] == "test" and found["score_data"] == {"split": "train", "sentences": 20}
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
    assert stored == run_json("score", *[flag for flag in flags if flag not in ("--resamples", "50")])
    order = HeadScores.load(joint["folder"] / "scores.json").pruning_order()
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
    assert list(each["document"]["curves"]) == list(COMPONENTS)
    order = HeadScores.load(folder / "scores.json")
    assert len(cells(folder)) == 1 + 3 * 2
    for component in COMPONENTS:
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

    monkeypatch.setattr(Translator, "translate", never)
    monkeypatch.setattr(Translator, "translate_many", never)
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
    ],
)
def test_a_folder_of_another_study_is_refused_and_left_alone(joint, flags, other, name, capsys):
    before = {path: path.read_bytes() for path in joint["folder"].rglob("*") if path.is_file()}
    line = refused(capsys, "prune", *flags, "-o", joint["folder"], *other)
    assert "other settings" in line and name in line
    assert {path: path.read_bytes() for path in joint["folder"].rglob("*") if path.is_file()} == before


def ranking(reverse):
    """Scores 1, 2, … 12 in the order of the heads, or the other way round."""
    numbers = iter(range(12, 0, -1) if reverse else range(1, 13))
    return {c: [[float(next(numbers)) for _ in range(n)] for n in layers] for c, layers in SHAPE.items()}


def test_reestimated_importance_decides_the_next_step(flags, tmp_path, monkeypatch):
    # Source: by hand. The full model ranks heads from the first, every pruned one from the last.
    def estimate(session, settings):
        pruned = session.gates.mask()
        rows = ranking(reverse=bool(pruned.dropped()))
        for component, layer, head in pruned.dropped():
            rows[component][layer][head] = None
        return HeadScores(rows, estimator="gradient")

    monkeypatch.setattr(study_module, "estimate_scores", estimate)
    run_json("prune", *flags, "-o", tmp_path / "s", "--step", "25%", "--reestimate")
    steps = [mask(tmp_path / "s", f"all-{step:02d}").dropped() for step in (1, 2, 3, 4)]
    first = [Head("enc_self", 0, 0), Head("enc_self", 0, 1), Head("enc_self", 1, 0)]
    last = [Head("dec_self", 0, 1), Head("dec_self", 1, 0), Head("dec_self", 1, 1)]
    assert steps[0] == first and steps[1] == first + last
    for smaller, larger in zip(steps, steps[1:], strict=False):
        assert set(smaller) < set(larger)


def test_reestimated_scores_are_those_of_the_pruned_model(flags, tmp_path, monkeypatch):
    # Source: headprune score under the mask of the step before.
    folder = tmp_path / "study"
    argv = ["prune", *flags, "-o", folder, "--components", "dec_self", "--step", "50%", "--reestimate"]
    run_json(*argv)
    score = [flag for flag in flags if flag not in ("--resamples", "50")]
    expected = run_json("score", *score, "--head-mask", folder / "masks" / "dec_self-01.json")
    found = json.loads((folder / "scores" / "dec_self-02.json").read_text())
    assert found == expected and not (folder / "scores" / "dec_self-01.json").exists()
    # Stopped after the first step, it re-estimates the same.
    before = cells(folder)
    lines = (folder / "cells.jsonl").read_text().splitlines(keepends=True)
    (folder / "cells.jsonl").write_text("".join(lines[:2]))
    (folder / "scores" / "dec_self-02.json").unlink()
    run_json(*argv)
    assert cells(folder) == before and json.loads((folder / "scores" / "dec_self-02.json").read_text()) == found


def test_order_from_a_file_and_a_part_of_the_components(flags, tmp_path):
    # Source: by hand; ascending from the first head, enc_dec (4 heads) and dec_self (4 heads) in play.
    HeadScores(ranking(reverse=False), estimator="mine").save(tmp_path / "order.json")
    argv = ["--order", tmp_path / "order.json", "--components", "enc_dec,dec_self", "--step", "0.5"]
    run_json("prune", *flags, "-o", tmp_path / "s", *argv)
    assert mask(tmp_path / "s", "enc_dec+dec_self-01").dropped() == [
        Head("enc_dec", layer, head) for layer in (0, 1) for head in (0, 1)
    ]
    assert len(mask(tmp_path / "s", "enc_dec+dec_self-02").dropped()) == 8


def test_random_order_is_that_of_its_seed(flags, tmp_path):
    # Source: headprune score --estimator random with the same seed.
    run_json("prune", *flags, "-o", tmp_path / "s", "--order", "random", "--step", "1", "--score-seed", "0")
    expected = run_json(
        "score", *flags[:3], "--estimator", "random", "--normalize", "none", "--score-seed", "0", "--cpu"
    )
    assert json.loads((tmp_path / "s" / "scores.json").read_text())["scores"] == expected["scores"]


def test_several_random_orders_are_averaged(flags, tmp_path, capsys):
    # Source: one study a seed; mean and standard deviation by the statistics module.
    half = ["--order", "random", "--step", "1/2"]
    alone = [run_json("prune", *flags, "-o", tmp_path / s, *half, "--score-seed", s)["curves"]["all"] for s in "37"]
    found = run_json("prune", *flags, "-o", tmp_path / "both", *half, "--order-seeds", "3", "7")
    assert [[point["score"] for point in found["curves"][f"all-seed{s}"]] for s in "37"] == [
        [point["score"] for point in curve] for curve in alone
    ]
    for place in ("3", "7"):
        name = f"all-seed{place}-01"
        assert mask(tmp_path / "both", name).heads == mask(tmp_path / place, "all-01").heads
    for point, pair in zip(found["means"]["all"], zip(*alone, strict=True), strict=True):
        scores = [one["score"] for one in pair]
        assert point["score"] == pytest.approx(statistics.mean(scores))
        assert point["sd"] == pytest.approx(statistics.stdev(scores)) and point["seeds"] == [3, 7]
    capsys.readouterr()
    assert main(["prune", *map(str, flags), "-o", str(tmp_path / "both"), *half, "--order-seeds", "3", "7"]) == 0
    assert (
        f"{found['means']['all'][1]['score']:.2f} (sd {found['means']['all'][1]['sd']:.2f})" in capsys.readouterr().out
    )


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
        (["--order", "no-such-file"], "no-such-file"),
        (["--gen-subset", "dev"], "Dataset not found: dev"),
        (["--score-subset", "dev"], "Dataset not found: dev"),
        (["--sampling"], "--sampling"),
    ],
)
def test_wrong_input_is_refused_and_nothing_is_written(flags, wrong, message, tmp_path, capsys):
    assert message in refused(capsys, "prune", *flags, "-o", tmp_path / "s", *wrong)
    assert not (tmp_path / "s").exists()


def test_wrong_score_files_are_refused(flags, tmp_path, capsys):
    path, argv = tmp_path / "scores.json", ["prune", *flags, "-o", tmp_path / "s", "--order", tmp_path / "scores.json"]
    rows = ranking(reverse=False)
    rows["enc_dec"][1][0] = float("nan")
    path.write_text(json.dumps({"format": "headprune.scores/1", "scores": rows}))
    assert "enc_dec layer 1 head 0 is nan" in refused(capsys, *argv)
    rows["enc_dec"][1][0] = None
    path.write_text(json.dumps({"format": "headprune.scores/1", "scores": rows}))
    assert "do not rank enc_dec layer 1 head 0" in refused(capsys, *argv)
    path.write_text(json.dumps({"format": "headprune.scores/1", "scores": {"enc_self": [[1, 2, 3]]}}))
    assert "the scores rank heads of shape" in refused(capsys, *argv)
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
