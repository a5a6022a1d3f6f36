"""Files are written whole or not at all; what SIGKILL leaves behind goes with the next process."""

import hashlib
import os
import signal
import stat
import subprocess
import sys
import tempfile

import pytest
import tiny
from verbs import refused

from fairseq_headprune import files
from fairseq_headprune.files import write_text
from fairseq_headprune.leftovers import remove_leftovers, temporary_file, temporary_folder
from fairseq_headprune.parts import Mask


def test_text_is_written_as_utf8_and_replaces_the_old_file(tmp_path):
    path = tmp_path / "a.txt"
    files.write_text(path, "alt\n")
    files.write_text(path, "vierunddreißig\n")
    assert path.read_bytes() == b"vierunddrei\xc3\x9fig\n"  # UTF-8 of ß: C3 9F
    assert os.listdir(tmp_path) == ["a.txt"]


def test_permissions_follow_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        files.write_bytes(tmp_path / "a", b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640  # 666 without 027


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.json"
    files.write_json(path, {"n": 1})
    with pytest.raises(ValueError):
        files.write_json(path, {"n": float("nan")})
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match="folder is a folder and is not replaced; name a file"):
        files.write_text(tmp_path / "folder", "x")
    assert files.read_json(path) == {"n": 1}
    assert sorted(os.listdir(tmp_path)) == ["a.json", "folder"]


def test_a_full_disk_names_the_file_and_leaves_nothing(tmp_path):
    # A limit on the file size stands for the full disk: the write fails half-way in the same manner.
    code = """
import resource, signal, sys
sys.argv[0] = "headprune"
from fairseq_headprune import files
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    files.write_text("big.txt", "x" * 100_000)
except OSError as error:
    print(error)
"""
    done = tiny.run_python("-c", code, cwd=tmp_path)
    assert done.stdout == "[Errno 27] File too large: 'big.txt'\n", done.stderr
    assert os.listdir(tmp_path) == []


def test_a_missing_folder_is_named(tmp_path):
    (tmp_path / "link").symlink_to("none/a.txt")
    for name, message in (("nowhere/a.txt", "a.txt: there is no folder .*nowhere"), ("link", "link: .* folder .*none")):
        with pytest.raises(FileNotFoundError, match=f"{message}; make it first"):
            files.write_text(tmp_path / name, "x")


def test_a_folder_that_cannot_be_written_is_said_before_the_work(tmp_path, monkeypatch):
    # Made up, since root may write anywhere.
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != str(tmp_path))
    with pytest.raises(PermissionError, match="the folder is not writable: '.*a.txt'"):
        files.check_output(tmp_path / "a.txt")
    (tmp_path / "far").mkdir()
    assert files.check_output(tmp_path / "far" / "a.txt") == tmp_path / "far" / "a.txt"


def test_a_link_stays_and_its_target_is_written(tmp_path):
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "a.txt").write_text("old")
    for name, target in {"link": "far/a.txt", "chain": "link", "new": "far/b.txt"}.items():
        (tmp_path / name).symlink_to(target)
        files.write_text(tmp_path / name, name)
        assert os.readlink(tmp_path / name) == target
    assert (tmp_path / "far" / "a.txt").read_text() == "chain" and (tmp_path / "far" / "b.txt").read_text() == "new"
    assert sorted(os.listdir(tmp_path / "far")) == ["a.txt", "b.txt"]


def test_what_is_no_regular_file_is_not_replaced(tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "to-pipe").symlink_to("pipe")
    (tmp_path / "round").symlink_to("round")
    like = tmp_path / "like.json"
    Mask.full({"enc_self": [2, 2]}).save(like)
    for name in ("pipe", "to-pipe", "round"):
        before = os.lstat(tmp_path / name)[:2]  # kind and inode
        with pytest.raises(ValueError, match=f"/{name} is no regular file and is not replaced; name a file"):
            files.write_text(tmp_path / name, "x")
        line = refused(capsys, "mask", "--like", like, "-o", tmp_path / name)
        assert f"/{name} is no regular file" in line
        assert os.lstat(tmp_path / name)[:2] == before
    assert sorted(os.listdir(tmp_path)) == ["like.json", "pipe", "round", "to-pipe"]


def test_json_round_trip(tmp_path):
    value = {"ü": [1, 2.5, None, True, "\u2028"], "leer": {}}
    files.write_json(tmp_path / "a.json", value)
    assert files.read_json(tmp_path / "a.json") == value
    assert "ü" in (tmp_path / "a.json").read_text(encoding="utf-8")


DEEP = [b"[" * 5000 + b"]" * 5000, b'{"a":' * 5000 + b"1" + b"}" * 5000, b"[" * 101 + b"]" * 101]


def test_what_is_not_json_or_nested_too_deep_names_the_file(tmp_path):
    for content in (b"", b"{", b"\xff\xfe", b"{'a': 1}", *DEEP):
        (tmp_path / "a.json").write_bytes(content)
        with pytest.raises(ValueError, match=r"a\.json: not a JSON file") as error:
            files.read_json(tmp_path / "a.json")
        assert ("(nested more than 100 deep)" in str(error.value)) == (content in DEEP)


def test_json_at_the_limits_and_integers_beyond():
    assert files.parse_json("[" * 100 + str(2**64) + "]" * 100, "x")
    with pytest.raises(ValueError, match=r"x: not a JSON file \(an integer of 5,000 digits: 11111111\.\.\.\)"):
        files.parse_json('{"a": ' + "1" * 5000 + "}", "x")


def test_only_a_newline_ends_a_line(tmp_path):
    # By hand: 4 "\n"; U+2028, a lone "\r" and a form feed stay inside their lines, as for wc -l.
    (tmp_path / "a.txt").write_bytes("one\u2028two\na\rb\nc\x0cd\r\n\n".encode())
    assert files.read_lines(tmp_path / "a.txt") == ["one\u2028two", "a\rb", "c\x0cd", ""]
    (tmp_path / "b.txt").write_bytes(b"no end")
    assert files.read_lines(tmp_path / "b.txt") == ["no end"]
    (tmp_path / "c.txt").write_bytes(b"")
    assert files.read_lines(tmp_path / "c.txt") == []


def test_a_text_file_of_another_encoding_is_refused(tmp_path):
    (tmp_path / "a.txt").write_bytes("dreißig".encode("latin-1"))
    with pytest.raises(ValueError, match=r"a\.txt: not a UTF-8 text file"):
        files.read_lines(tmp_path / "a.txt")


def test_sha256(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    # FIPS 180-2, appendix B.1
    assert files.sha256(tmp_path / "a") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    data = os.urandom((1 << 20) + 3)  # more than one block
    (tmp_path / "b").write_bytes(data)
    assert files.sha256(tmp_path / "b") == hashlib.sha256(data).hexdigest()


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
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=tiny.environment(), **pipes) as other:
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
