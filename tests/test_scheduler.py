"""Commands side by side: devices, failures, limits, restarts, and the leash. The commands are real, but cheap."""

import ctypes
import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
from clock import Clock
from living import CLIMB, happens, running

from fairseq_headprune.jobs import processes
from fairseq_headprune.jobs.claims import Claims
from fairseq_headprune.jobs.processes import leashed, with_package
from fairseq_headprune.jobs.scheduler import IDLE_ATTEMPTS, Command, run_commands, share_commands


def command(folder, name, code, **more):
    return Command(name, [sys.executable, "-S", "-c", code], folder / f"{name}.log", **more)


def test_all_run_and_logs_are_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    show = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'], os.environ['HEADPRUNE_JOBS_ON_GPU'])"
    prepared = []
    names = list(run_commands([command(tmp_path, n, show) for n in "abcd"], 4, prepared.append))
    assert sorted(names) == prepared == list("abcd")
    # Four at once on two GPUs: two on each, which they are told.
    assert sorted((tmp_path / f"{name}.log").read_text().strip() for name in names) == ["4 2", "4 2", "7 2", "7 2"]


@pytest.mark.parametrize("lengths", [[1], [7, 1, 1], [3, 20, 1, 9]])
def test_a_command_goes_to_the_least_used_gpu_however_places_become_free(tmp_path, monkeypatch, lengths):
    """On a made-up clock; every fifth command dies once, when others end."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    monkeypatch.setattr(processes, "threads", lambda count: 1)
    attempts = Counter()

    def end(name):
        attempts[name] += 1
        return int(attempts[name] == 1 and int(name) % 5 == 0)

    clock = Clock(lambda name: lengths[int(name) % len(lengths)], end)
    with clock.instead():
        commands = [command(tmp_path, str(n), "", progress=lambda n=str(n): attempts[n]) for n in range(200)]
        assert len(list(run_commands(commands, 28))) == 200
    assert len(clock.spread) == 240 and all(chosen == min(each) <= 13 for chosen, each in clock.spread)


def test_what_is_ready_starts_while_others_run_and_the_first_may_stand_for_several(tmp_path):
    """By hand, two at once: base and long; then needy, and three that one process takes."""
    after = {"needy": ["base"], "a": ["base"], "b": ["needy"], "c": ["base"]}
    names, clock, done = ["long", "base", "needy", "a", "b", "c"], Clock(lambda name: 9 if name == "long" else 2), set()
    commands = [command(tmp_path, name, "", after=after.get(name, [])) for name in names]

    def together(free):
        return free if free[0] == "a" else free[:1]

    with clock.instead():
        for name in share_commands(commands, 2, Claims(tmp_path), done.copy, together=together):
            done.update("abc" if name == "a" else [name])
    began = {name: round(time) for name, time in clock.began.items()}
    assert began == {"long": 0, "base": 0, "needy": 2, "a": 4} and done == set(names)


def test_a_failure_is_told_at_the_end_and_does_not_stop_the_others(tmp_path):
    codes = {"good": "", "bad": "import sys; sys.exit('out of luck')", "late": ""}
    commands = [command(tmp_path, *item) for item in codes.items()]
    commands.insert(2, replace(command(tmp_path, "needy", ""), after=["bad"]))
    started, done = [], []
    with pytest.raises(RuntimeError, match=r"1 failed \(bad\).*out of luck"):
        for name in run_commands(commands, 1, started.append):
            done.append(name)
    # What comes after one that failed is not started.
    assert done == ["good", "late"] and started == ["good", "bad", "late"]


def test_nothing_more_is_started_when_the_first_fails(tmp_path):
    started = []
    commands = [command(tmp_path, "bad", "raise SystemExit(3)"), command(tmp_path, "next", "")]
    with pytest.raises(RuntimeError, match="bad"):
        list(run_commands(commands, 1, started.append))
    assert started == ["bad"]


def test_a_command_waits_for_the_one_it_comes_after(tmp_path):
    """Two at once: the third is waited for, the second not."""
    late = command(tmp_path, "late", "import time; time.sleep(1.5)")
    needy, stranger = (command(tmp_path, *item) for item in (("needy", ""), ("stranger", "")))
    needy, stranger = replace(needy, after=["late"]), replace(stranger, after=["long ago"])
    started = []
    assert list(run_commands([late, needy, stranger], 2, started.append)) == ["stranger", "late", "needy"]
    assert started == ["late", "stranger", "needy"]


def test_the_limit_ends_what_runs_and_names_it(tmp_path):
    endless = command(tmp_path, "endless", "import time; time.sleep(600)")
    commands = [command(tmp_path, "short", ""), endless, command(tmp_path, "next", "")]
    done = []
    with pytest.raises(TimeoutError, match="not done within 2 s: endless, next"):
        for name in run_commands(commands, 1, limit=2):
            done.append(name)
    assert done == ["short"]
    with pytest.raises(TimeoutError, match="not done within 0 s: next"):
        list(share_commands(commands[2:], 1, Claims(tmp_path), set, limit=0))


def test_folder_settings_and_output(tmp_path):
    code = "import os, sys; print(os.getcwd(), os.environ['SEED']); print('log', file=sys.stderr)"
    found = command(tmp_path, "a", code, cwd=tmp_path, settings={"SEED": "7"}, output=tmp_path / "a.out")
    assert list(run_commands([found], 1)) == ["a"]
    assert (tmp_path / "a.out").read_text() == f"{tmp_path} 7\n" and (tmp_path / "a.log").read_text() == "log\n"


def test_more_is_asked_for_when_a_place_is_free(tmp_path):
    further = [command(tmp_path, name, "") for name in ("b", "c")]
    names = list(run_commands([command(tmp_path, "a", "")], 1, more=lambda: [further.pop(0)] if further else []))
    assert names == ["a", "b", "c"]


def test_a_command_that_dies_is_started_again_as_long_as_it_gets_further(tmp_path, capsys):
    steps = tmp_path / "steps"
    climbing = command(
        tmp_path, "climb", CLIMB.format(path=str(steps)), progress=lambda: steps.exists() and steps.stat().st_size
    )
    prepared = []
    assert list(run_commands([climbing], 1, prepared.append)) == ["climb"]
    assert prepared == ["climb"] * 3 and capsys.readouterr().err.count("climb died (killed); it is started again") == 2
    # Without a word on its progress a command has one attempt.
    steps.unlink()
    with pytest.raises(RuntimeError, match="climb"):
        list(run_commands([replace(climbing, progress=None)], 1))
    assert steps.read_text() == "line\n"


def test_a_command_that_gets_no_further_is_given_up(tmp_path, capsys):
    stuck = command(tmp_path, "stuck", "import sys; sys.exit('no memory')", progress=lambda: None)
    prepared = []
    with pytest.raises(RuntimeError, match=r"1 failed \(stuck\).*no memory"):
        list(run_commands([stuck], 1, prepared.append))
    assert len(prepared) == IDLE_ATTEMPTS == capsys.readouterr().err.count("stuck died") + 1


def test_commands_end_with_their_caller(tmp_path):
    endless = command(tmp_path, "endless", "import time; time.sleep(600)")
    began, running = time.monotonic(), run_commands([command(tmp_path, "short", ""), endless], 2)
    assert next(running) == "short"
    running.close()
    assert time.monotonic() - began < 60  # of the ten minutes that the other one would take


#: A process of ours, which arms the leash itself; and another program's command, run on the leash with its child.
OURS = """
import os, time
from fairseq_headprune.jobs.processes import end_with_parent
end_with_parent()
open("child", "w").write(str(os.getpid()))
time.sleep(600)
"""
OTHERS = ["sh", "-c", "sleep 600 & echo $! >child; wait"]


@pytest.mark.parametrize("words", [[sys.executable, "-c", OURS], leashed(OTHERS)])
def test_a_process_on_the_leash_ends_with_a_caller_that_is_killed(tmp_path, words):
    caller = f"""
from pathlib import Path
from fairseq_headprune.jobs.scheduler import Command, run_commands
list(run_commands([Command("late", {words!r}, Path("log"))], 1))
"""
    process = subprocess.Popen([sys.executable, "-c", caller], cwd=tmp_path, env=with_package(os.environ))
    assert happens(lambda: (tmp_path / "child").exists() and (tmp_path / "child").read_text().strip())
    process.kill()
    process.wait()
    child = int((tmp_path / "child").read_text())
    assert happens(lambda: not running(child))


def test_a_leashed_verb_is_not_ended_by_its_empty_input(tmp_path):
    words = [sys.executable, "-m", "fairseq_headprune", "completion", "bash"]
    assert list(run_commands([Command("verb", leashed(words), tmp_path / "log")], 1)) == ["verb"]
    assert "complete" in (tmp_path / "log").read_text()


def test_a_leashed_command_s_status_is_told(tmp_path):
    commands = [Command(name, leashed(["sh", "-c", f"exit {name}"]), tmp_path / "log") for name in "03"]
    with pytest.raises(RuntimeError, match=r"1 failed \(3\)"):
        list(run_commands(commands, 1))


@pytest.mark.parametrize(("jobs", "found", "expected"), [("3", 0, [("first GPU", 4)]), ("1", 0, []), ("3", 100, [])])
def test_processes_that_share_a_gpu_sleep_while_it_works(jobs, found, expected, monkeypatch):
    """Source: CUDA's driver interface: CU_CTX_SCHED_BLOCKING_SYNC is 4, CUDA_ERROR_NO_DEVICE 100."""
    flags, driver = [], SimpleNamespace(cuInit=lambda zero: found, cuDeviceGet=lambda place, number: found)
    driver.cuDevicePrimaryCtxSetFlags_v2 = lambda device, value: flags.append(("first GPU", value))
    monkeypatch.setattr(processes.ctypes, "CDLL", lambda name: driver)
    monkeypatch.setenv(processes.JOBS_ON_GPU, jobs)
    processes.sleep_while_gpu_works()
    assert flags == expected


def test_without_a_driver_processes_start_as_well(monkeypatch):
    load, tried = ctypes.CDLL, []
    monkeypatch.setattr(processes.ctypes, "CDLL", lambda name: [tried.append(name), load("no such library")])
    monkeypatch.setenv(processes.JOBS_ON_GPU, "3")
    processes.sleep_while_gpu_works()
    assert tried == ["libcuda.so.1"]
