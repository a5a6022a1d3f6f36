"""examples/common.sh with a program in the place of Python that notes its calls. Source: by hand."""

import subprocess
from pathlib import Path

import pytest

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
