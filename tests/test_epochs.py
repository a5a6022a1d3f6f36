"""The epoch checkpoints of a training run."""

import os
import re
from argparse import Namespace

import pytest
import tiny
import torch
from scipy import stats

from fairseq_headprune.parts.scores import Scores
from fairseq_headprune.studies import sweep
from fairseq_headprune.studies.epochs import EpochCheckpoints, epoch_list, parse_epochs
from fairseq_headprune.studies.sweep_result import evolution


def test_lists_of_epochs():
    # Source: by hand.
    assert parse_epochs("1,2,5-7, 9 - 9") == {1, 2, 5, 6, 7, 9}
    assert epoch_list({9, 1, 2, 5, 6, 7}) == "1-2,5-7,9" and epoch_list([]) == ""
    for wrong in ("", "0", "3-1", "1,,2", "x", "-4", "1-", "2.5"):
        with pytest.raises(ValueError, match=re.escape(f"--epochs {wrong!r}")):
            parse_epochs(wrong)


@pytest.fixture
def folder(trained, tmp_path):
    """checkpoint1.pt and checkpoint4.pt are whole; 3 is the first half of one, and others are no epochs."""
    whole = trained["checkpoint"].read_bytes()
    for name in ("checkpoint1.pt", "checkpoint4.pt", "checkpoint_2_500.pt", "checkpoint_best.pt", "checkpoint0.pt"):
        (tmp_path / name).write_bytes(whole)
    (tmp_path / "checkpoint3.pt").write_bytes(whole[: len(whole) // 2])
    return tmp_path


def test_half_written_checkpoints_and_gaps(folder):
    checkpoints = EpochCheckpoints(folder)
    found = checkpoints.readable()
    assert list(found) == [1, 4] and found[4] == folder / "checkpoint4.pt"
    assert list(checkpoints.skipped) == [3] and "damaged or truncated" in checkpoints.skipped[3]
    # Source: by hand: of 1 to 4 only 2 has no file.
    assert checkpoints.missing(found) == [2]
    # Once it is whole it is found.
    (folder / "checkpoint3.pt").write_bytes((folder / "checkpoint1.pt").read_bytes())
    assert list(checkpoints.readable()) == [1, 3, 4] and checkpoints.skipped == {}


def test_only_wanted_epochs_count(folder):
    checkpoints = EpochCheckpoints(folder, {1, 2, 7})
    assert list(checkpoints.readable()) == [1] and checkpoints.skipped == {}
    assert checkpoints.missing([1]) == [2, 7]
    with pytest.raises(FileNotFoundError, match="--checkpoints nowhere"):
        EpochCheckpoints("nowhere")


def test_a_rejected_checkpoint_comes_back_when_its_file_changes(folder):
    checkpoints = EpochCheckpoints(folder)
    checkpoints.readable()
    checkpoints.reject(4, "of another model")
    assert list(checkpoints.readable()) == [1] and checkpoints.skipped[4] == "of another model"
    os.utime(folder / "checkpoint4.pt", (1, 1))
    assert list(checkpoints.readable()) == [1, 4]


def last(folder, source, max_update, max_epoch, epoch):
    state = torch.load(source, weights_only=False)
    state["cfg"]["optimization"].update(max_update=max_update, max_epoch=max_epoch)
    state["extra_state"]["train_iterator"].update(epoch=epoch, iterations_in_epoch=0)
    torch.save(state, folder / "checkpoint_last.pt")


# Source: fairseq saves the beginning of epoch n + 1 at the end of epoch n; the checkpoint is of update 5.
@pytest.mark.parametrize(
    ("max_update", "max_epoch", "epoch", "ended"),
    [(5, 0, 2, True), (6, 0, 2, False), (0, 0, 9, False), (0, 8, 9, True), (0, 9, 9, False), (6, 8, 9, True)],
)
def test_the_end_of_training_is_seen_in_the_last_checkpoint(trained, tmp_path, max_update, max_epoch, epoch, ended):
    checkpoints = EpochCheckpoints(tmp_path)
    assert not checkpoints.training_ended()
    last(tmp_path, trained["checkpoint"], max_update, max_epoch, epoch)
    assert checkpoints.training_ended() == ended


def test_what_fairseq_saves_at_the_end_says_so(data_bin, tmp_path):
    # Source: fairseq-train itself, which ran to its limit of epochs; the file of epoch 1 is of before the end.
    tiny.train(data_bin, tmp_path, *tiny.GATED, "--max-epoch", "2", "--max-update", "0", epochs=True)
    checkpoints = EpochCheckpoints(tmp_path)
    assert list(checkpoints.readable()) == [1, 2] and checkpoints.training_ended()
    (tmp_path / "checkpoint1.pt").rename(tmp_path / "checkpoint_last.pt")
    assert not checkpoints.training_ended()


def test_a_run_whose_checkpoints_are_all_refused_is_not_waited_for(tmp_path, monkeypatch, capsys):
    path, sizes = tmp_path / "checkpoint1.pt", iter((60, 90, 90))
    path.write_bytes(b"x" * 30)
    # It is being written while it grows: at the fourth look it is as it was at the third.
    waits = []
    monkeypatch.setattr(
        sweep.time, "sleep", lambda seconds: (waits.append(seconds), path.write_bytes(b"x" * next(sizes)))
    )
    monkeypatch.setattr(EpochCheckpoints, "_state_of", staticmethod(lambda path: (0, path.stat().st_size)))
    with pytest.raises(ValueError, match="no checkpointN.pt that can be used; epoch 1: .*not a checkpoint"):
        sweep.first_session(Namespace(), EpochCheckpoints(tmp_path), sweep.Follow(None, 3600.0))
    assert len(waits) == 3
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 3 and all("waiting for the first checkpoint" in line and "epoch 1: " in line for line in told)


ROWS = {1: [1.0, 2.0, 3.0, 4.0, 5.0], 2: [5.0, 4.0, 3.0, 2.0, 1.0], 3: [1.0, 3.0, 2.0, 5.0, 4.0], 4: [0.0] * 5}


def scores(*epochs):
    return {epoch: Scores({"enc_self": [ROWS[epoch][:3], ROWS[epoch][3:]]}, estimator="x") for epoch in epochs}


def test_correlation_of_the_rankings():
    found = evolution(scores(1, 2, 3, 4), ["enc_self"], [])
    # Source: by hand (a reversed order has -1) and scipy; equal scores rank nothing.
    assert found["epochs"] == [1, 2, 3, 4] and found["spearman"][0][1] == pytest.approx(-1)
    assert found["spearman"][2][0] == found["spearman"][0][2] == pytest.approx(stats.spearmanr(ROWS[1], ROWS[3])[0])
    assert [row[3] for row in found["spearman"]] == [None] * 4
    assert found["spearman"][1][1] == pytest.approx(1)


def test_when_the_final_set_is_reached():
    # Source: by hand: best two of epochs 1 and 3: heads 3 and 4; of epoch 2: heads 0 and 1.
    found = evolution(scores(1, 2, 3), ["enc_self"], [2, 4])["sets"]
    assert found[0] == {
        "keep": 2, "final": [["enc_self", 1, 0], ["enc_self", 1, 1]], "first": 1, "stays_from": 3,
        "shared": [2, 0, 2],
    }  # fmt: skip
    # Four of five: all but head 0, which is the last of epoch 2 too? No: its last is head 4.
    assert found[1]["first"] == 1 and found[1]["shared"] == [4, 3, 4]
    assert evolution(scores(2, 1, 3), ["enc_self"], [2])["sets"][0]["first"] == 1
