"""``bench_sweep.py`` on a model of two epochs, ``bench_find.py``, what ``bench_train.py --whole`` writes: by hand."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import bench_find
import bench_sweep
import tiny
import whole_trainings

from fairseq_headprune.files import read_json, sha256
from fairseq_headprune.studies.folder import StudyFolder


def test_both_sides_do_all_epochs(trained, tmp_path, monkeypatch, capsys):
    """Source: the verbs that it times; a curve a checkpoint after one to warm up, and the sweep over the same."""
    for epoch in (1, 2):
        shutil.copy(trained["checkpoint"], tmp_path / f"checkpoint{epoch}.pt")
    done = []
    monkeypatch.setattr(bench_sweep.prune, "run", lambda argv: done.append(argv[argv.index("--path") + 1]))
    monkeypatch.setattr(bench_sweep.sweep_epochs, "run", lambda argv: done.append(argv[argv.index("--epochs") + 1]))
    words = [trained["data"], "--checkpoints", tmp_path, "--epochs", "1,2", "--cpu", "--rounds", "2", "--step", "50%"]
    tiny.run_main(bench_sweep, *words, "--output", tmp_path / "found.json")
    first, second = (str(tmp_path / f"checkpoint{epoch}.pt") for epoch in (1, 2))
    # The second round starts with the other side.
    assert done == [first, "1,2", first, second, first, second, "1,2"]
    value = read_json(tmp_path / "found.json")
    assert value["checkpoints"] == {f"checkpoint{n}.pt": sha256(trained["checkpoint"]) for n in (1, 2)}
    assert value["sweep_to_curves"]["runs"] == 2 and "sweep / curves" in capsys.readouterr().out


def test_a_search_is_timed_as_a_command(trained, tmp_path, monkeypatch, capsys):
    """Two runs. A search of two masks in the place of the verb's: its settings and the hashes of the data are kept."""
    calls = []

    def find(words, **_):
        calls.append(words[words.index("find") :])
        settings = {"mode": "both", "checkpoint": "c", "precision": "fp32", "data": {"split": "valid"}}
        folder = StudyFolder.open(Path(words[-1], "model-1"), settings)
        for name in ("unpruned", "step-001"):
            folder.append({"id": name})

    monkeypatch.setattr(bench_find, "subprocess", SimpleNamespace(run=find, DEVNULL=None))
    path, data = str(trained["checkpoint"]), str(trained["data"])
    tiny.run_main(bench_find, data, "--paths", path, "--mode", "both", "--cpu", "--output", tmp_path / "found.json")
    assert [call[:7] for call in calls] == [["find", data, "--paths", path, "--mode", "both", "--cpu"]] * 2
    value = read_json(tmp_path / "found.json")
    assert value["models"] == [{"sha256": sha256(path), "updates": 5}] and value["device"] == "cpu"
    assert value["data_files"]["dict.xx.txt"] == sha256(trained["data"] / "dict.xx.txt")
    assert [search["cells"] for search in value["searches"]] == [2] and value["environment"]["git"]
    assert value["seconds"]["runs"] == 2 and "whole command" in capsys.readouterr().out


def test_whole_trainings_are_kept_one_by_one(monkeypatch):
    """Epochs of 9, 8, 4 and 6 s, and with graphs of 5, 3, 2 and 2 s, of 10 updates and 40 words each."""
    seconds, kept = {"stock": [9, 8, 4, 6], "gated-graphs": [5, 3, 2, 2]}, []

    def train(cfg, cuda):
        return [
            {"seconds": took, "updates": 10, "update": took / 20, "stalled": 0, "validation": 1}
            for took in seconds[cfg]
        ]

    monkeypatch.setattr(whole_trainings, "_epochs", train)
    args = SimpleNamespace(rounds=2, whole=2, workers=0)
    keep = lambda times: kept.append(whole_trainings.describe(times, words=40))  # noqa: E731
    whole_trainings.time_trainings(args, list(seconds), lambda args, name, *rest: name, False, keep)
    # The second round begins with the other side.
    runs = [{name: side["first_epochs_seconds"]["runs"] for name, side in sides.items()} for sides in kept]
    assert runs == [{"stock": 1}, *({"stock": n, "gated-graphs": m} for n, m in ((1, 1), (1, 2), (2, 2)))]
    for sides in kept[1:3]:
        graphs = sides["gated-graphs"]
        assert graphs["speed_to_stock"] == {"median": 2.5, "min": 2, "max": 3, "runs": 2}
        assert graphs["words_per_second"]["median"] == 20 and graphs["ms_per_update"]["median"] == 200
        assert graphs["median_update_ms"]["max"] == 100 and graphs["validation_seconds"]["median"] == 1
        assert sides["stock"]["first_epochs_seconds"]["median"] == 17


def test_updates_that_stall_are_told_apart():
    # By hand: updates of 1, 1, 3, 1 and 2 s; the median is 1, and only one takes more than twice as long.
    assert whole_trainings.of_updates([0, 1, 2, 5, 6, 8]) == {"update": 1, "stalled": 2}
    assert whole_trainings.of_updates([7.0]) == {"update": 0, "stalled": 0}
