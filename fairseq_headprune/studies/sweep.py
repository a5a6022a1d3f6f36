"""The pruning study at every epoch of a training run (Michel et al. 2019, §6)."""

import argparse
import time
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_headprune.files import sha256
from fairseq_headprune.parts.scores import Scores
from fairseq_headprune.session import Session, open_session
from fairseq_headprune.studies.curves import epoch_path
from fairseq_headprune.studies.epochs import EpochCheckpoints, epoch_list
from fairseq_headprune.studies.finished import way_out
from fairseq_headprune.studies.folder import StudyFolder
from fairseq_headprune.studies.prune import PruneSettings, PruneStudy, study_settings
from fairseq_headprune.studies.values import first_difference

#: Seconds between two looks at the folder of a training run.
LOOK = 5.0


@dataclass(frozen=True)
class Follow:
    """How long to wait for further checkpoints.

    Attributes:
        until: the last epoch to wait for; None leaves it to the training's own limits.
        idle: seconds without a new checkpoint after which nothing more is expected.
    """

    until: int | None = None
    idle: float = 3600.0


class Sweep:
    """One pruning study an epoch, in ``epochs/NNN`` of the sweep's own folder, which lists the finished epochs.

    Args:
        args: the command line, whose ``path`` is set to each checkpoint in turn.
        checkpoints: where they come from.
        first: the session of the first of them; its task, with the data it has loaded, serves all others.
        scores, order_file: a ready ranking (``order`` "file") and its hash.
        environment: noted in each study.
        tick: called with the number of cells that were finished.
    """

    def __init__(
        self,
        args: argparse.Namespace,
        checkpoints: EpochCheckpoints,
        first: Session,
        settings: PruneSettings,
        scores: Scores | None,
        order_file: str | None,
        environment: dict[str, Any],
        tick: Callable[[int], Any] = lambda cells: None,
    ) -> None:
        self.args, self.checkpoints, self.settings, self.environment = args, checkpoints, settings, environment
        self._first: Session | None = first
        self._task, self._shape, self._start = first.task, first.gates.shape, first.gates.mask().rows
        self._scores, self._order_file, self._tick = scores, order_file, tick
        whole = study_settings(first, settings, args.gen_subset, scores, order_file)
        common = {name: value for name, value in whole.items() if name != "checkpoint"}
        self.folder = StudyFolder.open(args.output, {**common, "study": "sweep-epochs"}, environment)
        self._seen: set[str] = set()

    def run(self, follow: Follow | None = None) -> list[dict[str, Any]]:
        """Do all epochs whose checkpoint is there, or that come while training runs, and return their cells by epoch.

        Raises:
            ValueError: an epoch that was done belongs to another checkpoint than the one that is there now.
        """
        self._check_done()
        news = time.monotonic()
        while True:
            ended = follow is None or self._complete(follow) or time.monotonic() - news > follow.idle
            if self._round():
                news = time.monotonic()
            elif ended:
                return sorted(self.folder.cells().values(), key=lambda cell: cell["epoch"])
            elif follow is not None:
                time.sleep(min(LOOK, follow.idle))

    def _path(self, epoch: int) -> Path:
        return epoch_path(self.folder.path, epoch)

    def _check_done(self) -> None:
        for cell in self.folder.cells().values():
            own = self._path(cell["epoch"]) / "study.json"
            if not own.is_file():
                raise ValueError(f"{own} is gone: put its folder back, or {way_out(self.folder, cell['id'])}")
            path = self.checkpoints.folder / f"checkpoint{cell['epoch']}.pt"
            if path.exists() and sha256(path) != cell["checkpoint"]:
                raise ValueError(
                    f"{self.folder.path} holds epoch {cell['epoch']} of another training run: its checkpoint is "
                    f"{cell['checkpoint']} there and {sha256(path)} in {path}; name another folder"
                )

    def _complete(self, follow: Follow) -> bool:
        """Whether nothing more is to come. It is asked before the last look at the folder, not after."""
        wanted = self.checkpoints.wanted
        done = {cell["epoch"] for cell in self.folder.cells().values()}
        if wanted is not None and wanted <= done:
            return True
        if follow.until is not None:
            return max(done, default=0) >= follow.until
        return self.checkpoints.training_ended()

    def _round(self) -> bool:
        """Do what is there, together with other processes; return whether there was something new."""
        found, claims, news = self.checkpoints.readable(), self.folder.claims, False
        while True:
            self._count_finished()
            done = self.folder.cells()
            waiting = {_cell_id(epoch): epoch for epoch in found if _cell_id(epoch) not in done}
            if not waiting:
                return news
            news = True
            pack = claims.take(list(waiting), self.folder.cells)
            if not pack:
                claims.pause()
            elif not self._do(waiting[pack[0]], found[waiting[pack[0]]]):
                claims.release(pack)
            found = self.checkpoints.readable()

    def _count_finished(self) -> None:
        for name, cell in self.folder.cells().items():
            if name not in self._seen:
                self._seen.add(name)
                self._tick(cell["cells"])

    def _do(self, epoch: int, path: Path) -> bool:
        """Prune the model of one epoch; return False, with the reason noted, if its checkpoint cannot be used."""
        began = time.perf_counter()
        session = self._session(epoch, path)
        if session is None:
            return False
        settings = study_settings(session, self.settings, self.args.gen_subset, self._scores, self._order_file)
        folder = StudyFolder.open(self._path(epoch), settings, self.environment)
        study = PruneStudy(session, folder, self.settings, self.args.gen_subset, self._scores)
        cells = []
        for cell in study.run():
            cells.append(cell)
            self._tick(1)
        cell = {
            "id": _cell_id(epoch),
            "epoch": epoch,
            "checkpoint": session.checkpoint["sha256"],
            "score": cells[0]["score"],
            "cells": len(cells),
            "seconds": round(time.perf_counter() - began, 3),
        }
        self._seen.add(cell["id"])
        self.folder.append(cell)
        return True

    def _session(self, epoch: int, path: Path) -> Session | None:
        first, self._first = self._first, None
        if first is not None and first.path == str(path):
            return first
        del first  # no two models are held at once
        args = copy(self.args)
        args.path = str(path)
        try:
            session = open_session(args, self._task)
            session.checkpoint  # noqa: B018  (its hash, before training may remove the file)
        except (ValueError, FileNotFoundError) as error:
            self.checkpoints.reject(epoch, str(error))
            return None
        difference = first_difference(
            {"heads": self._shape, "mask": self._start},
            {"heads": session.gates.shape, "mask": session.gates.mask().rows},
        )
        if difference:
            name, others, here = difference
            self.checkpoints.reject(epoch, f"{path}: {name} is {here}, and {others} in the first checkpoint")
            return None
        return session


def first_session(args: argparse.Namespace, checkpoints: EpochCheckpoints, follow: Follow | None) -> Session:
    """Load the first checkpoint that can be used, waiting for it while training runs.

    Raises:
        ValueError: there is none; the message says why.
    """
    end = time.monotonic() + (follow.idle if follow else 0)
    while True:
        for path in checkpoints.readable().values():
            own = copy(args)
            own.path = str(path)
            session = open_session(own)
            session.checkpoint  # noqa: B018  (its hash, before training may remove the file)
            return session
        if time.monotonic() >= end:
            why = "".join(f"; epoch {epoch}: {reason}" for epoch, reason in checkpoints.skipped.items())
            named = f" of the epochs {epoch_list(checkpoints.wanted)} that --epochs names" if checkpoints.wanted else ""
            raise ValueError(f"{checkpoints.folder} holds no checkpointN.pt{named} that can be used{why}")
        time.sleep(LOOK)


def _cell_id(epoch: int) -> str:
    return f"epoch-{epoch:03d}"
