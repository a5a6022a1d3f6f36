"""The study of ``headprune compare-pruners``: a training or a mask for every method, head count and seed."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairseq_headprune.choosing.per_layer import keep_per_layer, picking_by_chance
from fairseq_headprune.choosing.random_heads import keep_random
from fairseq_headprune.files import read_json, write_json
from fairseq_headprune.jobs.methods import COUNTS, DEFAULT, base, estimates, in_order, options, ranks
from fairseq_headprune.jobs.scheduler import Command, run_commands
from fairseq_headprune.jobs.training import Run, TrainingJob, run_trainings
from fairseq_headprune.parts import Mask, Shape
from fairseq_headprune.studies.folder import StudyFolder
from fairseq_headprune.studies.pruners.answers import random_mask
from fairseq_headprune.studies.pruners.trainings import Task, Training, Translating, trainings, unpruned_name
from fairseq_headprune.studies.study import Cell, Done, Study


@dataclass(frozen=True)
class Plan:
    """What is compared.

    Attributes:
        data: the folder that fairseq-preprocess wrote.
        train_flags: fairseq-train flags of every training, architecture included.
        generate_flags: fairseq-generate flags.
        task: the task that is trained and scored.
        shape: head counts of the model, for random masks.
        splits: splits that the models are run on.
        updates: updates of every training, except pipelined DSP's (one epoch).
        tune, tune_flags: updates, and more fairseq-train flags, of variants that are fine-tuned (``tuned``); variants
            that are trained ``long`` get as many updates more.
        step: heads that Michel et al.'s method removes between two estimates, each on ``sentences`` of train.
        lambdas: penalties of ``l0-lambda``.
        resume: trainings save what is needed to resume.
    """

    data: str
    train_flags: list[str]
    generate_flags: list[str]
    shape: Shape
    task: Task = field(default_factory=Translating)
    splits: list[str] = field(default_factory=lambda: ["test"])
    methods: list[str] = field(default_factory=lambda: list(DEFAULT))
    counts: list[int] = field(default_factory=lambda: list(COUNTS))
    seeds: list[int] = field(default_factory=lambda: [1])
    lambdas: list[float] = field(default_factory=list)
    updates: int = 5000
    step: int = 4
    sentences: int = 2000
    resume: bool = True
    tune: int = 0
    tune_flags: list[str] = field(default_factory=list)

    def settings(self) -> dict[str, Any]:
        """Return what must not change when a comparison is resumed (methods, counts and seeds may be added)."""
        hashes = self.task.hashes(Path(self.data), self.splits)
        kept = ("generate_flags", "splits", "updates", "step", "sentences")
        train = [self.task.places.get(word, word) for word in self.train_flags]
        what = {"study": "compare-pruners", "task": self.task.flags, "data": hashes, "train_flags": train}
        tuned = {"tune": self.tune, "tune_flags": self.tune_flags} if self.tune else {}
        return {**what, **{name: getattr(self, name) for name in kept}, **tuned}


class ComparePruners(Study):
    """One comparison, with a cell for every method, head count, seed and split."""

    name = "compare-pruners"

    def __init__(self, plan: Plan, folder: StudyFolder | None = None) -> None:
        super().__init__(plan.settings(), folder=folder)
        self.how = plan
        self.trainings = trainings(
            plan.methods, plan.counts, plan.seeds, plan.lambdas, plan.updates, plan.task, plan.tune
        )
        self._data = str(Path(plan.data).resolve())

    def job(self, training: Training) -> TrainingJob:
        """Return the job of a training."""
        how, tuned = self.how, "tuned" in options(training.method)
        flags = [*how.task.flags, *how.train_flags, *(how.tune_flags if tuned else [])]
        flags += ["--max-update", str(training.updates)]
        flags += [*how.task.selection, *training.flags]
        mask = None
        if base(training.method) == "random-start":
            mask = random_mask(how.shape, training.count or 0, training.mask_seed).to_dict()
        elif training.mask_of:
            mask = self._mask_of(training).to_dict() if self._is_ready(training) else {}
        start = f"runs/{training.after}/checkpoint_best.pt" if training.after else None
        return TrainingJob(
            training.name, self._data, flags, training.seed, start, training.after, mask, resumable=how.resume,
            valid=how.task.valid,
        )  # fmt: skip

    def _source(self, training: Training) -> Path:
        return self.folder.mask_path(f"{training.mask_of}@{self.how.splits[0]}")

    def _is_ready(self, training: Training) -> bool:
        """Whether the heads that a training keeps are known: those of another method are when it was translated."""
        return training.mask_of is None or (self._folder is not None and self._source(training).exists())

    def _mask_of(self, training: Training) -> Mask:
        """The heads of another method; ``layers``, ``components``: as many random ones, of the same places."""
        mask = Mask.load(self._source(training))
        full, drawn = Mask.full(mask.shape), None
        if "layers" in options(training.method):
            counts = {component: [sum(row) for row in rows] for component, rows in mask.rows.items()}
            drawn = keep_per_layer(full, counts, picking_by_chance(full, training.mask_seed))
        elif "components" in options(training.method):
            drawn = keep_random(full, {c: sum(map(sum, rows)) for c, rows in mask.rows.items()}, training.mask_seed)
        if drawn is None:
            return mask
        drawn.source = {"random": {"as_many_as": training.mask_of, "seed": training.mask_seed}}
        return drawn

    def jobs(self) -> list[TrainingJob]:
        """Return the jobs of all trainings."""
        return [self.job(training) for training in self.trainings]

    def waiting(self) -> bool:
        """Whether trainings have become possible, and are not done, since the heads of another method are known."""
        return any(t.mask_of and self._is_ready(t) and not self._is_trained(t.name) for t in self.trainings)

    def plan(self) -> list[Cell]:
        """The cells of all trainings, then those of methods that choose heads of the unpruned models."""
        cells = [cell for training in self.trainings for cell in self._cells(training.name, training, training.count)]
        for seed in self.how.seeds:
            unpruned = next(training for training in self.trainings if training.name == unpruned_name(seed))
            for method in filter(ranks, in_order(self.how.methods)):
                for count in self.how.counts:
                    mine = Training(unpruned.name, method, seed)
                    cells += self._cells(f"{method}-{count}-{seed}", mine, count)
        return cells

    def _cells(self, name: str, training: Training, count: int | None) -> list[Cell]:
        facts = {"method": training.method, "count": count, "seed": training.seed, "penalty": training.penalty}
        if {"tuned", "long"} & {*options(training.method)}:
            facts["updates"] = self.how.updates + self.how.tune
        place = f"runs/{training.name}/checkpoint_best.pt"
        return [
            Cell(f"{name}@{split}", facts={**facts, "split": split, "checkpoint": place}, job=training.name)
            for split in self.how.splits
        ]

    def train(self, at_once: int, limit: float | None) -> Iterator[str]:
        """Run the missing trainings; yield the name of each.

        Raises:
            RuntimeError: some trainings failed or left no checkpoint; raised after the others have ended.
            TimeoutError: the limit was reached.
        """
        path, claims, places = self.folder.path, self.folder.claims, self.how.task.places
        jobs = [self.job(training) for training in self.trainings if self._is_ready(training)]
        for job, _ in run_trainings(jobs, path, claims, at_once, limit, places=places):
            yield job.name

    def answer(self, at_once: int, limit: float | None) -> Iterator[str]:
        """Run trained models on the splits for all missing cells; yield the name of each process.

        Raises:
            RuntimeError, TimeoutError: as for :meth:`train`.
        """
        finished, commands, path = self.folder.cells(), [], self.folder.path
        missing = [self._told(cell) for cell in self.plan() if cell.id not in finished and self._is_trained(cell.job)]
        (path / "jobs").mkdir(exist_ok=True)
        for number, cells in enumerate(groups(missing, at_once)):
            name = f"translate-{len(finished)}-{number}"
            how, task = self.how, self.how.task
            job = {
                "folder": str(path.resolve()),
                "generate": [self._data, *task.flags, *how.generate_flags],
                "valid": task.valid,
                "step": how.step,
                "sentences": how.sentences,
                "cells": cells,
            }
            write_json(path / "jobs" / f"{name}.json", job)
            words = [sys.executable, "-m", "fairseq_headprune.studies.pruners.answers", f"jobs/{name}.json"]
            log, ids = path / "logs" / f"{name}.log", {cell["id"] for cell in cells}
            commands.append(Command(name, words, log, cwd=path, progress=self._counting(ids), forked=True))
        yield from run_commands(commands, at_once, limit=limit)

    def _counting(self, ids: set[str]) -> Callable[[], int]:
        return lambda: len(ids & self.folder.cells().keys())

    def _is_trained(self, name: str | None) -> bool:
        return Run(self.folder.path, f"runs/{name}").done.exists()

    def _told(self, cell: Cell) -> Done:
        """The facts of a cell that are known before its model is run; masks of the unpruned model have no training."""
        after = ranks(cell.facts["method"])
        training = None if after else read_json(Run(self.folder.path, f"runs/{cell.job}").done)
        told = {"id": cell.id, **cell.facts, "training": training}
        if "tuned" in options(cell.facts["method"]) and base(cell.facts["method"]) == "pipelined-dsp":
            name = next(t.mask_of for t in self.trainings if t.name == cell.job)
            chosen = read_json(Run(self.folder.path, f"runs/{name}").done)
            told["updates"] += chosen["updates"]
            told["choosing_seconds"] = chosen.get("seconds", 0.0)
        return told


def groups(cells: Sequence[Done], at_once: int) -> list[list[Done]]:
    """Divide cells among at most ``at_once`` processes, each of which loads as few models as possible.

    The cells of a model stay together; only where there are fewer models than processes, its methods are divided.
    """
    models: dict[str, dict[str, list[Done]]] = {}
    for cell in cells:
        models.setdefault(cell["checkpoint"], {}).setdefault(cell["method"], []).append(cell)
    each = max(1, at_once // max(1, len(models)))
    return _spread([part for methods in models.values() for part in _spread(list(methods.values()), each)], at_once)


def _spread(parts: Sequence[list[Done]], count: int) -> list[list[Done]]:
    """Join parts to at most ``count``: the dearest first, each to what costs least so far."""
    found: list[list[Done]] = [[] for _ in range(count)]
    for part in sorted(parts, key=_cost, reverse=True):
        min(found, key=_cost).extend(part)
    return [joined for joined in found if joined]


def _cost(cells: Sequence[Done]) -> int:
    """The work of cells, in translations of a split; about two estimates precede a mask that is ranked anew."""
    anew = [cell for cell in cells if estimates(cell["method"]) and "once" not in options(cell["method"])]
    return len(cells) + 2 * len(anew)
