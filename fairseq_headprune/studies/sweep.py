"""The pruning study at every epoch of a training run (Michel et al. 2019, §6)."""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairseq_headprune.files import PathLike, sha256
from fairseq_headprune.json_lines import first_difference
from fairseq_headprune.report.document import Document
from fairseq_headprune.studies.epochs import EpochCheckpoints, epoch_list
from fairseq_headprune.studies.folder import StudyFolder
from fairseq_headprune.studies.mask_study import MaskStudy
from fairseq_headprune.studies.masked import MaskWork
from fairseq_headprune.studies.prune import Prune
from fairseq_headprune.studies.study import UNPRUNED, Cell, Done, run
from fairseq_headprune.studies.sweep_result import epoch_path, sweep_document

if TYPE_CHECKING:
    from fairseq_headprune.session import Session

#: Seconds between two checks of a training run's folder.
LOOK = 5.0


@dataclass(frozen=True)
class Follow:
    """How long to wait for further checkpoints.

    Attributes:
        until: the last epoch to wait for; None: wait until training reaches its own limits.
        idle: seconds without a new checkpoint after which to stop waiting.
    """

    until: int | None = None
    idle: float = 3600.0

    def __str__(self) -> str:
        end = "training ends" if self.until is None else f"epoch {self.until} is done"
        return f"until {end}, or none has come for {self.idle:g} s"


class Sweep(MaskStudy):
    """One pruning study per epoch, in ``epochs/NNN`` of the sweep's folder, whose cells are the finished epochs.

    Attributes:
        keep, panel: sizes of the sets of most important heads, and epochs of the figure's right panel; empty: defaults.
        checkpoints, follow: source of the models; only set to run the study.
    """

    name = "sweep-epochs"
    keep: Sequence[int] = ()
    panel: Sequence[int] = ()
    checkpoints: EpochCheckpoints
    follow: Follow | None = None

    @classmethod
    def of(cls, first: Prune, checkpoints: EpochCheckpoints, follow: Follow | None) -> "Sweep":
        """Make the sweep from the pruning study of its first checkpoint."""
        settings = {name: value for name, value in first.settings.items() if name != "checkpoint"}
        study = cls({**settings, "study": cls.name}, first.session)
        study.checkpoints, study.follow, study.chosen = checkpoints, follow, first.chosen
        return study

    @property
    def tests(self) -> int:
        """The number of tests in an epoch's family."""
        return Prune(self.settings).tests

    def open(self, path: PathLike, environment: Mapping[str, Any] | None = None) -> StudyFolder:
        """Open the folder.

        Raises:
            ValueError: the checkpoint of a finished epoch is not the one that it was computed with.
        """
        folder = super().open(path, environment)
        for cell in folder.cells().values():
            own = epoch_path(folder.path, cell["epoch"]) / "study.json"
            if not own.is_file():
                raise ValueError(f"{own} is gone: put its folder back, or {folder.way_out(cell['id'])}")
            now = self.checkpoints.folder / f"checkpoint{cell['epoch']}.pt"
            if now.exists() and sha256(now) != cell["checkpoint"]:
                raise ValueError(
                    f"{folder.path} holds epoch {cell['epoch']} of another training run: its checkpoint is "
                    f"{cell['checkpoint']} there and {sha256(now)} in {now}; name another folder"
                )
        return folder

    def cells(self) -> dict[str, Done]:
        """Return the finished epochs by id."""
        return self.folder.cells()

    def sentence_statistics(self) -> list[dict[str, Any]]:
        """Empty: each epoch's study folder has its translations, from which they can be made again."""
        return []

    def planned(self) -> None:
        """None: training may still be running."""

    def next(self, done: Mapping[str, Done]) -> list[Cell]:
        """The epochs with a checkpoint; waits for further ones while training runs."""
        told, since = False, time.monotonic()
        while True:
            # Must be asked before the last check of the folder, not after.
            ended = self._ended(done, since)
            found = [epoch for epoch in self.checkpoints.readable() if _cell_id(epoch) not in done]
            if found:
                return [Cell(_cell_id(epoch), job=epoch, against="") for epoch in found]
            if ended or self.follow is None:
                return []
            if not told:
                print(
                    f"{self.name}: waiting for checkpoints in {self.checkpoints.folder} {self.follow}", file=sys.stderr
                )
                told = True
            time.sleep(min(LOOK, self.follow.idle))
            done = self.folder.cells()

    def _ended(self, done: Mapping[str, Done], since: float) -> bool:
        """Whether no further checkpoint is expected; ``since``: time of the last change."""
        if self.follow is None or time.monotonic() - since > self.follow.idle:
            return True
        wanted, epochs = self.checkpoints.wanted, {cell["epoch"] for cell in done.values()}
        if wanted is not None and wanted <= epochs:
            return True
        if self.follow.until is not None:
            return max(epochs, default=0) >= self.follow.until
        return self.checkpoints.training_ended()

    def result(self, cells: Mapping[str, Done]) -> Document:
        """Report how scores and rankings evolve; after a run, also which epochs were skipped or lack a checkpoint."""
        document, found = sweep_document(self, cells), getattr(self, "checkpoints", None)
        if found is not None:
            gaps = found.missing(cell["epoch"] for cell in cells.values())
            skipped = sorted(found.skipped.items())
            document.missing = [f"epoch {epoch} was skipped: {reason}" for epoch, reason in skipped]
            document.missing += [f"no checkpoint of epochs {epoch_list(gaps)} in {found.folder}"] if gaps else []
            document.data |= {
                "skipped": [{"epoch": epoch, "reason": reason} for epoch, reason in skipped],
                "missing": gaps,
                "checkpoints": str(found.folder),
            }
        return document


class EpochWork:
    """Computes the epochs of a sweep: loads each checkpoint and runs its pruning study.

    Args:
        args: the command line, whose ``path`` is set to each checkpoint in turn.
        sweep: an opened sweep; its session is of the first checkpoint, whose task (with loaded data) is reused.
        prune: makes the pruning study of a session.
        environment: recorded in each study.
        tick: called with each finished cell.

    Attributes:
        computed: the epochs computed by this process.
    """

    def __init__(
        self,
        args: argparse.Namespace,
        sweep: Sweep,
        prune: Callable[["Session"], Prune],
        environment: dict[str, Any],
        tick: Callable[[Done], Any] = lambda cell: None,
    ) -> None:
        self.args, self.sweep, self.prune, self.environment, self.tick = args, sweep, prune, environment, tick
        first = sweep.session
        self._task, self._start = first.task, {"heads": first.gates.shape, "mask": first.gates.mask().rows}
        self._first: Session | None = first
        self.computed: set[int] = set()
        # Never hold two models at once.
        sweep.session = None

    def size(self) -> int:
        """One epoch at a time."""
        return 1

    def compute(self, cells: Sequence[Cell]) -> Iterator[None]:
        """Prune the model of each epoch; skip epochs whose checkpoint cannot be used, and record the reason."""
        for cell in cells:
            began = time.perf_counter()
            session = self._session(cell.job)
            if session is None:
                continue
            study = self.prune(session)
            study.settings["resamples"] = self.sweep.settings["resamples"]
            folder = study.open(epoch_path(self.sweep.folder.path, cell.job), self.environment)
            for one in run(study, MaskWork(study)):
                self.tick({**one, "id": f"epoch {cell.job}, {one['id']}"})
            found = folder.cells()
            self.computed.add(cell.job)
            self.sweep.folder.append(
                {
                    "id": cell.id,
                    "epoch": cell.job,
                    "checkpoint": session.checkpoint["sha256"],
                    "score": found[UNPRUNED]["score"],
                    "cells": len(found),
                    "seconds": round(time.perf_counter() - began, 3),
                }
            )
            yield

    def _session(self, epoch: int) -> "Session | None":
        checkpoints = self.sweep.checkpoints
        path = checkpoints.folder / f"checkpoint{epoch}.pt"
        first, self._first = self._first, None
        if first is not None and first.path == str(path):
            return first
        del first
        try:
            session = session_of(self.args, path, self._task)
        except (ValueError, FileNotFoundError) as error:
            checkpoints.reject(epoch, str(error))
            return None
        difference = first_difference(self._start, {"heads": session.gates.shape, "mask": session.gates.mask().rows})
        if difference:
            name, others, here = difference
            checkpoints.reject(epoch, f"{path}: {name} is {here}, and {others} in the first checkpoint")
            return None
        return session


def session_of(args: argparse.Namespace, path: Path, task: Any = None) -> "Session":
    """Load a checkpoint with the flags of a command line without ``--path``."""
    from fairseq_headprune.session import Session  # torch: a finished study is read without it

    own = copy(args)
    own.path = str(path)
    session = Session(own, task)
    session.checkpoint  # noqa: B018  (its hash, before training may remove the file)
    return session


def first_session(args: argparse.Namespace, checkpoints: EpochCheckpoints, follow: Follow | None) -> "Session":
    """Load the first usable checkpoint, waiting for it while training runs.

    Raises:
        ValueError: there is no usable checkpoint and none is being written; the message says why.
    """
    end, refused = time.monotonic() + (follow.idle if follow else 0), None
    while True:
        for path in checkpoints.readable().values():
            return session_of(args, path)
        why = "".join(f"; epoch {epoch}: {reason}" for epoch, reason in checkpoints.skipped.items())
        before, refused = refused, checkpoints.refused()
        if time.monotonic() >= end or (refused and refused == before):
            named = f" of the epochs {epoch_list(checkpoints.wanted)} that --epochs names" if checkpoints.wanted else ""
            raise ValueError(f"{checkpoints.folder} holds no checkpointN.pt{named} that can be used{why}")
        if before != refused:
            waiting = f"waiting for the first checkpoint in {checkpoints.folder} {follow}"
            print(f"sweep-epochs: {waiting}{why}", file=sys.stderr)
        time.sleep(min(LOOK, follow.idle if follow else LOOK))


def _cell_id(epoch: int) -> str:
    return f"epoch-{epoch:03d}"
