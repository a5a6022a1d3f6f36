"""The examples' scripts: common.sh with a program in the place of Python that notes its calls, and their statistics.

Source: by hand.
"""

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
import tiny

STUDY = Path(__file__).resolve().parent.parent / "examples" / "common.sh"
#: prints the number of its calls, or fails when it is told to
PROGRAM = """#!/usr/bin/env bash
echo "$*" >>"$CALLS"
echo "{\\"call\\": $(wc -l <"$CALLS" | tr -d ' ')}"
[ ! -e "$CALLS.fail" ] || exit 1
"""


@pytest.fixture
def run(tmp_path):
    """A function that sources the file and runs a line; returns exit status, calls so far and results by name."""
    for name in ("out", "results"):
        (tmp_path / name).mkdir()
    (tmp_path / "python").write_text(PROGRAM)
    (tmp_path / "python").chmod(0o755)
    calls = tmp_path / "calls"

    def run(line):
        places = f"HERE={STUDY.parent}/multi30k OUT={tmp_path}/out RESULTS={tmp_path}/results"
        script = f"set -euo pipefail; {places}; SEARCH=(data) FLAGS=(--cpu); source {STUDY}; {line}"
        settings = {"PATH": "/usr/bin:/bin", "PYTHON": str(tmp_path / "python"), "CALLS": str(calls)}
        status = subprocess.run(["bash", "-c", script], env=settings, capture_output=True).returncode
        found = {path.stem: path.read_text().strip() for path in (tmp_path / "results").glob("*.json")}
        return status, calls.read_text().splitlines(), found

    return run


def test_a_study_runs_once_and_its_figures_are_results(run, tmp_path):
    (tmp_path / "out" / "one" / "figures").mkdir(parents=True)
    (tmp_path / "out" / "one" / "figures" / "curve.png").write_text("drawn")
    call = f"-m fairseq_headprune ablate data --beam 5 --cpu -o {tmp_path}/out/one --json"
    for _ in range(2):
        assert run("study one ablate --beam 5") == (0, [call], {"one": '{"call": 1}'})
    assert (tmp_path / "results" / "one-curve.png").read_text() == "drawn"


def test_results_of_another_model_are_replaced(run, tmp_path):
    (tmp_path / "results" / "effects.json").write_text("of another model")
    assert run("document effects correlate a b")[2] == {"effects": '{"call": 1}'}


def test_what_failed_is_no_result_and_runs_again(run, tmp_path):
    (tmp_path / "calls.fail").touch()
    status, calls, found = run("document effects correlate a b")
    assert status == 1 and len(calls) == 1 and not found
    (tmp_path / "calls.fail").unlink()
    assert run("document effects correlate a b")[2] == {"effects": '{"call": 2}'}


def test_a_dry_run_of_a_comparison_makes_no_folders(run, tmp_path):
    flags = f"OUT={tmp_path}/new/out RESULTS={tmp_path}/new/results GPUS=0 DEVICE=--cpu PREPARED=made UPDATES=1"
    status, [call], _ = run(f"{flags}; compared one --dry-run")
    assert status == 0 and call.endswith("--dry-run") and not (tmp_path / "new").exists()


def make(folder, *words):
    """Run make, with steps noted in a folder; return what it prints."""
    command = ["make", "-C", tiny.ROOT / "examples", f"LOGS={folder}", "PYTHON=echo", "DATA=data", *words]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)


def started(shown):
    """The names of the steps in a dry run, in order."""
    return [line.split('echo "')[1].split(" starts")[0] for line in shown.stdout.splitlines() if " starts" in line]


def test_all_steps_are_planned_after_what_they_need(tmp_path):
    results, everything = started(make(tmp_path, "-n", "results")), started(make(tmp_path, "-n"))
    # By hand: 9 fine-tunings, 6 plain loops, 3 studies of classifiers, 6 lotteries, 14 other results, 4 models; 12
    # timings, 1 model.
    assert len(results) == 42 and len(set(everything)) == 55 and everything[:42] == results
    pairs = [("train-72", "slim"), ("train-72", "studies"), ("tune-CoLA-1", "studies-CoLA"), ("train-talks", "talks")]
    pairs += [("slim", "speed-gpu"), ("start-base", "speed-glue-base"), ("compare", "bench-train")]
    pairs += [("lottery-MRPC", "bench-find"), ("change-glue", "random-glue")]
    for before, after in pairs:
        assert everything.index(before) < everything.index(after)


def test_what_is_done_is_not_done_again(tmp_path):
    (tmp_path / "tune-STS-B-1.done").touch()
    (tmp_path / "tune-CoLA-1.done").touch()
    names = started(make(tmp_path, "-n", "studies-CoLA", "tune-STS-B-1"))
    assert names == ["studies-CoLA"]


def test_a_step_runs_and_leaves_its_log(tmp_path):
    make(tmp_path, "reference-MRPC-2", "JOBS=3")
    assert "MRPC --bert glue/out/bert --seed 2" in (tmp_path / "reference-MRPC-2.log").read_text()
    assert (tmp_path / "reference-MRPC-2.done").exists()
    assert "--jobs 3" in make(tmp_path, "-n", "check-gpu", "JOBS=3").stdout


def test_translations_at_the_limit_do_not_count():
    long = [7] * (tiny.example_script("multi30k/exports.py").LIMIT - 1)
    theirs = [([4, 5], -1.0), ([4], -2.0), (long, -3.0), ([6, 6], -1.0)]
    mine = [([4, 5], -1.25), ([5], -2.0), ([4], -3.0), ([6, 6], -1.5)]
    found = tiny.example_script("multi30k/exports.py").compared(mine, theirs)
    # Scores are compared where the tokens agree: 0.25 and 0.5.
    assert found == {"sentences": 4, "at_the_limit": 1, "identical": 2, "largest_score_difference": 0.5}


def test_without_an_equal_translation_no_score_is_compared():
    assert (
        tiny.example_script("multi30k/exports.py").compared([([4], -1.0)], [([5], -1.0)])["largest_score_difference"]
        is None
    )


def test_every_step_finds_the_callers_packages_behind_this_one(tmp_path, monkeypatch):
    found, michel = [], tiny.example_script("multi30k/michel.py")
    run = lambda command, env, **rest: found.append(env["PYTHONPATH"])  # noqa: E731
    monkeypatch.setattr(michel, "subprocess", SimpleNamespace(run=run))
    monkeypatch.setenv("PYTHONPATH", "/callers")
    tiny.run_main(michel, "--out", tmp_path / "out", "--results", tmp_path / "times.json")
    assert found == [f"{tiny.ROOT}{os.pathsep}/callers"] * 6


def row(method, count, seed, score):
    return {"method": method, "count": count, "seed": seed, "score": score}


def test_methods_are_compared_over_trainings_whose_samplings_are_averaged():
    rows = [row("unpruned+tuned", None, seed, 40.0 + seed) for seed in (1, 2, 3)]
    for seed, low in ((1, 0.5), (2, 1.0), (3, 1.5)):
        rows += [row(f"random-after+order={n}+tuned", 8, seed, 40.0 + seed - low + d) for n, d in ((1, -0.1), (2, 0.1))]
    found = tiny.example_script("over_trainings.py").compare(rows, "unpruned+tuned", 0.3)
    [at_eight] = [one for one in found if one["heads"] == 8]
    # Differences -0.5, -1 and -1.5: mean -1, deviation 0.5, standard error 0.5 / sqrt(3); t(2) at .975 is 4.303.
    assert at_eight["method"] == "random-after+tuned" and at_eight["n"] == 3
    assert at_eight["difference"]["mean"] == pytest.approx(-1.0)
    assert at_eight["difference"]["ci"] == pytest.approx((-1 - 4.3027 * 0.28868, -1 + 4.3027 * 0.28868), abs=1e-3)
    assert at_eight["difference"]["p_equivalent"] > 0.5
    with pytest.raises(ValueError, match="--against magic: compared are unpruned[+]tuned"):
        tiny.example_script("over_trainings.py").compare(rows, "magic", None)


def test_a_training_without_all_samplings_is_left_out(capsys):
    rows = [row(f"random-after+order={n}", 8, seed, 30.0 + n + seed) for n, seed in ((1, 1), (2, 1), (1, 2), (2, 2))]
    rows += [row("random-after+order=2", 8, 3, 35.0), *(row("ste", 8, seed, 36.0) for seed in (1, 2, 3))]
    scores = next(
        one for one in tiny.example_script("over_trainings.py").compare(rows, "ste", None) if one["method"] != "ste"
    )
    # By hand: of seeds 1 and 2, which have both orders, 32.5 and 33.5.
    assert (scores["n"], scores["mean"], scores["difference"]["n"]) == (2, 33.0, 2)
    told = "random-after, 8 heads: left out are trainings without all 2 samplings: 3\n"
    assert capsys.readouterr().err == told


def test_variance_of_masks_and_seeds_is_that_of_a_sum():
    """Scores mask + seed without a rest: variances 1 (of 0, 1, 2) and 0.5 (of 0 and 1)."""
    found = tiny.example_script("questions/variance.py")
    rows = [row(f"random-start+mask={m}", 8, seed, float(m + seed)) for m in (0, 1, 2) for seed in (0, 1)]
    [(key, scores)] = found.tables([*rows, row("joint-dsp", 8, 1, 3.0)]).items()
    value = found.shares(scores)
    assert key == ("random-start", 8) and scores.shape == (3, 2)
    assert value["share_mask"] == pytest.approx(2 / 3) and value["share_seed"] == pytest.approx(1 / 3)
    # What is a sum leaves nothing to test with.
    assert value["p_mask"] is None


def test_variance_of_masks_is_that_of_numbers_by_component_and_that_of_heads():
    """By hand: numbers 0 and 4 (mean square 32), sets -1 and 1 with each (4), seeds 0 and 1, no rest."""
    learned, layers = "learned-start", "learned-start+layers"
    rows = [
        row(f"{method}+mask={number}", 8, seed, 4.0 * number + of_set + seed)
        for method, of_set in ((learned, -1), (layers, 1))
        for number in (0, 1)
        for seed in (0, 1)
    ]
    variance = tiny.example_script("questions/variance.py")
    one, other, both = variance.analysed(variance.tables(rows))
    assert [found["method"] for found in (one, other, both)] == [learned, layers, "learned-start and variants"]
    # Of numbers (32 - 4) / 4 = 7, of sets 4 / 2 = 2, of seeds 1 / 2.
    assert both["masks"] == 4 and both["mask"] == pytest.approx(9) and both["seed"] == pytest.approx(0.5)
    assert both["share_numbers"] == pytest.approx(7 / 9.5) and both["share_sets"] == pytest.approx(2 / 9.5)
    # F(1, 2) = 8 is t(2) squared, whose two-sided p is 1 - t / sqrt(2 + t^2).
    assert both["p_numbers"] == pytest.approx(1 - (8 / 10) ** 0.5) and both["p_sets"] is None
    # Source: the upper 5% of F with 3 and 9 degrees of freedom in printed tables.
    assert variance._p(3.863, 1.0, 3, 9) == pytest.approx(0.05, abs=1e-4)
    assert variance._p(1e300, 1e-300, 3, 90) > 0  # too small for a float, and not 0
