"""Cells divided among processes: claims, dead workers, packs. The processes are real; cells are cheap, some long."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import toys
from verbs import living_workers

from fairseq_headprune.jobs import claims
from fairseq_headprune.jobs.claims import Claims
from fairseq_headprune.studies.ablate import Ablate
from fairseq_headprune.studies.folder import StudyFolder
from fairseq_headprune.studies.mask_study import Comparison
from fairseq_headprune.studies.masked import MaskWork
from fairseq_headprune.studies.study import Cell, run, shared

CELLS = 60

# Named as the command, the package does not load fairseq. A cell depends on its id and on the first cell's result.
WORKER = """
import sys; sys.argv = ["headprune", *sys.argv[1:]]
import hashlib, random, time
from fairseq_headprune.studies.folder import StudyFolder
from fairseq_headprune.studies.study import shared
from fairseq_headprune.studies.study import Cell
folder, size, cells = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
study = StudyFolder.open(folder, {"seed": 0})
first = []

class Work:
    def size(self):
        return size

    def compute(self, cells):
        for cell in cells:
            time.sleep(random.uniform(0.005, 0.02))
            text = hashlib.sha256((cell.id + "".join(first)).encode()).hexdigest()
            study.write_hypotheses(cell.id, [text])
            study.append({"id": cell.id, "value": text, "long": "ä\\u2028" * int(text[:3], 16)})
            yield

def make():
    time.sleep(0.02)
    (study.path / "made").write_text("".join(first))

print("ready", flush=True)
for cell in shared(study, [Cell("first")], Work()):
    first.append(cell["value"])
study.claims.once("made", (study.path / "made").exists, make)
found = list(shared(study, [Cell(f"cell-{k}") for k in range(cells)], Work()))
print(len(found), flush=True)
"""


def start(folder, size=1, cells=CELLS):
    command = [sys.executable, "-c", WORKER, str(folder), str(size), str(cells)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1])


def contents(folder):
    """Cells by id and the files of hypotheses, whatever order they were finished in."""
    # Hidden files are what a killed writer leaves of a file that was not finished.
    hyps = {path.name: path.read_text() for path in (folder / "hyps").glob("[!.]*")}
    return StudyFolder(folder).cells(), hyps


def listed(folder):
    # The last line may be half written, or cut off by a kill.
    lines = (folder / "cells.jsonl").read_bytes().split(b"\n")[:-1]
    return [json.loads(line)["id"] for line in lines]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed") / "study"
    assert start(folder).communicate()[0] == f"ready\n{CELLS}\n"
    return folder


def test_several_processes_do_each_cell_once(undisturbed, tmp_path):
    # Source: the study of one process, and by hand: no cell is listed twice; all of them see all cells.
    workers = [start(tmp_path / "s", size) for size in (1, 2, 7)]
    assert [worker.communicate()[0] for worker in workers] == [f"ready\n{CELLS}\n"] * 3
    assert contents(tmp_path / "s") == contents(undisturbed)
    assert sorted(listed(tmp_path / "s")) == sorted(listed(undisturbed))
    claims = [json.loads(line) for line in (tmp_path / "s" / "claims.jsonl").read_text().splitlines()]
    assert len({claim["worker"] for claim in claims}) == 3
    assert sorted(name for claim in claims for name in claim["cells"]) == sorted([*listed(undisturbed), "made"])
    # Whoever ended left no lock behind.
    assert list((tmp_path / "s" / "workers").iterdir()) == []


def test_killed_at_random_moments_sixteen_times_the_result_is_the_undisturbed_one(undisturbed, tmp_path):
    chance, kills, number = random.Random(4), 0, 0
    while kills < 16:
        number += 1
        folder = tmp_path / str(number)
        workers = [start(folder, size) for size in (1, 3)]
        for worker in workers:
            worker.stdout.readline()
        while kills < 16 and len(listed(folder)) < CELLS:
            time.sleep(chance.uniform(0.0, 0.06))
            # A single worker most of the time, and the whole study every fourth time.
            place = chance.randrange(2)
            for killed in [0, 1] if kills % 4 == 3 else [place]:
                workers[killed].kill()
                workers[killed].communicate()
                workers[killed] = start(folder, 1 + killed)
            kills += 1
            # Some are killed while they start, most at work.
            if kills % 3:
                workers[place].stdout.readline()
        for worker in workers:
            worker.communicate()
        assert [worker.returncode for worker in workers] == [0, 0]
        assert contents(folder) == contents(undisturbed)
        # A killed process loses only what it was on: a finished cell is not done again.
        assert len(listed(folder)) == len(set(listed(folder)))


def test_a_living_ones_claim_holds_and_a_dead_ones_lapses(tmp_path):
    study = StudyFolder.open(tmp_path / "s", {"seed": 0})
    script = (
        'import sys; folder = sys.argv[1]; sys.argv = ["headprune"]\n'
        "from fairseq_headprune.studies.folder import StudyFolder\n"
        "study = StudyFolder(folder)\n"
        'print(study.claims.take(["a", "b", "c"], study.cells, 2), flush=True)\nsys.stdin.read()'
    )
    command = [sys.executable, "-c", script, str(study.path)]
    other = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]
    )
    assert other.stdout.readline() == "['a', 'b']\n"
    [name] = living_workers(study.path)
    assert str(other.pid) in name
    # Source: by hand.
    assert study.claims.take(["a", "b", "c"], study.cells, 3) == ["c"]
    study.append({"id": "c"})
    assert study.claims.take(["a", "b", "c"], study.cells) == []
    os.kill(other.pid, signal.SIGKILL)
    other.communicate()
    assert study.claims.take(["a", "b", "c"], study.cells) == ["a"]
    assert living_workers(study.path) == [study.claims._registered()]
    # The next process removes what the killed one left, and nothing of a living one.
    after = StudyFolder(study.path)
    assert after.claims.take(["a", "b", "c"], after.cells) == ["b"]
    left = {path.stem for path in (study.path / "workers").glob("*.lock")}
    assert left == {study.claims._registered(), after.claims._registered()}


def test_what_is_closed_has_lapsed_although_its_process_lives(tmp_path):
    first, second = Claims(tmp_path), Claims(tmp_path)
    assert first.take(["a"], tuple) == ["a"] and second.take(["a"], tuple) == []
    first.close()
    assert second.take(["a"], tuple) == ["a"] and first.take(["a", "b"], tuple) == ["b"]
    assert len(list((tmp_path / "workers").iterdir())) == 2


def test_a_study_that_ended_holds_nothing(tmp_path, monkeypatch):
    """As in a notebook: the first study is not gone when its folder, of which a cell was lost, goes on."""
    studies = [Ablate.of(toys.ToySession(), "test", "all", Comparison(resamples=50)) for _ in range(2)]
    studies[0].open(tmp_path)
    whole = {cell["id"]: cell["score"] for cell in run(studies[0], MaskWork(studies[0]))}
    *kept, _ = (tmp_path / "cells.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "cells.jsonl").write_text("".join(kept))
    monkeypatch.setattr(Claims, "pause", lambda self: pytest.fail("waits for a study that ended"))
    studies[1].open(tmp_path)
    assert {cell["id"]: cell["score"] for cell in run(studies[1], MaskWork(studies[1]))} == whole


def test_a_lock_file_that_is_removed_before_it_is_locked_is_made_again(tmp_path, monkeypatch):
    lock, calls = claims.fcntl.flock, []

    def raced(handle, kind):
        calls.append(handle)
        if len(calls) == 1:
            claims._remove_dead(tmp_path)  # by another process: the file is there, and nobody holds it yet
        lock(handle, kind)

    monkeypatch.setattr(claims.fcntl, "flock", raced)
    handle = claims._locked(tmp_path / "a.lock")
    assert claims.lock_is_held(tmp_path / "a.lock")
    os.close(handle)


def test_what_is_released_is_free_and_what_is_done_is_not(tmp_path):
    study = StudyFolder.open(tmp_path / "s", {"seed": 0})
    other = StudyFolder(study.path)
    assert other.claims.take(["a", "b"], study.cells, 2) == ["a", "b"]
    other.append({"id": "b"})
    assert study.claims.take(["a", "b"], study.cells, 2) == []
    other.claims.release(["a"])
    assert study.claims.take(["a", "b"], study.cells, 2) == ["a"]


def test_one_who_only_watches_takes_nothing(tmp_path):
    study = StudyFolder.open(tmp_path / "s", {"seed": 0})
    calls = []

    def watch():
        calls.append(1)
        StudyFolder(study.path).append({"id": "a"})

    study.claims.watch = watch
    idle = SimpleNamespace(size=lambda: 1, compute=lambda cells: pytest.fail("it computes"))
    assert [cell["id"] for cell in shared(study, [Cell("a")], idle)] == ["a"]
    assert calls == [1] and not (study.path / "claims.jsonl").exists()


def test_a_claim_that_was_cut_off_does_not_count(tmp_path):
    study = StudyFolder.open(tmp_path / "s", {"seed": 0})
    other = Claims(study.path)
    other.take(["a"], study.cells)
    path = study.path / "claims.jsonl"
    path.write_bytes(path.read_bytes()[:-9])
    assert study.claims.take(["a"], study.cells) == ["a"]
