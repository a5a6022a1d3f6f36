"""The leash: a process that ends when the process that started it ends, however that ends (SIGKILL, too).

The parent starts the child with a pipe as standard input and holds the other end (:func:`start`). The child reads from
it: the system closes the pipe when the parent is gone. A child that this package starts arms the leash itself
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

#: Set for a process whose standard input is the leash.
LEASH = "HEADPRUNE_LEASH"


def start(words: Sequence[str], settings: Mapping[str, str], out: Any, log: Any, cwd: Path | None) -> subprocess.Popen:
    """Start a command on a leash, in an environment that has this package and these settings, too."""
    environment = with_package(os.environ) | {LEASH: "1", **settings}
    return subprocess.Popen(list(words), env=environment, cwd=cwd, stdin=subprocess.PIPE, stdout=out, stderr=log)


def end_with_parent(end: Callable[[], Any] = lambda: os._exit(1)) -> None:
    """Where this process was started on a leash, call ``end`` when its parent has ended."""
    if os.environ.pop(LEASH, None):
        # The descriptor and not sys.stdin, whose lock a thread that reads would still hold when Python shuts down.
        threading.Thread(target=lambda: (os.read(0, 1), end()), daemon=True).start()


def leashed(words: Sequence[str]) -> list[str]:
    """Return the command that runs a command of another program on the leash."""
    return [sys.executable, "-m", __name__, *words]


def with_package(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which ``python -m fairseq_headprune`` finds this very package."""
    root = str(Path(__file__).resolve().parents[2])
    others = environment.get("PYTHONPATH")
    return {**environment, "PYTHONPATH": f"{root}{os.pathsep}{others}" if others else root}


def _run(words: Sequence[str]) -> NoReturn:
    """Run a command in a process group of its own, which ends with this process's parent or on SIGTERM."""
    child = subprocess.Popen(list(words), stdin=subprocess.DEVNULL, start_new_session=True)

    def end(*_: Any) -> None:
        os.killpg(child.pid, signal.SIGKILL)
        os._exit(1)

    signal.signal(signal.SIGTERM, end)
    end_with_parent(end)
    sys.exit(abs(child.wait()))


if __name__ == "__main__":
    _run(sys.argv[1:])
