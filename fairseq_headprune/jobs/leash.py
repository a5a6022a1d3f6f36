"""The leash: child processes that end when their parent ends, even if the parent is killed (SIGKILL).

The parent gives the child a pipe as standard input and holds the other end (:func:`start`). The operating system closes
the pipe when the parent ends, and the child, which reads from it, notices. Commands of this package do this themselves
(:func:`end_with_parent`); any other command is run by ``python -m fairseq_headprune.jobs.leash COMMAND …``.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

#: Environment variable that is set for a process whose standard input is the leash.
LEASH = "HEADPRUNE_LEASH"


def start(words: Sequence[str], settings: Mapping[str, str], out: Any, log: Any, cwd: Path | None) -> subprocess.Popen:
    """Start a command on a leash; ``settings`` and the path of this package are added to its environment."""
    environment = with_package(os.environ) | {LEASH: "1", **settings}
    return subprocess.Popen(list(words), env=environment, cwd=cwd, stdin=subprocess.PIPE, stdout=out, stderr=log)


def end_with_parent(end: Callable[[], Any] = lambda: os._exit(1)) -> None:
    """If this process was started on a leash, call ``end`` when its parent ends."""
    if os.environ.pop(LEASH, None):
        # Read the descriptor, not sys.stdin: the reading thread would still hold its lock when Python shuts down.
        threading.Thread(target=lambda: (os.read(0, 1), end()), daemon=True).start()


def leashed(words: Sequence[str]) -> list[str]:
    """Return a command line that runs another program on the leash."""
    return [sys.executable, "-m", __name__, *words]


def with_package(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which ``python -m fairseq_headprune`` finds this copy of the package."""
    root = str(Path(__file__).resolve().parents[2])
    others = environment.get("PYTHONPATH")
    return {**environment, "PYTHONPATH": f"{root}{os.pathsep}{others}" if others else root}


def _run(words: Sequence[str]) -> NoReturn:
    """Run a command in its own process group, which is ended when the parent ends or on SIGTERM."""
    child = subprocess.Popen(list(words), stdin=subprocess.DEVNULL, start_new_session=True)

    def end(*_: Any) -> None:
        os.killpg(child.pid, signal.SIGKILL)
        os._exit(1)

    signal.signal(signal.SIGTERM, end)
    end_with_parent(end)
    sys.exit(abs(child.wait()))


if __name__ == "__main__":
    _run(sys.argv[1:])
