"""Provenance: compared with git itself, the installed distributions and published check sums."""

import importlib.metadata
import json
import subprocess

import pytest
import torch

import fairseq_headprune
from fairseq_headprune import provenance

# FIPS 180-2, appendix B.1: SHA-256 of "abc"; and of nothing.
ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


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


def test_data_is_described_by_size_and_check_sum(tmp_path):
    (tmp_path / "data" / "sub").mkdir(parents=True)
    (tmp_path / "data" / "sub" / "a").write_text("abc")
    (tmp_path / "data" / "b").touch()
    (tmp_path / "data" / ".cache").write_text("x")
    single = tmp_path / "single"
    single.write_text("abc")
    assert provenance.data_provenance(single, tmp_path / "data") == [
        {"path": str(single), "bytes": 3, "sha256": ABC},
        {"path": str(tmp_path / "data" / "b"), "bytes": 0, "sha256": EMPTY},
        {"path": str(tmp_path / "data" / "sub" / "a"), "bytes": 3, "sha256": ABC},
    ]
    with pytest.raises(FileNotFoundError, match="there is no data at .*missing"):
        provenance.data_provenance(tmp_path / "missing")


def test_copied_code_may_be_told_its_commit(package, monkeypatch):
    git(package, "commit", "-q", "--allow-empty", "-m", "first")
    monkeypatch.setenv("HEADPRUNE_COMMIT", "abc123")
    assert provenance.git_commit() == {"commit": "abc123", "dirty": None}
    git(package, "add", ".")
    git(package, "commit", "-q", "-m", "second")
    assert provenance.git_commit()["commit"] == git(package, "rev-parse", "HEAD")
