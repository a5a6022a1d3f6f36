"""Which dictionaries a model was trained with: weights fit any of their size, so every way into a model asks."""

import hashlib
import os
import shutil

import pytest
import tiny
from verbs import run_json

from fairseq_headprune.checkpoints import read_state

GATED = ["--arch", "transformer_gated_tiny", "--task", "translation_headprune", "--user-dir"]
GATED.append(str(tiny.ROOT / "fairseq_headprune"))


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
        tiny.train(swapped, tmp_path, *GATED, *start, "--max-update", "7")
    tiny.train(trained["data"], tmp_path, *GATED, *start, "--max-update", "7")
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
