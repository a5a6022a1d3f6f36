"""Trainings and answers in this process, in place of the processes that the scheduler would start."""

import contextlib

import pytest
from fairseq import checkpoint_utils
from fairseq.logging import metrics

from fairseq_headprune.files import read_json
from fairseq_headprune.jobs import scheduler, train
from fairseq_headprune.studies.pruners import answers


class Here:
    """Stands in for ``run_commands``, and notes which commands it was given.

    Args:
        do: what is done in place of a command of the given name (default: what the command would do).
    """

    def __init__(self, do=None):
        self.started, self._do = [], do

    def __call__(self, commands, at_once, prepare=lambda name: None, limit=None, more=lambda: ()):
        waiting = list(commands)
        while waiting := waiting or list(more()):
            command = waiting.pop(0)
            prepare(command.name)
            self.started.append(command.name)
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(command.cwd or ".")
                (self._do or self.run)(command)
            yield command.name

    def run(self, command):
        """Do what the command would do."""
        module, word = command.words[-2:]
        if module.endswith("jobs.train"):
            # What fairseq keeps of one training for the next of the same process.
            metrics.reset()
            vars(checkpoint_utils.save_checkpoint).pop("best", None)
            train.do(word)
            vars(checkpoint_utils.save_checkpoint).pop("best", None)
        else:
            answers.run(read_json(word))

    @contextlib.contextmanager
    def instead(self):
        """Put it where the scheduler is."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(scheduler, "run_commands", self)
            yield self
