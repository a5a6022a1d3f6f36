"""Mean scores over the samplings of a random pruning study, and their tests: each sampling is a training."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from fairseq_headprune.evaluation.p_values import LEAST
from fairseq_headprune.evaluation.significance import bootstrap_statistics
from fairseq_headprune.evaluation.trainings import (
    against_value,
    corrected,
    hierarchical_bootstrap,
    paired,
    spread,
)
from fairseq_headprune.report.marks import MARGIN
from fairseq_headprune.studies.results import with_holm
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

    def test(self, name: str, base: str) -> dict[str, Any]:
        """Test one sampling against one other model over the sentences."""
        systems = {"base": self._extract(base), "mine": self._extract(name)}
        how = self._how
        return bootstrap_statistics(self._metric.score, systems, how.resamples or LEAST, how.seed)[1].alone()

    def score(self, name: str) -> float:
        """Return the score of a cell."""
        return float(self._metric.score(self._extract(name).sum(axis=0)))

    def both_levels(self, names: Sequence[str], base: Sequence[str]) -> dict[str, Any] | None:
        """Resample samplings and sentences together; None for one sampling."""
        if len(names) < 2:
            return None
        of_base, mine = ([self._extract(name) for name in side] for side in (base, names))
        return hierarchical_bootstrap(self._metric.score, of_base, mine, LEAST, self._how.seed)

    def _extract(self, name: str) -> np.ndarray:
        if name not in self._statistics:
            self._statistics[name] = self._metric.extract(self._folder.read_hypotheses(name, self._sentences))
        return self._statistics[name]


def over_samplings(items: Sequence[Done], baseline: Mapping[str, Any], margin: float = MARGIN) -> list[Done]:
    """Return the items with the statistics of their ``scores``, one a sampling.

    ``score``, ``sd``, ``ci`` (95%, Student's t), ``delta`` and ``difference`` (a
    :class:`~fairseq_headprune.evaluation.trainings.Difference` as a dict): from the control of the same seed (paired
    t-test), or from the score of the unpruned checkpoint (one-sample t-test). Holm's correction is over the items.

    Args:
        baseline: ``score``, and for a control ``scores``.
    """
    differences = []
    for item in items:
        scores = dict(enumerate(item["scores"]))
        if "scores" in baseline:
            differences.append(paired(dict(enumerate(baseline["scores"])), scores, margin))
        else:
            differences.append(against_value(baseline["score"], item["scores"], margin))
    found = []
    for item, difference in zip(items, corrected(differences), strict=True):
        over = spread(item["scores"])
        values = {"score": over.mean, "sd": over.sd, "ci": over.ci, "samplings": over.n}
        found.append({**item, **values, "delta": difference.mean, "difference": asdict(difference)})
    return found


def summary(
    means: Means, cells: Mapping[str, Done], plan: Sequence[str], items: Sequence[Item], base: str, margin: float
) -> Done:
    """Summarise the cells: the baseline, every sampling with ``p_holm``, and one entry per item with its mean.

    A sampling is tested over its sentences (that model against that model), with Holm's correction over all of them; an
    item over its samplings (:func:`over_samplings`).

    Args:
        plan: ids of all cells in the order of the study, the unpruned model's first.
        base: ``unpruned``, the original checkpoint; or ``control``, the fine-tuned unpruned models, each compared with
            the sampling of the same seed. Its score is only in ``baseline``.
    """
    unpruned, *others = [cells[name] for name in plan]
    baseline, partner = unpruned, dict.fromkeys(plan, UNPRUNED)
    if base == CONTROL:
        controls = {cell["seed"]: cell["id"] for cell in others if cell["item"] == CONTROL}
        scores = [means.score(name) for name in controls.values()]
        over = spread(scores)
        baseline = {"id": CONTROL, "score": over.mean, "sd": over.sd, "ci": over.ci, "scores": scores}
        baseline |= {"samplings": over.n, "signature": unpruned["signature"]}
        others = [cell for cell in others if cell["item"] != CONTROL]
        items = [item for item in items if item.name != CONTROL]
        partner = {cell["id"]: controls[cell["seed"]] for cell in others}
        others = [{**cell, **means.test(cell["id"], partner[cell["id"]])} for cell in others]
    others = [{**cell, "delta": cell["score"] - cells[partner[cell["id"]]]["score"]} for cell in with_holm(others)]
    entries = []
    for item in items:
        found = [cell for cell in others if cell["item"] == item.name]
        shared = {key: found[0][key] for key in ("item", "kind", "text", "mirror", "percent", "pruned")}
        names = [cell["id"] for cell in found]
        # The number of heads kept in each layer, if equal in all samplings (as in those of a configuration).
        config = found[0]["config"] if all(cell["config"] == found[0]["config"] for cell in found) else None
        entry = {**shared, "config": config, "scores": [means.score(name) for name in names]}
        entries.append({**entry, "both_levels": means.both_levels(names, [partner[name] for name in names])})
    return {
        "margin": margin,
        "baseline": baseline,
        "items": over_samplings(entries, baseline, margin),
        "cells": others,
    }
