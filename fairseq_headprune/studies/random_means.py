"""Mean scores over the samplings of a random pruning study, and their tests."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fairseq_headprune.evaluation.p_values import holm
from fairseq_headprune.studies.finished import read_hypotheses
from fairseq_headprune.studies.mask_study import mean_test
from fairseq_headprune.studies.samplings import CONTROL, Item
from fairseq_headprune.studies.study import UNPRUNED, Done


class Means:
    """Scores and tests of the outputs stored in a study.

    Args:
        study: a finished random pruning study, with its session.
    """

    def __init__(self, study: Any) -> None:
        self._folder, self._how = study.folder, study.comparison
        evaluator = study.session.evaluator(study.split)
        self._sentences, self._metric = len(evaluator.references), evaluator.metric(self._how)
        self._statistics: dict[str, np.ndarray] = {}

    def test(self, names: Sequence[str], base: Sequence[str]) -> dict[str, Any]:
        """Test the mean score of some cells against that of equally many others; only sentences are resampled."""
        of_base, mine = ([self._extract(name) for name in side] for side in (base, names))
        return mean_test(self._metric.score, of_base, mine, self._how)[1]

    def mean(self, names: Sequence[str], base: Sequence[str]) -> dict[str, Any]:
        """Return mean and standard deviation of the scores of these cells, and the test of the mean."""
        scores = [float(self._metric.score(self._extract(name).sum(axis=0))) for name in names]
        spread = statistics.stdev(scores) if len(scores) > 1 else None
        return {**self.test(names, base), "sd": spread, "scores": scores, "samplings": len(scores)}

    def _extract(self, name: str) -> np.ndarray:
        if name not in self._statistics:
            self._statistics[name] = self._metric.extract(read_hypotheses(self._folder, name, self._sentences))
        return self._statistics[name]


def summary(means: Means, cells: Mapping[str, Done], plan: Sequence[str], items: Sequence[Item], base: str) -> Done:
    """Summarise the cells: the baseline, every sampling with ``p_holm``, and one entry per item with its mean.

    Holm's correction of samplings is over all samplings, that of items over all items.

    Args:
        plan: ids of all cells in the order of the study, the unpruned model's first.
        base: ``unpruned``, the original checkpoint; or ``control``, the fine-tuned unpruned models, each compared with
            the sampling of the same seed. Its score is only in ``baseline``.
    """
    unpruned, *others = [cells[name] for name in plan]
    baseline, partner = unpruned, dict.fromkeys(plan, UNPRUNED)
    if base == CONTROL:
        controls = {cell["seed"]: cell["id"] for cell in others if cell["item"] == CONTROL}
        names = list(controls.values())
        baseline = {"id": CONTROL, **means.mean(names, names), "signature": unpruned["signature"]}
        others = [cell for cell in others if cell["item"] != CONTROL]
        items = [item for item in items if item.name != CONTROL]
        partner = {cell["id"]: controls[cell["seed"]] for cell in others}
        others = [{**cell, **means.test([cell["id"]], [partner[cell["id"]]])} for cell in others]
    others = [{**cell, "delta": cell["score"] - cells[partner[cell["id"]]]["score"]} for cell in others]
    entries = []
    for item in items:
        found = [cell for cell in others if cell["item"] == item.name]
        shared = {key: found[0][key] for key in ("item", "kind", "text", "mirror", "percent", "pruned")}
        names = [cell["id"] for cell in found]
        mean = means.mean(names, [partner[name] for name in names])
        # The number of heads kept in each layer, if equal in all samplings (as in those of a configuration).
        config = found[0]["config"] if all(cell["config"] == found[0]["config"] for cell in found) else None
        entries.append({**shared, **mean, "delta": mean["score"] - baseline["score"], "config": config})
    for group in (others, entries):
        for entry, p in zip(group, holm([entry["p"] for entry in group]), strict=True):
            entry["p_holm"] = p
    return {"baseline": baseline, "items": entries, "cells": others}
