"""The scheduler's processes as made-up ones, which take a known time on a clock of their own."""

import contextlib
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from fairseq_headprune.jobs import claims, processes, scheduler, template


class Clock:
    """Stands in for the machine: what the scheduler starts, and its time.

    Args:
        seconds: name of a command -> how long it takes; it is asked whenever the command starts.
        end: called with the name of a command when it ends; returns its exit status.

    Attributes:
        began, ended: name -> time of the first start, and of the end.
        spread: at every start, the processes on the GPU that was chosen, and on each GPU, before it.
    """

    def __init__(self, seconds, end=lambda name: 0):
        self.now, self.began, self.ended = 0.0, {}, {}
        self.spread, self._on = [], Counter()
        self._seconds, self._end = seconds, end

    def running(self, at):
        """How many run at a time between two starts or ends."""
        return sum(began < at < self.ended[name] for name, began in self.began.items())

    def _start(self, words, settings, out, log, cwd):
        name, gpu = Path(log.name).stem, settings["CUDA_VISIBLE_DEVICES"]
        self.spread.append((self._on[gpu], [self._on[one] for one in processes.visible_gpus()]))
        self._on[gpu] += 1
        self.began.setdefault(name, self.now)
        ends, process = self.now + self._seconds(name), SimpleNamespace(returncode=None)

        def poll():
            if process.returncode is None and self.now >= ends:
                self._on[gpu] -= 1
                self.ended[name] = self.now
                process.returncode = self._end(name)
            return process.returncode

        process.poll, process.terminate, process.wait = poll, lambda: None, lambda: None
        return process

    def _sleep(self, seconds):
        self.now += seconds

    @contextlib.contextmanager
    def instead(self):
        """Put it where the machine is."""
        with pytest.MonkeyPatch.context() as patch:
            for module in (scheduler, claims):
                patch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now, sleep=self._sleep))
            for module in (processes, template):
                patch.setattr(module, "start", self._start)
            yield self
