"""Jobs that are forks of a process that has loaded fairseq: as processes of their own, but cheap."""

import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from living import CLIMB, happens, running

from fairseq_headprune.files import read_json
from fairseq_headprune.jobs import processes, template
from fairseq_headprune.jobs.scheduler import Command, run_commands

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not template.CAN_FORK, reason="jobs are forked on Linux only")]


@pytest.fixture(scope="module", autouse=True)
def no_template_is_left():
    yield
    template.close()


def command(folder, name, code, *words, **more):
    """A command that runs a module of this code in the folder."""
    (folder / f"{name}.py").write_text(code)
    words = [sys.executable, "-m", name, *words]
    return Command(name, words, folder / f"{name}.log", **{"cwd": folder, "forked": True, **more})


#: What a process finds, as JSON.
FOUND = """
import json, logging, os, random, signal, sys, warnings
import __main__
found = {
    "argv": sys.argv, "folder": os.getcwd(), "path": sys.path, "environment": dict(os.environ), "name": __name__,
    "main": __main__.__file__, "signals": [str(signal.getsignal(n)) for n in (signal.SIGCHLD, signal.SIGINT)],
    "logging": [len(logging.root.handlers), logging.root.level], "threads": len(os.listdir("/proc/self/task")),
    "files": sorted(n for n in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{n}")),
    "leader": os.getpgrp(),
}
loaded = "fairseq" in sys.modules
import numpy, torch
found["torch threads"] = torch.get_num_threads()
drawn = [random.random(), float(numpy.random.rand()), float(torch.rand(()))]
json.dump({"found": found, "loaded": loaded, "drawn": drawn}, sys.stdout)
"""


def test_a_fork_finds_what_a_process_of_its_own_finds(tmp_path, monkeypatch):
    """Source: the same command, not forked. Only its modules are loaded, and its random numbers are its own."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    files = [tmp_path / f"{number}.json" for number in range(3)]
    first, *others = [command(tmp_path, "job", FOUND, "a b", "--c", output=file) for file in files]
    for one in (replace(first, forked=False), *others):
        list(run_commands([one], 1))
    alone, *forks = [read_json(file) for file in files]
    for fork in forks:
        assert fork["found"] == alone["found"]
    assert [one["loaded"] for one in (alone, *forks)] == [False, True, True]
    for drawn in zip(*(one["drawn"] for one in (alone, *forks)), strict=True):
        assert len(set(drawn)) == 3


def test_early_variables_are_those_of_the_job(tmp_path):
    """The number of threads is read when torch is imported."""
    code = "import torch; print(torch.get_num_threads())"
    one = command(tmp_path, "job", code, settings={"OMP_NUM_THREADS": "2"}, output=tmp_path / "out")
    list(run_commands([one], 1))
    assert (tmp_path / "out").read_text() == "2\n"


def test_statuses_and_logs_are_told(tmp_path):
    codes = {
        "good": "",
        "three": "raise SystemExit(3)",
        "killed": "import os; os.kill(os.getpid(), 9)",
        "wrong": "def f():\n    raise ValueError('out of luck')\nf()",
    }
    jobs = {}
    for name, code in codes.items():
        one = command(tmp_path, name, code)
        with open(one.log, "w") as log:
            jobs[name] = template.start(one.words, {}, log, log, tmp_path)
    # Source: subprocess.Popen's returncode.
    assert [job.wait() for job in jobs.values()] == [0, 3, -signal.SIGKILL, 1]
    assert [job.poll() for job in jobs.values()] == [0, 3, -signal.SIGKILL, 1]
    text = (tmp_path / "wrong.log").read_text()
    assert text.endswith("ValueError: out of luck\n") and 'wrong.py", line 2, in f' in text


def test_a_fork_is_started_again_and_its_log_goes_on(tmp_path, capsys):
    steps = tmp_path / "steps"
    code = CLIMB.format(path=str(steps))
    climbing = command(tmp_path, "climb", code, progress=lambda: steps.exists() and steps.stat().st_size)
    assert list(run_commands([climbing], 1)) == ["climb"]
    # By hand: two of three attempts kill themselves.
    assert capsys.readouterr().err.count("it is started again") == 2
    assert (tmp_path / "climb.log").read_text() == "killed\nkilled\n"


ENDLESS = """
import os, time
from fairseq_headprune.jobs.processes import end_with_parent
end_with_parent()
open("child.part", "w").write(f"{os.getpid()} {os.getppid()}")
os.rename("child.part", "child")
time.sleep(600)
"""


def child(folder):
    """The process ids of a job of the code above and of what waits for it."""
    assert happens((folder / "child").exists)
    return [int(number) for number in (folder / "child").read_text().split()]


def test_the_limit_ends_a_fork(tmp_path):
    list(run_commands([command(tmp_path, "good", "")], 1))
    with pytest.raises(TimeoutError, match="not done within 3 s: endless"):
        list(run_commands([command(tmp_path, "endless", ENDLESS)], 1, limit=3))
    assert not running(child(tmp_path)[0])


def test_forks_and_template_end_with_a_caller_that_is_killed(tmp_path):
    (tmp_path / "endless.py").write_text(ENDLESS)
    caller = f"""
import threading
from pathlib import Path
from fairseq_headprune.jobs import template
from fairseq_headprune.jobs.scheduler import Command, run_commands
job = Command("late", [{sys.executable!r}, "-m", "endless"], Path("log"), forked=True)
threading.Thread(target=lambda: list(run_commands([job], 1))).start()
while template._template is None: pass
Path("template").write_text(str(template._template._process.pid))
"""
    environment = processes.with_package(os.environ)
    process = subprocess.Popen([sys.executable, "-c", caller], cwd=tmp_path, env=environment)
    job, waiter = child(tmp_path)
    process.kill()
    process.wait()
    assert happens(lambda: not any(map(running, (job, waiter, int((tmp_path / "template").read_text())))))


def start(folder, name, code):
    one = command(folder, name, code)
    with open(one.log, "w") as log:
        return template.start(one.words, {}, log, log, folder)


def test_a_killed_template_is_replaced_and_its_jobs_go_on(tmp_path):
    job = start(tmp_path, "endless", ENDLESS)
    number, waiter = child(tmp_path)
    before = template._template._process
    before.kill()
    before.wait()
    assert start(tmp_path, "good", "").wait() == 0 and template._template._process is not before
    assert job.poll() is None
    # Without what tells the status a job is over: it must not go on beside the one that takes its place.
    os.kill(waiter, signal.SIGKILL)
    assert job.wait() == -signal.SIGKILL and happens(lambda: not running(number))


def test_a_template_that_is_killed_before_it_forks_fails_its_jobs(tmp_path):
    template.close()
    job = start(tmp_path, "good", "")
    template._template._process.kill()
    assert job.wait() == -signal.SIGKILL


def test_what_cannot_be_imported_fails_in_the_job(tmp_path):
    (tmp_path / "fairseq.py").write_text("raise ImportError('no fairseq here')")
    settings = {"PYTHONPATH": str(tmp_path)}
    one = command(tmp_path, "job", "import fairseq_headprune.session", settings=settings)
    with pytest.raises(RuntimeError, match="ImportError: no fairseq here"):
        list(run_commands([one], 1))


def test_where_cuda_was_initialised_a_job_is_a_process_of_its_own(tmp_path):
    """No GPU here: the template is told that an import has initialised CUDA."""
    (tmp_path / "sitecustomize.py").write_text("import torch\ntorch.cuda._is_in_bad_fork = lambda: True\n")
    settings = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{processes.with_package({})['PYTHONPATH']}"}
    one = command(tmp_path, "job", FOUND, "a b", settings=settings, output=tmp_path / "out.json")
    list(run_commands([one], 1))
    found = read_json(tmp_path / "out.json")
    assert not found["loaded"] and found["found"]["argv"][1:] == ["a b"]
