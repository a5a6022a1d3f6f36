"""The study of random pruning: draw masks, fine-tune, translate, score (Budhraja et al. 2020, §3.1)."""

import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_headprune.evaluation.evaluator import AnswerMetric
from fairseq_headprune.evaluation.holm import holm
from fairseq_headprune.evaluation.significance import bootstrap_statistics
from fairseq_headprune.evaluation.statistics import mean_score
from fairseq_headprune.files import read_json, read_lines
from fairseq_headprune.jobs.scheduler import Command, run_commands
from fairseq_headprune.parts import Mask
from fairseq_headprune.session import Session
from fairseq_headprune.studies.fine_tuning import DONE, HYPOTHESES, FineTuning, Job, write_job
from fairseq_headprune.studies.finished import read_hypotheses
from fairseq_headprune.studies.folder import StudyFolder
from fairseq_headprune.studies.masked import Comparison, MaskedCells
from fairseq_headprune.studies.results import UNPRUNED
from fairseq_headprune.studies.samplings import CONTROL, Item, facts

#: what a cell keeps of a comparison
_KEPT = ("score", "ci", "wins", "losses", "ties", "p")


def samplings(start: Mask, items: Sequence[Item], seeds: Sequence[int]) -> dict[str, tuple[Mask, dict]]:
    """Draw every mask of a study: id of the cell -> mask and facts.

    Raises:
        ValueError, KeyError: an item that this model cannot meet, or a seed given twice.
    """
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"a seed is given twice: {' '.join(map(str, seeds))}")
    drawn = {}
    for item in items:
        for seed in seeds:
            mask = item.mask(start, seed)
            drawn[f"{item.name}-{seed}"] = (mask, facts(item, seed, start, mask))
    return drawn


class RandomStudy:
    """Runs the cells that are missing in a study folder, several at the same time.

    Args:
        session: the unpruned model, loaded.
        generate: the verb's flags, from which every fine-tuned model is loaded in its turn.
    """

    def __init__(
        self,
        session: Session,
        folder: StudyFolder,
        split: str,
        plan: dict[str, tuple[Mask, dict]],
        how: FineTuning,
        comparison: Comparison,
        generate: list[str],
    ) -> None:
        self.session, self.folder, self.split, self.plan = session, folder, split, plan
        self.how, self.comparison, self._generate = how, comparison, generate
        self._statistics: dict[str, np.ndarray] = {}
        self._evaluator = session.evaluator(split)
        self._metric: AnswerMetric | None = None

    def run(self, at_once: int) -> Iterator[dict[str, Any]]:
        """Yield every cell, the unpruned model's first, the others as they are finished.

        Raises:
            RuntimeError: a fine-tuning failed; what the others gave is kept.
            ValueError: another process is at work on this study.
        """
        start = facts(Item("unpruned"), 0, self.session.gates.mask(), self.session.gates.mask())
        yield MaskedCells(self.session, self.folder, "random-study", self.split, self.comparison).unpruned(**start)
        done = self.folder.cells()
        yield from (done[name] for name in self.plan if name in done)
        missing = [name for name in self.plan if name not in done]
        self._claim(missing)
        commands = [
            Command(
                name,
                [sys.executable, "-m", "fairseq_headprune.studies.fine_tuning", str(self._runs / name / "job.json")],
                self._runs / f"{name}.log",
            )
            for name in missing
        ]
        try:
            for name in run_commands(commands, at_once, self._prepare):
                yield self._finish(name)
        finally:
            if missing:
                self.folder.claims.release(missing)

    def mean(self, names: Sequence[str], base: Sequence[str]) -> dict[str, Any]:
        """Return mean and standard deviation of the scores of these cells, and the test of the mean.

        The paired bootstrap draws other sentences, and compares the mean score of just these samplings with the mean of
        the cells ``base``, of which there are as many.
        """
        metric = self._bound()
        scores = [float(metric.score(self._extract(name).sum(axis=0))) for name in names]
        spread = statistics.stdev(scores) if len(scores) > 1 else None
        return {**self.test(names, base), "sd": spread, "scores": scores, "samplings": len(scores)}

    def test(self, names: Sequence[str], base: Sequence[str]) -> dict[str, Any]:
        """Test the mean score of some cells against that of as many others."""
        how, metric = self.comparison, self._bound()
        systems = {
            side: np.concatenate([self._extract(name) for name in of_side], axis=1)
            for side, of_side in (("base", base), ("mean", names))
        }
        result = bootstrap_statistics(mean_score(metric.score, len(names)), systems, how.resamples, how.seed)[1]
        return {name: value for name, value in asdict(result).items() if name in _KEPT}

    def _claim(self, names: Sequence[str]) -> None:
        """Keep other processes from these cells, whose folders are written anew, for as long as this one lives."""
        taken = self.folder.claims.take(names, tuple, max(1, len(names)))
        if len(taken) < len(names):
            if taken:
                self.folder.claims.release(taken)
            raise ValueError(
                f"{self.folder.path}: another process is fine-tuning for this study; wait for it, or name another "
                "folder"
            )

    @property
    def _runs(self) -> Path:
        return self.folder.path.resolve() / "runs"

    def _prepare(self, name: str) -> None:
        mask, found = self.plan[name]
        job = Job(
            folder=str(self._runs / name),
            checkpoint=str(Path(self.session.path).resolve()),
            data=self.session.args.data,
            task=self.session.training_flags(),
            generate=self._generate,
            split=self.split,
            seed=found["seed"],
            how=self.how,
        )
        mask.source |= {"study": "random-study", "cell": name, "checkpoint": self.session.checkpoint}
        write_job(job, mask.to_dict())

    def _finish(self, name: str) -> dict[str, Any]:
        mask, found = self.plan[name]
        run = self._runs / name
        self.folder.write_mask(name, mask.to_dict())
        self.folder.write_hypotheses(name, read_lines(run / HYPOTHESES))
        tuned = read_json(run / DONE)
        tuned["checkpoint"] = str(Path(tuned["checkpoint"]).relative_to(self._runs.parent))
        cell = {"id": name, **found, **self.test([name], [UNPRUNED]), "tuned": tuned}
        self.folder.append({**cell, "signature": self._bound().signature})
        return self.folder.cells()[name]

    def _extract(self, name: str) -> np.ndarray:
        if name not in self._statistics:
            answers = read_hypotheses(self.folder, name, len(self._evaluator.references))
            self._statistics[name] = self._bound().extract(answers)
        return self._statistics[name]

    def _bound(self) -> AnswerMetric:
        if self._metric is None:
            self._metric = self._evaluator.metric(self.comparison)
        return self._metric


def summary(
    study: RandomStudy, cells: Sequence[dict[str, Any]], items: Sequence[Item], base: str = UNPRUNED
) -> dict[str, Any]:
    """Arrange the cells: what they are compared with, every sampling with ``p_holm``, an entry an item with its means.

    Holm's correction is over the samplings for samplings, over the items for items.

    Args:
        base: ``unpruned``, the checkpoint as it is; or ``control``, the unpruned models that are fine-tuned, each with
            the seed of the sampling it is compared with. What it is stands in ``baseline``, and in no other place.
    """
    unpruned, *others = sorted(cells, key=lambda cell: cell["id"] != UNPRUNED)
    place = {name: number for number, name in enumerate(study.plan)}
    others.sort(key=lambda cell: place[cell["id"]])
    scores = {cell["id"]: cell["score"] for cell in cells}
    baseline, partner = unpruned, {cell["id"]: UNPRUNED for cell in others}
    if base == CONTROL:
        controls = {cell["seed"]: cell["id"] for cell in others if cell["item"] == CONTROL}
        names = list(controls.values())
        baseline = {"id": CONTROL, **study.mean(names, names), "signature": unpruned["signature"]}
        others = [cell for cell in others if cell["item"] != CONTROL]
        items = [item for item in items if item.name != CONTROL]
        partner = {cell["id"]: controls[cell["seed"]] for cell in others}
        others = [{**cell, **study.test([cell["id"]], [partner[cell["id"]]])} for cell in others]
    by_item = [[cell for cell in others if cell["item"] == item.name] for item in items]
    means = []
    for found in by_item:
        shared = {key: found[0][key] for key in ("item", "kind", "text", "mirror", "percent", "pruned")}
        names = [cell["id"] for cell in found]
        mean = study.mean(names, [partner[name] for name in names])
        means.append({**shared, **mean, "delta": mean["score"] - baseline["score"], "config": _common(found)})
    for group in (others, means):
        for entry, p in zip(group, holm([entry["p"] for entry in group]), strict=True):
            entry["p_holm"] = p
    for cell in others:
        cell["delta"] = cell["score"] - scores[partner[cell["id"]]]
    return {"baseline": baseline, "items": means, "cells": others}


def tuning_settings(how: FineTuning, items: Sequence[Item], seeds: Sequence[int]) -> dict[str, Any]:
    """Return the settings of the study that say what is drawn and how it is fine-tuned."""
    return {"items": [asdict(item) for item in items], "seeds": list(seeds), "fine_tuning": asdict(how)}


def _common(cells: Sequence[dict[str, Any]]) -> dict[str, str] | None:
    """The heads kept in each layer where all samplings agree on them, as those of a configuration do."""
    return cells[0]["config"] if all(cell["config"] == cells[0]["config"] for cell in cells) else None
