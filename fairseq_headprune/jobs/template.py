"""Starts the jobs of a study as forks of one process that has imported torch and fairseq: the template.

Imports are nearly all that a job costs before its first update. The template imports once, and never touches CUDA,
which forks could not use then: each job initialises it for itself. Requests come through a socket, which passes open
files. A job is forked twice: the process in between waits for it and tells its status, even if the template is killed.
"""

import contextlib
import gc
import importlib
import json
import logging
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fairseq_headprune.jobs.processes import JOBS_ON_GPU, LEASH, on_leash

#: Environment variables that are read after the imports; with others, another template is started.
LATE = ("CUDA_VISIBLE_DEVICES", JOBS_ON_GPU, LEASH)
#: Elsewhere, such as on macOS, what torch loads may break in a fork.
CAN_FORK = sys.platform == "linux"
#: Lets torch ask for GPUs without initialising CUDA, as fairseq's modules may when they are imported.
_NO_CUDA = "PYTORCH_NVML_BASED_CUDA_CHECK"
#: what jobs import, but not the jobs' own modules nor fairseq_cli.train, which sets up logging when it is imported
_NEEDED = (
    "fairseq.model_parallel.megatron_trainer",
    "fairseq.quantization_utils",
    "fairseq_headprune.session",
)
#: The files of a request: standard input, output and error of the job, and where its number and status are written.
_FILES = 4


class Forked:
    """A job that runs or ran, with those parts of :class:`subprocess.Popen` that the scheduler uses.

    Attributes:
        returncode: the exit status, negative if a signal ended the job; None while it runs.
        stdin: the leash.
    """

    returncode: int | None = None

    def __init__(self, status: int, leash: int) -> None:
        self._status, self.stdin = os.fdopen(status, "rb", buffering=0), os.fdopen(leash, "wb")
        self._told = b""

    def poll(self) -> int | None:
        """Return the exit status; None while the job runs."""
        while self.returncode is None and select.select([self._status], [], [], 0)[0]:
            self._hear()
        return self.returncode

    def wait(self) -> int:
        """Wait for the job's end, and return its exit status."""
        while self.returncode is None:
            self._hear()
        return self.returncode

    def terminate(self) -> None:
        """Send SIGTERM, unless the job has ended; a job that is not forked yet is waited for."""
        while self.poll() is None and b"\n" not in self._told:
            self._hear()
        if self.returncode is None:
            self._send(signal.SIGTERM)

    def _send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(self._told.split()[0]), number)

    def _hear(self) -> None:
        """Read on: two lines, the job's process id and its status."""
        said = self._status.read(64) or b""
        self._told += said
        if self._told.count(b"\n") == 2:
            self.returncode = int(self._told.split()[1])
        elif not said:
            # What tells the status was killed: the job must not go on unseen.
            if b"\n" in self._told:
                self._send(signal.SIGKILL)
            self.returncode = -signal.SIGKILL
        if self.returncode is not None:
            self._status.close()
            with contextlib.suppress(BrokenPipeError):
                self.stdin.close()


class _Template:
    """The study's end of the template; the template ends when it is closed."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = _early(environment)
        self._socket, theirs = socket.socketpair()
        with theirs:
            # Whatever fails to be imported fails in the jobs again, whose logs tell.
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                env={**environment, _NO_CUDA: "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def serves(self, environment: Mapping[str, str]) -> bool:
        """Whether it lives, and would be the same if it were started with this environment."""
        return self._process.poll() is None and self.environment == _early(environment)

    def fork(self, request: dict[str, Any], out: Any, log: Any) -> Forked:
        """Ask for a job.

        Raises:
            OSError: the template was killed.
        """
        (theirs, leash), (status, told) = os.pipe(), os.pipe()
        job = Forked(status, leash)
        try:
            socket.send_fds(self._socket, [b"\n"], [theirs, out.fileno(), log.fileno(), told])
        finally:
            os.close(theirs)
            os.close(told)
        with contextlib.suppress(BrokenPipeError):  # the job's status will tell
            job.stdin.write(json.dumps(request).encode() + b"\n")
            job.stdin.flush()
        return job

    def close(self) -> None:
        """Let the template end; its jobs go on."""
        self._socket.close()
        self._process.wait()


_template: _Template | None = None


def start(words: Sequence[str], settings: Mapping[str, str], out: Any, log: Any, cwd: Path | None) -> Forked:
    """Start ``PYTHON -m MODULE …`` on the leash, as :func:`~fairseq_headprune.jobs.processes.start`, but as a fork."""
    global _template
    environment = on_leash(settings)
    request = {"words": list(words[2:]), "environment": environment, "cwd": str(cwd or Path.cwd())}
    if _template is not None and _template.serves(environment):
        with contextlib.suppress(OSError):
            return _template.fork(request, out, log)
    close()
    _template = _Template(environment)
    return _template.fork(request, out, log)


def close() -> None:
    """End the template; its jobs go on, and the next one starts another."""
    global _template
    if _template is not None:
        _template.close()
    _template = None


def _early(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name not in LATE}


def _prepare() -> None:
    """Import what jobs need; they find logging as a new process does."""
    for name in _NEEDED:
        # Also SystemExit and the like: jobs import it again, and tell.
        with contextlib.suppress(BaseException):
            importlib.import_module(name)
    logging.root.handlers.clear()
    logging.root.setLevel(logging.WARNING)
    # Jobs need not look for garbage among what they share, nor copy it for that.
    gc.collect()
    gc.freeze()


def _serve(requests: socket.socket) -> list[str]:
    """Fork a job for each request; return, in these, the words that they run."""
    while True:
        said, files, *_ = socket.recv_fds(requests, 1, _FILES)
        if not said:
            sys.exit()
        if not os.fork():
            requests.close()
            _fork(files)
            return _become(files)
        for file in files:
            os.close(file)


def _fork(files: Sequence[int]) -> None:
    """Fork the job, in which this returns; here, wait for it, tell its status and end."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    job = os.fork()
    if not job:
        return
    *others, told = files
    for file in others:
        os.close(file)
    # Neither the study's process nor the job needs to read this.
    with contextlib.suppress(BrokenPipeError):
        os.write(told, b"%d\n" % job)
        os.write(told, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(job, 0)[1]))
    os._exit(0)


def _become(files: Sequence[int]) -> list[str]:
    """Take over the files, environment and folder of a request, and return its words."""
    for number, file in enumerate(files):
        if number < _FILES - 1:
            os.dup2(file, number)
        os.close(file)
    import numpy as np
    import torch

    request = json.loads(_line())
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    if not sys.flags.safe_path:
        sys.path[0] = os.getcwd()  # as python -m does
    words: list[str] = request["words"]
    if torch.cuda._is_in_bad_fork():
        # An import has initialised CUDA after all.
        os.execv(sys.executable, [sys.executable, "-m", *words])
    # Each process has its own random numbers; Python sees to its generator.
    np.random.seed()
    torch.default_generator.seed()
    return words


def _line() -> bytes:
    """Read a line of standard input and no more, which stays open: it is the leash."""
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(0, 1)
        if not part:
            sys.exit(1)
        line += part
    return line


if __name__ == "__main__":
    # Ctrl-C is for the study and its jobs; the template ends with the study.
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    _prepare()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    sys.argv = _serve(socket.socket(fileno=int(sys.argv[1])))
    signal.signal(signal.SIGINT, interrupt)
    # Here, so that a job ends as other processes of Python do.
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
