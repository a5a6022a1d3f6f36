"""Commands side by side."""

import sys

import pytest

from fairseq_headprune.studies.side_by_side import Command, run_side_by_side


def command(folder, name, code):
    return Command(name, [sys.executable, "-S", "-c", code], folder / f"{name}.log")


def test_all_run_and_logs_are_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    show = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"
    prepared = []
    names = list(run_side_by_side([command(tmp_path, n, show) for n in "abcd"], 4, prepared.append))
    assert sorted(names) == prepared == list("abcd")
    # Four at once on two GPUs: two on each.
    assert sorted((tmp_path / f"{name}.log").read_text().strip() for name in names) == ["4", "4", "7", "7"]


def test_a_failure_is_told_at_the_end_and_does_not_stop_the_others(tmp_path):
    codes = {"good": "", "bad": "import sys; sys.exit('out of luck')", "late": ""}
    done = []
    with pytest.raises(RuntimeError, match=r"1 failed \(bad\).*out of luck"):
        for name in run_side_by_side([command(tmp_path, *item) for item in codes.items()], 1, lambda _: None):
            done.append(name)
    assert done == ["good", "late"]


def test_nothing_more_is_started_when_the_first_fails(tmp_path):
    started = []
    commands = [command(tmp_path, "bad", "raise SystemExit(3)"), command(tmp_path, "next", "")]
    with pytest.raises(RuntimeError, match="bad"):
        list(run_side_by_side(commands, 1, started.append))
    assert started == ["bad"]


def test_commands_end_with_their_caller(tmp_path):
    endless = command(tmp_path, "endless", f"open({str(tmp_path / 'on')!r}, 'w').close(); import time; time.sleep(600)")
    running = run_side_by_side([command(tmp_path, "short", ""), endless], 2, lambda _: None)
    assert next(running) == "short"
    running.close()  # would wait ten minutes if the other one were not ended
