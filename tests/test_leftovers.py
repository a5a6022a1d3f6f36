"""What SIGKILL leaves behind goes with the next process, and what a living one holds stays."""

import os
import signal
import subprocess
import sys
import tempfile

import pytest
import tiny

from fairseq_headprune.files import write_text
from fairseq_headprune.leftovers import remove_leftovers, temporary_file, temporary_folder

KILLED = """
import os, signal, sys
sys.argv[0] = "headprune"
from pathlib import Path
from fairseq_headprune import files, leftovers
def die(stream=None):
    if stream: stream.write(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[1] == "file":
    files.write_with("o.pt", die)
with leftovers.temporary_folder(Path("data-bin").absolute()) as folder:
    (folder / "train.bin").write_text("a whole copy")
    die()
"""


def killed(folder, what):
    done = tiny.run_python("-c", KILLED, what, cwd=folder)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return os.listdir(folder)


def test_the_next_writer_removes_a_temporary_file(tmp_path):
    (left,) = killed(tmp_path, "file")
    assert left.startswith(".o.pt.") and left.endswith(".part")
    write_text(tmp_path / "other", "x")  # of another name: not its business
    assert sorted(os.listdir(tmp_path)) == sorted([left, "other"])
    write_text(tmp_path / "o.pt", "x")
    assert sorted(os.listdir(tmp_path)) == ["o.pt", "other"]


def test_the_next_writer_removes_a_temporary_folder(tmp_path):
    (left,) = killed(tmp_path, "folder")
    assert (tmp_path / left / "train.bin").exists()
    with temporary_folder(tmp_path / "data-bin") as folder:
        assert os.listdir(tmp_path) == [folder.name]
        os.rename(folder, tmp_path / "data-bin")
    assert os.listdir(tmp_path) == ["data-bin"]


def test_what_a_living_process_holds_stays(tmp_path):
    code = "import os, sys; from pathlib import Path; sys.argv[0] = 'headprune'\n"
    code += "from fairseq_headprune.leftovers import temporary_file\n"
    code += "temporary_file(Path('o.pt').absolute()); print('ready', flush=True); sys.stdin.read()"
    env = {**os.environ, "PYTHONPATH": str(tiny.ROOT)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=env, **pipes) as other:
        assert other.stdout.readline() == b"ready\n"
        write_text(tmp_path / "o.pt", "x")
        remove_leftovers(tmp_path)
        assert len(os.listdir(tmp_path)) == 2
        other.kill()
        other.wait()
    remove_leftovers(tmp_path)
    assert os.listdir(tmp_path) == ["o.pt"]


@pytest.mark.parametrize("name", [".o.pt.original", ".o.pt.12345678", ".o.pt.x.part", "o.pt.12345678.part", ".part"])
def test_files_of_others_stay(tmp_path, name):
    (tmp_path / name).write_text("mine")
    write_text(tmp_path / "o.pt", "x")
    remove_leftovers(tmp_path)
    assert (tmp_path / name).read_text() == "mine"


def test_folders_within_and_longer_names(tmp_path):
    (tmp_path / "hyps").mkdir()
    names = [tmp_path / "hyps" / ".a.txt.abcdefgh.part", tmp_path / ".o.pt.b.abcdefgh.part"]
    for name in names:
        name.write_text("x")
    write_text(tmp_path / "o.pt", "x")
    remove_leftovers(tmp_path)
    assert [name.exists() for name in names] == [True, False]
    remove_leftovers(tmp_path, within=True)
    assert not names[0].exists()


def test_a_lock_that_is_lost_to_a_remover_is_taken_again(tmp_path, monkeypatch):
    # Between the making of a file and its lock another process may have removed it: the writer makes another one.
    make, made = tempfile.mkstemp, []

    def raced(**settings):
        handle, name = make(**settings)
        made.append(name)
        if len(made) == 1:
            os.unlink(name)
        return handle, name

    monkeypatch.setattr("tempfile.mkstemp", raced)
    handle, name = temporary_file(tmp_path / "o.pt")
    os.close(handle)
    assert len(made) == 2 and str(name) == made[1] and name.exists()
