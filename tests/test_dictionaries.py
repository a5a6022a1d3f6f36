"""Data that does not fit a model: other dictionaries, which every way into a model asks for, and truncated files."""

import hashlib
import os
import shutil

import pytest
import tiny
import torch
from fairseq.data.indexed_dataset import make_builder
from verbs import run_json

from fairseq_headprune.binarised import check_split_files
from fairseq_headprune.checkpoints import read_state


@pytest.fixture(scope="module")
def swapped(data_bin, tmp_path_factory):
    """The data with two words of both dictionaries exchanged: each stays as long as it was."""
    folder = tmp_path_factory.mktemp("swapped") / "data-bin"
    shutil.copytree(data_bin, folder)
    for name in ("dict.xx.txt", "dict.yy.txt"):
        lines = (folder / name).read_text().splitlines()
        lines[3], lines[7] = lines[7], lines[3]
        (folder / name).write_text("\n".join(lines) + "\n")
    return folder


def hashes(data):
    """The hash by hand: fairseq's four own entries, then the first word of each line."""
    words = [line.split()[0] for line in (data / "dict.xx.txt").read_text().splitlines()]
    text = "\n".join(["<s>", "<pad>", "</s>", "<unk>", *words])
    return dict.fromkeys(("source", "target"), hashlib.sha256(text.encode()).hexdigest())


@pytest.mark.parametrize("flag", ["--finetune-from-model", "--restore-file", None])
def test_training_on_with_other_dictionaries_is_refused(trained, swapped, tmp_path, flag):
    if flag is None:  # the checkpoint that is in --save-dir already
        shutil.copy(trained["checkpoint"], tmp_path / "checkpoint_last.pt")
    start = [flag, trained["checkpoint"]] if flag else []
    with pytest.raises(ValueError, match=f"the source and target dictionary in {swapped} differs from the one the"):
        tiny.train(swapped, tmp_path, *tiny.GATED, *start, "--max-update", "7")
    tiny.train(trained["data"], tmp_path, *tiny.GATED, *start, "--max-update", "7")
    noted = read_state(tmp_path / "checkpoint_last.pt")["task_state"]["dictionaries"]
    assert noted == hashes(trained["data"]) != hashes(swapped)


def test_slim_models_of_stock_ones_note_the_dictionaries_that_are_still_there(trained_stock, tmp_path):
    path, slim = trained_stock["checkpoint"], tmp_path / "slim.pt"
    run_json("mask", "--like", path, "--random", "9", "--seed", "1", "-o", tmp_path / "mask.json")

    def noted():
        run_json("slim", path, "--mask", tmp_path / "mask.json", "-o", slim)
        return read_state(slim)["task_state"]["dictionaries"]

    assert noted() == hashes(trained_stock["data"])
    # A dictionary that is younger than the checkpoint may be another one than it was trained with.
    file = trained_stock["data"] / "dict.xx.txt"
    before = file.stat()
    os.utime(file, (before.st_atime, path.stat().st_mtime + 10))
    try:
        assert noted() == {"target": hashes(trained_stock["data"])["target"]}
    finally:
        os.utime(file, (before.st_atime, before.st_mtime))


#: Runs verbs, given as lines of words, and prints their status.
RUN = """
import sys
from fairseq_headprune.cli import main
for line in sys.argv[1:]:
    print(main(line.split()))
"""


@pytest.fixture(params=["mmap", "cached"])
def folder(request, tmp_path):
    """Three sentences in a format that fairseq writes itself."""
    for side in ("xx", "yy"):
        stem = str(tmp_path / f"test.xx-yy.{side}")
        builder = make_builder(f"{stem}.bin", request.param, vocab_size=24)
        for words in ([4, 5, 2], [6, 2], [7, 8, 9, 2]):
            builder.add_item(torch.IntTensor(words))
        builder.finalize(f"{stem}.idx")
    return tmp_path


@pytest.mark.parametrize("order", [("xx", "yy"), ("yy", "xx")])
@pytest.mark.parametrize("side", ["xx", "yy"])
@pytest.mark.parametrize("end", ["idx", "bin"])
def test_every_truncation_is_found(folder, order, side, end):
    # Source: fairseq's own files, which are just long enough.
    check_split_files(str(folder), "test", *order)
    path = folder / f"test.xx-yy.{side}.{end}"
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=rf"^test\.xx-yy\.{side}\.{end} is truncated.* {length} "):
            check_split_files(str(folder), "test", *order)


def test_other_formats_and_missing_files_are_left_to_fairseq(folder):
    check_split_files(str(folder), "valid", "xx", "yy")
    (folder / "test.xx-yy.yy.bin").unlink()
    (folder / "test.xx-yy.xx.idx").write_bytes(b"another format")
    check_split_files(str(folder), "test", "xx", "yy")


def test_a_truncated_split_is_one_line_until_the_process_has_ended(trained, tmp_path):
    # fairseq's half-made objects report when they are collected, which may be as late as at exit.
    calls = []
    for number, (end, length) in enumerate([("idx", 20), ("idx", 40), ("bin", 0), ("bin", 20)]):
        shutil.copytree(trained["data"], tmp_path / str(number))
        path = tmp_path / str(number) / f"test.xx-yy.yy.{end}"
        path.write_bytes(path.read_bytes()[:length])
        calls.append(f"score {path.parent} --path {trained['checkpoint']} --cpu --gen-subset test")
    done = tiny.run_python("-c", RUN, *calls)
    assert done.stdout.split() == ["2"] * 4, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("headprune score: the split 'test' of ")]
    assert len(lines) == 4 and all("yy.idx is truncated" in x or "yy.bin is truncated" in x for x in lines)
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
