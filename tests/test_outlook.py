"""``--dry-run``: what a study is going to do. Sources: by hand; the model is a made-up one or a tiny one."""

import shutil
from types import SimpleNamespace

import pytest
from verbs import BEAM, refused, run_json

from fairseq_headprune.jobs.training import TrainingJob
from fairseq_headprune.studies import outlook
from fairseq_headprune.studies.study import Cell

LOG = """2026 | INFO | fairseq.data.iterators | grouped total_num_itrs = 70
2026 | INFO | train_inner | {"epoch": 1, "update": 0.014, "ups": "0.5", "gb_free": "130.5", "wall": "2"}
2026 | INFO | train_inner | {"epoch": 1, "update": 0.029, "ups": "1", "gb_free": "130.1", "wall": "2"}
2026 | INFO | train_inner | {"epoch": 1, "update": 0.043, "ups": "20.0", "gb_free": "129.9", "wall": "2"}
2026 | INFO | train_inner | {"epoch": 1, "update": 0.057, "ups": "20.0", "gb_free": "129.9", "wall": "2"}
"""


def test_a_training_is_read_from_its_log():
    # The first updates are slower: of four, the last two count.
    assert outlook.read_training(LOG) == (0.05, 70, 129.9)
    with pytest.raises(RuntimeError, match="no speed of an update"):
        outlook.read_training("begin training")


def job(name, *flags):
    return TrainingJob(name, "data", flags, 1)


def test_trainings_are_added_up(monkeypatch):
    monkeypatch.setattr(outlook, "time_training", lambda first: (4.0, 6.0, 0.05, 70, 3 * 2**30))
    jobs = [
        job("a", "--max-epoch", "10"),
        job("b", "--max-update", "100"),
        job("c", "--max-update=9", "--max-epoch", "1"),
    ]
    found = outlook.trained("study", jobs, 2)
    # 4 s for fairseq; 700 + 100 + 9 updates of 50 ms and three times 6 s to begin, two side by side.
    assert (found.trainings, found.updates, found.seconds) == (3, 809, pytest.approx(4 + (18 + 40.45) / 2))
    assert "trainings  3, 809 updates" in found.text() and "about 33 s" in found.text() and "3.0 GiB" in found.text()
    found = outlook.trained("study", [job("a")], 1)
    assert found.updates is None and found.seconds is None and "time       unknown" in found.text()
    assert outlook.trained("study", [], 1).seconds == 0


def test_times_are_short():
    assert [outlook.shown_time(s) for s in (4.4, 89, 720, 12600)] == ["4 s", "89 s", "12 min", "3.5 h"]


def test_searches_are_bounded(monkeypatch):
    study = SimpleNamespace(
        name="lottery-find", split="test", stepwise=True, at_most=lambda: (14, "at most: it ends sooner"),
        session=SimpleNamespace(scored=lambda split: {"scored": 1000}),
    )  # fmt: skip
    monkeypatch.setattr(outlook, "time_answers", lambda session, split, cells: (0.003 * cells, 2**30, "measured"))
    found = outlook.of_masks(study, ["no-folder"], 2)
    assert (found.cells, found.answers, found.seconds) == (14, 14000, pytest.approx(21))
    assert found.notes == ["at most: it ends sooner", "measured"]
    study.at_most = lambda: (None, "the number is not known")
    assert outlook.of_masks(study, ["no-folder"], 2).seconds is None


def test_a_study_says_what_it_would_do_and_writes_nothing(trained, tmp_path, monkeypatch, capsys):
    model = [trained["data"], "--path", trained["checkpoint"], *BEAM]
    monkeypatch.setattr(outlook, "ENOUGH", 0.0)
    value = run_json("ablate", *model, "-o", tmp_path / "a", "--dry-run")
    # The unpruned model and each of 12 heads, on 8 sentences.
    assert (value["cells"], value["done"], value["answers"]) == (13, 0, 104) and value["seconds"] > 0
    assert run_json("prune", *model, "--reestimate", "-o", tmp_path / "a", "--step", "50%", "--dry-run")["cells"] == 3
    found = run_json("lottery", "find", *model, "--mode", "heads", "--step", "50%", "-o", tmp_path / "a", "--dry-run")
    # One mask at a time; where steps are known ahead, several.
    assert found["notes"][1].endswith("with one mask") and "masks at once" in value["notes"][0]
    # Two steps, the rejected ones, and two cells of test; 1 + 2 + 3 + 2.
    assert found["cells"] == 8 and found["notes"][0].startswith("at most")
    # The unpruned model, then for each of 6 layers its 2 heads on each of two splits, the same one here.
    assert run_json("keep-one", *model, "-o", tmp_path / "a", "--dry-run")["cells"] == 20
    assert not (tmp_path / "a").exists()
    # Half done, the rest is left.
    run_json("ablate", *model, "-o", tmp_path / "a", "--components", "enc_self")
    value = run_json("ablate", *model, "-o", tmp_path / "a", "--components", "enc_self", "--dry-run")
    assert (value["cells"], value["done"], value["seconds"]) == (0, 5, 0)
    # What the study itself would refuse is refused: the folder is that of another one.
    other = "holds a study with other settings: {} there"
    line = refused(capsys, "ablate", *model, "-o", tmp_path / "a", "--dry-run")
    assert other.format('components is ["enc_self"]') in line
    for verb in ("prune", "lottery find --mode heads"):
        assert other.format('study is "ablate"') in refused(
            capsys, *verb.split(), *model, "-o", tmp_path / "a", "--dry-run"
        )
    (tmp_path / "file").write_text("")
    assert "is a file; name a folder" in refused(capsys, "prune", *model, "-o", tmp_path / "file", "--dry-run")


def test_a_study_that_trains_measures_a_training(trained, tmp_path, capsys):
    flags = "--arch transformer_gated_tiny --optimizer adam --lr 0.01 --batch-size 16 --num-workers 0 --cpu "
    flags += "--criterion label_smoothed_cross_entropy"
    model = [trained["data"], "--path", trained["checkpoint"], *BEAM, "--train-flags", flags, "-o", tmp_path / "r"]
    value = run_json("random-study", *model, "--random", "25%", "--seeds", "1", "2", "--epochs", "3", "--dry-run")
    # 60 pairs in batches of 16, 3 epochs, 2 trainings; the unpruned model and two others on 8 sentences.
    assert (value["cells"], value["trainings"], value["updates"], value["answers"]) == (3, 2, 24, 24)
    assert value["seconds"] > 0 and value["memory"] > 2**26 and not (tmp_path / "r").exists()
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "letter").write_text("")
    line = refused(capsys, "random-study", *model, "--random", "25%", "--epochs", "3", "--dry-run")
    assert "is no study folder and holds other files (letter" in line
    compare = ["compare-pruners", trained["data"], "--work", tmp_path / "r", "--out", tmp_path / "out", "--counts", "4"]
    compare += ["--arch", "transformer_gated_tiny", "--methods", "unpruned", "--updates", "20", "--train-flags=--cpu"]
    assert "holds other files (letter" in refused(capsys, *compare, "--dry-run")


def test_trainings_that_others_start_from_are_counted_until_they_are_done(tmp_path, monkeypatch):
    monkeypatch.setattr(outlook, "time_answers", lambda session, split, cells: (0.1, 2**31, "measured"))
    monkeypatch.setattr(outlook, "time_training", lambda first: (0.0, 1.0, 0.5, 70, 2**30))
    names = ["fresh", "retrained", "random"]
    cells = [Cell("pruned"), *(Cell(name, job=job(name, "--max-update", "10")) for name in names)]
    study = SimpleNamespace(
        name="lottery-retrain", split="test", plan=lambda: cells, before=lambda: [job("start", "--max-update", "4")],
        session=SimpleNamespace(scored=lambda split: {"scored": 100}),
    )  # fmt: skip

    def seen(*finished):
        monkeypatch.setattr(outlook, "finished", lambda path: dict.fromkeys(finished))
        found = outlook.of_trainings(study, tmp_path, 1)
        return found.cells, found.trainings, found.updates, found.seconds, found.memory

    # By hand: 1 s a training to begin, 0.5 s an update; 100 sentences a cell of 0.1 s. The larger peak counts.
    assert seen() == (4, 4, 34, 4 + 17 + 40, 2**31)
    assert seen("pruned") == (3, 4, 34, 4 + 17 + 30, 2**31)
    (tmp_path / "runs" / "start").mkdir(parents=True)
    (tmp_path / "runs" / "start" / "done.json").write_text("{}")
    assert seen("pruned", "random") == (2, 2, 20, 2 + 10 + 20, 2**31)
    assert seen("pruned", *names) == (0, 0, 0, 0, 2**31)


def test_a_training_that_ends_without_a_word_is_told(monkeypatch):
    killed = SimpleNamespace(returncode=-9, stdout="", stderr="")
    monkeypatch.setattr(outlook, "_timed", lambda words: (killed, 1.0))
    with pytest.raises(RuntimeError, match="--dry-run: the training ends with status -9"):
        outlook.time_training(job("a"))


def test_what_is_done_is_found_in_the_folders_of_epochs_modes_and_models(trained, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(outlook, "ENOUGH", 0.0)
    for epoch in (1, 2):
        shutil.copy(trained["checkpoint"], tmp_path / f"checkpoint{epoch}.pt")
    base = [trained["data"], *BEAM, "--step", "50%"]
    sweep = ["sweep-epochs", *base, "--checkpoints", tmp_path, "--score-sentences", "20", "-o", tmp_path / "s"]
    run_json(*sweep, "--epochs", "1")
    value = run_json(*sweep, "--dry-run")  # two steps and the unpruned model, at either epoch
    assert (value["cells"], value["done"], value["answers"]) == (3, 3, 24)
    find = ["lottery", "find", *base, "--mode", "heads,magnitude", "--threshold", "0.01", "-o", tmp_path / "f"]
    run_json(*find, "--path", trained["checkpoint"])
    cells = {
        mode: len((tmp_path / "f" / mode / "cells.jsonl").read_text().splitlines()) for mode in ("heads", "magnitude")
    }
    found = run_json(*find, "--path", trained["checkpoint"], "--dry-run")["studies"]
    assert [one["done"] for one in found] == list(cells.values()) and min(cells.values()) > 0
    several = [tmp_path / f"checkpoint{epoch}.pt" for epoch in (1, 2)]
    found = run_json(*find, "--paths", *several, "--dry-run")["studies"]
    assert [one["done"] for one in found] == [0, 0] and found[0]["cells"] == 16
    line = refused(capsys, *sweep[:-1], tmp_path / "f" / "heads", "--dry-run")
    assert 'study is "lottery-find" there and "sweep-epochs" now' in line
    # It does not wait for a training to write its first checkpoint.
    (tmp_path / "none").mkdir()
    follow = ["sweep-epochs", *base, "--checkpoints", tmp_path / "none", "--follow", "-o", tmp_path / "t", "--dry-run"]
    assert "holds no checkpointN.pt" in refused(capsys, *follow)


def test_a_training_is_measured_over_several_epochs_if_one_has_few_updates(monkeypatch):
    # An epoch of one update has no speed in fairseq's log; --max-epoch 0 is fairseq's value for no limit.
    ran = []

    def timed(words):
        ran.append(words)
        return SimpleNamespace(returncode=0, stdout="", stderr=LOG.replace("gb_free", "cpu")), 3.0

    monkeypatch.setattr(outlook, "_timed", timed)
    outlook.time_training(job("a", "--max-epoch", "1"))
    places = [place for place, word in enumerate(ran[0]) if word == "--max-epoch"]
    assert [ran[0][place + 1] for place in places] == ["1", "0"]
