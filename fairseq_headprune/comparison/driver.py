"""Runs a comparison in a study folder: trainings side by side, then masks and translations."""

import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

import fairseq_headprune
from fairseq_headprune.comparison.kind import Kind, Translating
from fairseq_headprune.comparison.masks import random_mask
from fairseq_headprune.comparison.methods import AFTER_TRAINING, COUNTS, DEFAULT, Training, trainings, unpruned_name
from fairseq_headprune.comparison.runs import BEST_ONLY, Run
from fairseq_headprune.files import read_json, write_json
from fairseq_headprune.jobs.leash import leashed
from fairseq_headprune.jobs.scheduler import Command, run_commands
from fairseq_headprune.parts import Shape
from fairseq_headprune.studies.folder import StudyFolder
from fairseq_headprune.studies.provenance import environment

_USER_DIR = str(Path(fairseq_headprune.__path__[0]).resolve())
#: fairseq else shuffles the batches of the epoch before, which a training that goes on does not have
_SAME_BATCHES = ["--update-epoch-batch-itr", "True"]


@dataclass(frozen=True)
class Plan:
    """What is compared.

    Attributes:
        data: the folder that fairseq-preprocess wrote.
        train_flags: of every fairseq-train, architecture included.
        generate_flags: of fairseq-generate.
        kind: what is trained and scored.
        splits: that are translated.
        updates: of every training but pipelined DSP's, which are one epoch.
        step: heads that Michel et al.'s method removes between two estimates, each on ``sentences`` of train.
        lambdas: penalties of ``l0-lambda``.
        resume: trainings save what they need to go on after a stop.
    """

    data: str
    train_flags: list[str]
    generate_flags: list[str]
    kind: Kind = field(default_factory=Translating)
    splits: list[str] = field(default_factory=lambda: ["test"])
    methods: list[str] = field(default_factory=lambda: list(DEFAULT))
    counts: list[int] = field(default_factory=lambda: list(COUNTS))
    seeds: list[int] = field(default_factory=lambda: [1])
    lambdas: list[float] = field(default_factory=list)
    updates: int = 5000
    step: int = 4
    sentences: int = 2000
    resume: bool = True

    def settings(self) -> dict[str, Any]:
        """Return what must not change when a comparison goes on; methods, numbers of heads and seeds may be added."""
        hashes = self.kind.hashes(Path(self.data), self.splits)
        kept = ("generate_flags", "splits", "updates", "step", "sentences")
        train = [self.kind.places.get(word, word) for word in self.train_flags]
        what = {"study": "compare-pruners", "task": self.kind.flags, "data": hashes, "train_flags": train}
        return {**what, **{name: getattr(self, name) for name in kept}}


class Driver:
    """One comparison in one folder; what is done is not done again.

    Args:
        shape: of the model, for random masks.
        limit: seconds from now on after which nothing runs any more.
    """

    def __init__(self, plan: Plan, work: Path, shape: Shape, jobs: int = 1, limit: float | None = None) -> None:
        self.plan, self.work, self.shape, self.jobs = plan, Path(work).resolve(), shape, jobs
        self._deadline = None if limit is None else time.monotonic() + limit
        self.trainings = trainings(plan.methods, plan.counts, plan.seeds, plan.lambdas, plan.updates, plan.kind)
        self._data = str(Path(plan.data).resolve())

    def open(self) -> StudyFolder:
        """Create or resume the study.

        Raises:
            ValueError: the folder holds something else, or a comparison with other settings.
        """
        return StudyFolder.open(self.work, self.plan.settings(), environment())

    def command(self, training: Training) -> list[str]:
        """Return the command of a training; it runs in the study's folder."""
        place = self._place(training.name)
        words = [sys.executable, "-m", "fairseq_cli.train", self._data, "--user-dir", _USER_DIR]
        words += [*self.plan.kind.flags, *self.plan.train_flags, "--seed", str(training.seed)]
        words += ["--max-update", str(self.plan.updates), "--save-dir", place, "--no-epoch-checkpoints"]
        words += _SAME_BATCHES if self.plan.resume else BEST_ONLY
        words += [*self.plan.kind.selection, *training.flags]
        if training.method == "random-start":
            words += ["--head-mask", f"{place}/mask.json"]
        if training.after:
            words += ["--finetune-from-model", self._checkpoint(training.after)]
        return words

    def shown(self, words: list[str]) -> str:
        """Return a command without the places of this machine."""
        short = {sys.executable: "python", _USER_DIR: "fairseq_headprune", self._data: Path(self._data).name}
        short |= self.plan.kind.places
        return shlex.join([short.get(word, word) for word in words])

    def train(self) -> None:
        """Train everything that is not trained.

        Raises:
            RuntimeError: some trainings failed or left no checkpoint, after the others have ended.
            TimeoutError: the limit came first.
        """
        missing = {t.name: t for t in self.trainings if not self._run(t.name).done.exists()}
        waiting = {name: t for name, t in missing.items() if not self._run(name).trained}
        commands = [self._command(name, leashed(self.command(t)), t.after) for name, t in waiting.items()]
        facts: dict[str, dict[str, Any]] = {}
        began: dict[str, float] = {}
        useless = []

        def settle(name: str) -> None:
            if self._run(name).best.exists():
                command = self.shown(self.command(missing[name]))
                self._run(name).settle({"command": command, "side_by_side": self.jobs, **facts.get(name, {})})
            else:
                useless.append(name)

        def prepare(name: str) -> None:
            self._write_mask(missing[name])
            # Its time would be that of a part.
            facts[name] = {"resumed": True} if self._run(name).stopped else {}
            began[name] = time.monotonic()

        for name in missing.keys() - waiting.keys():
            settle(name)
        for name in self._side_by_side(commands, "trainings", prepare):
            facts[name] |= {"seconds": round(time.monotonic() - began[name], 1)}
            self._run(name).note_trained()
            settle(name)
        if useless:
            raise RuntimeError(f"trained, but left no best checkpoint (no finite loss on valid?): {', '.join(useless)}")

    def translate(self) -> None:
        """Translate what is trained and not translated yet.

        Raises:
            RuntimeError, TimeoutError: as for :meth:`train`.
        """
        finished = self.open().cells()
        commands = []
        for number, cells in enumerate(self._groups([cell for cell in self._cells() if cell["id"] not in finished])):
            name = f"translate-{len(finished)}-{number}"
            job = {
                "folder": str(self.work),
                "generate": [self._data, *self.plan.kind.flags, *self.plan.generate_flags],
                "valid": self.plan.kind.valid,
                "step": self.plan.step,
                "sentences": self.plan.sentences,
                "cells": cells,
            }
            (self.work / "jobs").mkdir(exist_ok=True)
            write_json(self.work / "jobs" / f"{name}.json", job)
            words = [sys.executable, "-m", "fairseq_headprune.comparison.translate", f"jobs/{name}.json"]
            commands.append(self._command(name, words))
        for _ in self._side_by_side(commands, "translations", lambda name: None):
            pass

    def _cells(self) -> list[dict[str, Any]]:
        """List what is to be translated and can be: a cell a method, number of heads, seed and split."""
        cells = []
        for training in self.trainings:
            if self._run(training.name).done.exists():
                facts = read_json(self._run(training.name).done)
                cells += self._cells_of(training.name, training, training.count, facts)
        for seed in self.plan.seeds:
            name = unpruned_name(seed)
            for method in AFTER_TRAINING:
                if method in self.plan.methods and self._run(name).done.exists():
                    for count in self.plan.counts:
                        cells += self._cells_of(f"{method}-{count}-{seed}", Training(name, method, seed), count, None)
        return cells

    def _cells_of(self, name: str, training: Training, count: int | None, facts: Any) -> list[dict[str, Any]]:
        shared = {"method": training.method, "count": count, "seed": training.seed, "penalty": training.penalty}
        checkpoint = self._checkpoint(training.name)
        return [
            {"id": f"{name}@{split}", **shared, "split": split, "checkpoint": checkpoint, "training": facts}
            for split in self.plan.splits
        ]

    def _groups(self, cells: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
        """Share cells among processes: each ranking of a model has its own, the models of all others are spread."""
        rankings: dict[tuple, list] = {}
        models: dict[str, list] = {}
        for cell in cells:
            if cell["method"] in AFTER_TRAINING:
                rankings.setdefault((cell["method"], cell["seed"]), []).append(cell)
            else:
                models.setdefault(cell["checkpoint"], []).append(cell)
        slots = max(1, self.jobs - len(rankings))
        spread = [[cell for of_model in list(models.values())[k::slots] for cell in of_model] for k in range(slots)]
        return [*rankings.values(), *(group for group in spread if group)]

    def _side_by_side(self, commands: list[Command], what: str, prepare: Callable[[str], None]) -> Any:
        limit = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        with tqdm(total=len(commands), desc=what, file=sys.stderr, disable=not commands) as bar:
            for name in run_commands(commands, self.jobs, prepare, limit):
                yield name
                bar.update()

    def _command(self, name: str, words: list[str], after: str | None = None) -> Command:
        return Command(name, words, self.work / "logs" / f"{name}.log", after, cwd=self.work)

    def _write_mask(self, training: Training) -> None:
        path = self._run(training.name).mask
        path.parent.mkdir(parents=True, exist_ok=True)
        if training.method == "random-start":
            random_mask(self.shape, training.count or 0, training.seed).save(path)

    def _place(self, name: str) -> str:
        return f"runs/{name}"

    def _checkpoint(self, name: str) -> str:
        return f"{self._place(name)}/{self._run(name).best.name}"

    def _run(self, name: str) -> Run:
        return Run(self.work / self._place(name))
