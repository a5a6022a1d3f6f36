"""The study of ``headprune compare-pruners``: a training or a mask for every method, head count and seed."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fairseq_headprune.choosing.per_layer import keep_per_layer, picking_by_chance
from fairseq_headprune.choosing.random_heads import keep_random
from fairseq_headprune.files import read_json
from fairseq_headprune.jobs.methods import COUNTS, DEFAULT, base, estimates, in_order, options, ranks
from fairseq_headprune.jobs.training import Run, TrainingJob
from fairseq_headprune.parts import Mask, Shape
from fairseq_headprune.studies.pruners.answers import mask_without_estimates, random_mask
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

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan.settings())
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
            mask = {}  # not known before it starts
        start = f"runs/{training.after}/checkpoint_best.pt" if training.after else None
        return TrainingJob(
            training.name, self._data, flags, training.seed, start, training.after, mask, resumable=how.resume,
            valid=how.task.valid,
        )  # fmt: skip

    def job_under_mask(self, training: Training) -> TrainingJob:
        """Return the job of a training that starts now, when the heads that it keeps are known."""
        job = self.job(training)
        return job if training.mask_of is None else replace(job, mask=self._mask_of(training).to_dict())

    def source_cell(self, training: Training) -> str:
        """Return the id of the cell whose heads a training keeps."""
        return f"{training.mask_of}@{self.how.splits[0]}"

    def _mask_of(self, training: Training) -> Mask:
        """The heads of another method; ``layers``, ``components``: as many random ones, of the same places."""
        cell = self.source_cell(training)
        if training.source and not estimates(training.source[0]) and cell not in self.folder.cells():
            # Its model need not be run for that; the mask is the one that the cell will have.
            checkpoint = Run(self.folder.path, f"runs/{training.mask_of}").best
            made = mask_without_estimates(*training.source, self.how.shape, checkpoint)
            self.folder.write_mask(cell, made.mask.to_dict())
        mask = Mask.load(self.folder.mask_path(cell))
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

    def translating(self, cells: Sequence[Cell]) -> dict[str, Any]:
        """Return the job of a process that runs the trained models of these cells (see :mod:`.answers`)."""
        how, task = self.how, self.how.task
        return {
            "folder": str(self.folder.path.resolve()),
            "generate": [self._data, *task.flags, *how.generate_flags],
            "valid": task.valid,
            "step": how.step,
            "sentences": how.sentences,
            "cells": [self._told(cell) for cell in cells],
        }

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
