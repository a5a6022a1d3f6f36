"""``scripts/bench_sweep.py`` on a model of two epochs."""

import shutil
import sys

import tiny

from fairseq_headprune.files import read_json, sha256

sys.path.insert(0, str(tiny.ROOT / "scripts"))
import bench_sweep  # noqa: E402


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
