"""The Makefile of the examples: each step comes after what it needs, and what is done is not redone."""

import subprocess

import tiny


def make(folder, *words):
    """Run make, with steps noted in a folder; return what it prints."""
    command = ["make", "-C", tiny.ROOT / "examples", f"LOGS={folder}", "PYTHON=echo", "DATA=data", *words]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)


def started(shown):
    """The names of the steps in a dry run, in order."""
    return [line.split('echo "')[1].split(" starts")[0] for line in shown.stdout.splitlines() if " starts" in line]


def test_all_steps_are_planned_after_what_they_need(tmp_path):
    results, everything = started(make(tmp_path, "-n", "results")), started(make(tmp_path, "-n"))
    # By hand: 9 fine-tunings, 6 plain loops, 3 studies of classifiers, 11 other results, 4 models; 8 timings, 1 model.
    assert len(results) == 33 and len(set(everything)) == 42 and everything[:33] == results
    pairs = [("train-72", "slim"), ("train-72", "studies"), ("tune-CoLA-1", "studies-CoLA"), ("train-talks", "talks")]
    pairs += [("slim", "speed-gpu"), ("start-base", "speed-glue-base"), ("compare", "bench-train")]
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
