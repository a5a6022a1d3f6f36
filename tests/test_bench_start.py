"""``scripts/bench_start.py`` on a tiny model."""

import os

import bench_start
import pytest
import tiny

from fairseq_headprune.files import read_json
from fairseq_headprune.jobs.template import CAN_FORK

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not CAN_FORK, reason="jobs are forked on Linux only")]


def test_both_ways_are_measured_and_forks_do_not_import(tmp_path, monkeypatch, capsys):
    # What is found by the caller's PYTHONPATH only, is found by the processes, too.
    (tmp_path / "sitecustomize.py").write_text(f"open({str(tmp_path / 'started')!r}, 'a').write('x')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    words = ["--arch", "transformer_gated_tiny", "--rounds", "1", "--cpu", "--output", tmp_path / "found.json"]
    tiny.run_main(bench_start, *words)
    assert len((tmp_path / "started").read_text()) >= 4  # the training, the template, a job of each kind
    value = read_json(tmp_path / "found.json")
    rows = {
        (row["job"], row["start"]): {part: row[part]["median"] for part in bench_start.PARTS} for row in value["rows"]
    }
    totals = {(row["job"], row["start"]): row["total"]["median"] for row in value["rows"]}
    assert set(rows) == {(job, start) for job in ("training", "translating") for start in ("fork", "own")}
    for job in ("training", "translating"):
        fork, own = rows[job, "fork"], rows[job, "own"]
        # What one of its own imports is what the template has imported; the rest is the same work.
        assert fork["imports"] < own["imports"] / 10 and own["imports"] > value["template"]["median"] / 2
        assert min(*fork.values(), *own.values()) > 0
        assert totals[job, "fork"] == pytest.approx(sum(fork.values()))
    assert "of its own" in capsys.readouterr().out
