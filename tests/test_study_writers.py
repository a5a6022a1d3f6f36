"""Writers of a study folder that are killed, or write at the same time: real processes."""

import json
import random
import signal
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path

from fairseq_headprune.studies.folder import StudyFolder

# Named as the command, the package does not load fairseq: the writers start in a moment.
WRITER = """
import sys; sys.argv = ["headprune", *sys.argv[1:]]
import hashlib, random
from fairseq_headprune.studies.folder import StudyFolder
folder, prefix, count, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
study = StudyFolder.open(folder, {"seed": 0})
print("ready", flush=True)
done = study.cells()
for number in range(count):
    name = f"{prefix}{number}"
    if name not in done:
        text = f"{number} ä\\u2028" * random.Random(number).randrange(1, size)
        study.append({"id": name, "text": text, "sha256": hashlib.sha256(text.encode()).hexdigest()})
"""


def writer(folder, prefix, count, size):
    command = [sys.executable, "-c", WRITER, str(folder), prefix, str(count), str(size)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1])


def test_killed_writers_leave_whole_cells_and_the_next_continues(tmp_path):
    folder, chance, finished = tmp_path / "study", random.Random(0), 0
    for _ in range(8):
        process = writer(folder, "cell-", 100_000, 60_000)
        assert process.stdout.readline() == "ready\n"
        time.sleep(chance.uniform(0.0, 0.15))
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        cells = StudyFolder(folder).cells()
        # A prefix: the cells 0 to n - 1 once each, no cell of earlier runs lost, every text whole.
        assert list(cells) == [f"cell-{k}" for k in range(len(cells))]
        assert len(cells) >= finished
        assert all(sha256(c["text"].encode()).hexdigest() == c["sha256"] for c in cells.values())
        finished = len(cells)
    assert finished > 0
    last = writer(folder, "cell-", finished + 3, 10)
    last.communicate()
    assert last.returncode == 0
    lines = (folder / "cells.jsonl").read_bytes().split(b"\n")
    assert [json.loads(line)["id"] for line in lines[:-1]] == [f"cell-{k}" for k in range(finished + 3)]


def test_four_writers_at_once_lose_nothing(tmp_path):
    processes = [writer(tmp_path / "study", prefix, 50, 2000) for prefix in "abcd"]
    for process in processes:
        process.communicate()
    assert [process.returncode for process in processes] == [0] * 4
    lines = (tmp_path / "study" / "cells.jsonl").read_bytes().split(b"\n")
    cells = [json.loads(line) for line in lines[:-1]]
    assert lines[-1] == b"" and len(cells) == 200
    for prefix in "abcd":
        assert [c["id"] for c in cells if c["id"][0] == prefix] == [f"{prefix}{k}" for k in range(50)]
    assert all(sha256(c["text"].encode()).hexdigest() == c["sha256"] for c in cells)
