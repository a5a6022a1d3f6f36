"""Scripts that stand for verbs, and the shell scripts' search for a Python, with made-up programs on the PATH."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from fairseq_headprune import cli

SCRIPTS = Path(__file__).parents[1] / "scripts"
ENVIRONMENT = SCRIPTS / "environment.sh"


# Source: the list in the README.
@pytest.mark.parametrize("script, verb", [
    ("score_heads", "score"), ("ablate_heads", "ablate"), ("prune_components", "prune"),
    ("sweep_epochs", "sweep-epochs"), ("bootstrap", "compare"), ("bench_speed", "bench"),
    ("speed_by_heads", "bench-heads"),
])  # fmt: skip
def test_a_script_is_its_verb_from_the_clone(script, verb, monkeypatch):
    calls = []
    monkeypatch.setattr(cli, "main", lambda argv: calls.append((argv, sys.path[0])) or 7)
    monkeypatch.setattr(sys, "path", ["elsewhere", *sys.path])
    monkeypatch.setattr(sys, "argv", [f"{script}.py", "data", "--json"])
    with pytest.raises(SystemExit) as leave:
        runpy.run_path(str(SCRIPTS / f"{script}.py"), run_name="__main__")
    assert (leave.value.code, calls) == (7, [([verb, "data", "--json"], str(SCRIPTS.parent))])


@pytest.fixture
def find(tmp_path):
    """A function that runs the search where the named programs exist with the given bodies."""

    def run(settings=(), **programs):
        for name, body in programs.items():
            path = tmp_path / name.replace("_", ".")
            path.write_text(f"#!/bin/sh\n{body}\n")
            path.chmod(0o755)
        # Only cat is needed besides: the machine's own Pythons must not be seen.
        (tmp_path / "cat").symlink_to("/bin/cat")
        (tmp_path / "dirname").symlink_to("/usr/bin/dirname")
        return subprocess.run(
            ["/bin/bash", "-c", f"source '{ENVIRONMENT}'; headprune_find_python"],
            env={"PATH": str(tmp_path), **dict(settings)},
            capture_output=True,
            text=True,
        )

    return run


# A version manager's shim for a version that is not active prints a message and exits 127.
SHIM = "echo 'python3.12: command not found' >&2; exit 127"


@pytest.mark.parametrize("programs, taken", [
    ({"python3_12": "exit 0", "python3_11": "exit 0", "python3": "exit 0"}, "python3.12"),
    ({"python3_12": SHIM, "python3_11": "exit 0"}, "python3.11"),
    ({"python3_12": SHIM, "python3": "exit 0"}, "python3"),
])  # fmt: skip
def test_the_newest_supported_python_that_runs_is_taken(find, programs, taken):
    assert find(**programs).stdout == f"{taken}\n"


@pytest.mark.parametrize("version, taken", [("3, 10, 9", ""), ("3, 11, 0", "python3\n"), ("3, 13, 0", "")])
def test_only_3_11_and_3_12_are_supported(find, version, taken):
    # The interpreter of the tests, made to believe that it is of another version.
    body = f"""exec "{sys.executable}" -c 'import sys; sys.version_info = ({version}); exec(sys.argv[1])' "$2" """
    assert find(python3=body).stdout == taken


def test_a_named_python_comes_first(find, tmp_path):
    done = find({"HEADPRUNE_PYTHON": str(tmp_path / "mine")}.items(), mine="exit 0", python3_12="exit 0")
    assert done.stdout == f"{tmp_path}/mine\n"


def test_none_found_says_how_to_get_one(find):
    done = find(python3="exit 1")
    assert done.returncode == 2 and done.stdout == ""
    assert "no Python 3.11 or 3.12 found" in done.stderr and "apt install" in done.stderr
