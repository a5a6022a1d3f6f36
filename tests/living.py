"""What the tests of processes share: whether one lives, waiting for what another one does, and one that dies."""

import time
from pathlib import Path

#: Adds a line to a file, its progress, then kills itself unless there are three lines.
CLIMB = """
import os, pathlib, signal
path = pathlib.Path({path!r})
lines = path.read_text() if path.exists() else ""
path.write_text(lines + "line\\n")
if lines.count("line") < 2:
    print("killed", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def running(process):
    """Whether a process is there that has not ended (one that nobody has waited for counts as ended)."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False


def happens(what, seconds=120.0, process=None):
    """Whether it happens in so many seconds, and before a process has ended."""
    deadline = time.monotonic() + seconds
    while not (done := what()) and time.monotonic() < deadline and (process is None or process.poll() is None):
        time.sleep(0.005)
    return bool(done)
