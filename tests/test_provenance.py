"""Provenance: compared with git itself and the installed distributions."""

import importlib.metadata
import json
import subprocess

import pytest
import torch

import fairseq_headprune
from fairseq_headprune import provenance


def git(folder, *arguments):
    command = ["git", "-C", str(folder), "-c", "user.name=n", "-c", "user.email=e@example.org", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Make a folder look like the package, in a repository of its own."""
    folder = tmp_path / "repository" / "package"
    folder.mkdir(parents=True)
    (folder / "files.py").write_text("x = 1\n")
    git(folder.parent, "init", "-q")
    monkeypatch.setattr(provenance, "_PACKAGE", folder)
    return folder


def test_environment_names_what_is_installed():
    found = json.loads(json.dumps(provenance.environment()))
    assert found["headprune"] == fairseq_headprune.__version__
    assert found["torch"] == torch.__version__
    assert found["sacrebleu"] == importlib.metadata.version("sacrebleu")
    assert found["fairseq"]["version"] == importlib.metadata.version(found["fairseq"]["distribution"])
    assert (found["gpu"] is None) == (not torch.cuda.is_available())
    assert found["cpus"] >= 1


def test_git_commit_and_dirty_flag_follow_the_package(package):
    git(package, "add", ".")
    git(package, "commit", "-q", "-m", "first")
    clean = {"commit": git(package, "rev-parse", "HEAD"), "dirty": False}
    assert provenance.git_commit() == clean
    (package.parent / "notes.txt").write_text("outside the package\n")
    assert provenance.git_commit() == clean
    (package / "new.py").write_text("y = 1\n")
    assert provenance.git_commit() == {**clean, "dirty": True}


def test_a_repository_that_does_not_hold_the_package_is_not_named(package):
    # As for a virtual environment inside somebody's repository: the folder is there, but not tracked.
    git(package, "commit", "-q", "--allow-empty", "-m", "first")
    assert provenance.git_commit() is None


def test_copied_code_may_be_told_its_commit(package, monkeypatch):
    git(package, "commit", "-q", "--allow-empty", "-m", "first")
    monkeypatch.setenv("HEADPRUNE_COMMIT", "abc123")
    assert provenance.git_commit() == {"commit": "abc123", "dirty": None}
    git(package, "add", ".")
    git(package, "commit", "-q", "-m", "second")
    assert provenance.git_commit()["commit"] == git(package, "rev-parse", "HEAD")


def test_a_scripts_command_names_no_folder_of_this_machine(monkeypatch):
    # By hand: absolute paths keep their last names; all else is as it was typed.
    monkeypatch.setattr(
        "sys.argv", ["/a/scripts/bench.py", "/data/bin", "out/x", "--output", "/tmp/b c.json", "--lr", "1e-3"]
    )
    assert provenance.script_command("scripts/") == "scripts/bench.py bin out/x --output 'b c.json' --lr 1e-3"
