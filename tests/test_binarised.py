"""Truncated data sets are named before fairseq opens them."""

import shutil

import pytest
import tiny
import torch
from fairseq.data.indexed_dataset import make_builder

from fairseq_headprune.binarised import check_split_files

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
