"""``scripts/bench_sweep.py`` on a model of two epochs, and what ``bench_train.py --whole`` writes; by hand."""

import shutil
import sys
from types import SimpleNamespace

import tiny

from fairseq_headprune.files import read_json, sha256

sys.path.insert(0, str(tiny.ROOT / "scripts"))
import bench_sweep  # noqa: E402
import whole_trainings  # noqa: E402


def test_both_sides_do_all_epochs(trained, tmp_path, monkeypatch, capsys):
    """Source: the verbs that it times; a curve a checkpoint after one to warm up, and the sweep over the same."""
    for epoch in (1, 2):
        shutil.copy(trained["checkpoint"], tmp_path / f"checkpoint{epoch}.pt")
    done = []
    monkeypatch.setattr(bench_sweep.prune, "run", lambda argv: done.append(argv[argv.index("--path") + 1]))
    monkeypatch.setattr(bench_sweep.sweep_epochs, "run", lambda argv: done.append(argv[argv.index("--epochs") + 1]))
    words = [trained["data"], "--checkpoints", tmp_path, "--epochs", "1,2", "--cpu", "--rounds", "2", "--step", "50%"]
    monkeypatch.setattr(sys, "argv", ["bench_sweep.py", *map(str, words), "--output", str(tmp_path / "found.json")])
    bench_sweep.main()
    first, second = (str(tmp_path / f"checkpoint{epoch}.pt") for epoch in (1, 2))
    # The second round starts with the other side.
    assert done == [first, "1,2", first, second, first, second, "1,2"]
    value = read_json(tmp_path / "found.json")
    assert value["checkpoints"] == {f"checkpoint{n}.pt": sha256(trained["checkpoint"]) for n in (1, 2)}
    assert value["sweep_to_curves"]["runs"] == 2 and "sweep / curves" in capsys.readouterr().out


def test_whole_trainings_are_kept_one_by_one(monkeypatch):
    """Epochs of 9, 8, 4 and 6 s, and with graphs of 5, 3, 2 and 2 s, of 10 updates and 40 words each."""
    seconds, kept = {"stock": [9, 8, 4, 6], "gated-graphs": [5, 3, 2, 2]}, []

    def train(cfg, cuda, updates):
        updates.append(10)
        return seconds[cfg]

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
        assert sides["stock"]["first_epochs_seconds"]["median"] == 17
