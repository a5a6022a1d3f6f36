"""Commands side by side."""

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from fairseq_headprune.studies.side_by_side import Command, run_side_by_side
from fairseq_headprune.studies.workers import with_package


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


def test_a_training_ends_with_a_caller_that_is_killed(tmp_path):
    """Also where the caller is gone before fairseq has loaded the plugin, which looks: the pipe stays closed."""
    late = "import os, sys, time; open('on', 'w').write(str(os.getpid())); time.sleep(1); "
    late += "import fairseq_headprune.plugin; time.sleep(600)"
    caller = f"""
from pathlib import Path
from fairseq_headprune.studies.side_by_side import Command, run_side_by_side
words = [{sys.executable!r}, "-c", {late!r}]
list(run_side_by_side([Command("late", words, Path("log"))], 1, lambda name: None))
"""
    process = subprocess.Popen([sys.executable, "-c", caller], cwd=tmp_path, env=with_package(os.environ))
    wait_for(lambda: (tmp_path / "on").exists() and (tmp_path / "on").read_text())
    process.kill()
    process.wait()
    child = int((tmp_path / "on").read_text())
    wait_for(lambda: not running(child))
    assert not running(child)


def running(process):
    """Whether a process is there that has not ended (one that nobody has waited for counts as ended)."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False


def wait_for(found):
    deadline = time.monotonic() + 60
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_command_waits_for_the_one_it_comes_after(tmp_path):
    """Two at once: the third is waited for, the second not."""
    late = command(tmp_path, "late", "import time; time.sleep(1.5)")
    needy = replace(command(tmp_path, "needy", ""), after="late")
    stranger = replace(command(tmp_path, "stranger", ""), after="done long ago")
    started = []
    assert list(run_side_by_side([late, needy, stranger], 2, started.append)) == ["stranger", "late", "needy"]
    assert started == ["late", "stranger", "needy"]


def test_what_comes_after_a_failure_is_not_started(tmp_path):
    bad = command(tmp_path, "bad", "raise SystemExit(3)")
    started = []
    commands = [command(tmp_path, "good", ""), bad, replace(command(tmp_path, "needy", ""), after="bad")]
    with pytest.raises(RuntimeError, match=r"1 failed \(bad\)"):
        list(run_side_by_side(commands, 1, started.append))
    assert started == ["good", "bad"]


def test_the_limit_ends_what_runs_and_names_it(tmp_path):
    endless = command(tmp_path, "endless", "import time; time.sleep(600)")
    commands = [command(tmp_path, "short", ""), endless, command(tmp_path, "next", "")]
    done = []
    with pytest.raises(TimeoutError, match="not done within 3 s: endless, next"):
        for name in run_side_by_side(commands, 1, lambda _: None, limit=3):
            done.append(name)
    assert done == ["short"]


def test_folder_settings_and_output(tmp_path):
    code = "import os, sys; print(os.getcwd(), os.environ['SEED']); print('log', file=sys.stderr)"
    found = replace(command(tmp_path, "a", code), cwd=tmp_path, settings={"SEED": "7"}, output=tmp_path / "a.out")
    assert list(run_side_by_side([found], 1, lambda _: None)) == ["a"]
    assert (tmp_path / "a.out").read_text() == f"{tmp_path} 7\n" and (tmp_path / "a.log").read_text() == "log\n"
