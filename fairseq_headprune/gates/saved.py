"""Learned gates in a checkpoint: their weights and settings, and the set of heads to keep."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fairseq_headprune.gates.learner import check_version
from fairseq_headprune.gates.rules import L0Rule, SubsetRule
from fairseq_headprune.gates.subset import Array
from fairseq_headprune.parts import Part

_NAME = "head_gates"


@dataclass(frozen=True)
class SavedGates:
    """The gates at the end of a training run.

    Attributes:
        description: kind and settings, as stored in the checkpoint.
        heads: the gated heads, in the order of the weights.
        weight: (heads,), w of Li et al. 2021, eq. 20, or log_alpha of L0.
        updates: number of updates made.
        sampled: share of the updates after cooling in which the sampled set was the learned one; None without noise.
    """

    description: dict[str, Any]
    heads: list[Part]
    weight: Array
    updates: int
    sampled: float | None = None

    @cached_property
    def _rule(self) -> L0Rule | SubsetRule:
        if self.description["kind"] == "l0":
            return L0Rule(self.heads, beta=self.description["beta"])
        return SubsetRule(self.heads, self.description["heads_kept"])

    def hard(self) -> Array:
        """Mark the learned set, bool (heads,): L0's gates above 0 in evaluation, or the K that DSP and STE chose."""
        return self._rule.hard(self.weight)

    def evaluated(self) -> Array:
        """Return the gates for evaluation, (heads,): L0's are in [0, 1], as in Voita et al.'s code, others 0 or 1."""
        return self._rule.evaluate(self.weight)

    def expected(self) -> float:
        """Return the expected number of open gates in training; for DSP and STE, the size of the learned set."""
        return float(self._rule.expected(self.weight).sum())


def saved_gates(state: Mapping[str, Any]) -> SavedGates | None:
    """Return the learned gates of a loaded checkpoint, None if it has none.

    Raises:
        ValueError: the gates are of a newer version, or damaged.
    """
    model = state["model"]
    if f"{_NAME}.weight" not in model:
        return None
    description = getattr(model, "_metadata", {}).get(_NAME, {})
    check_version(description)
    heads = [Part(*place) for place in description.get("heads", [])]
    weight = model[f"{_NAME}.weight"].double().numpy()
    if description.get("kind") not in ("l0", "dsp", "ste") or weight.shape != (len(heads),):
        raise ValueError(
            f"the checkpoint has {weight.size} gate weights, and describes {len(heads)} gates of kind "
            f"{description.get('kind')!r}: it was not saved whole; take the one that the training wrote"
        )
    if not np.isfinite(weight).all():
        raise ValueError(f"the weight of the gate of {heads[int(np.argmin(np.isfinite(weight)))]} is not finite")
    same, cooled = model.get(f"{_NAME}.sampled", np.zeros(2)).tolist()
    return SavedGates(description, heads, weight, int(model[f"{_NAME}.updates"]), same / cooled if cooled else None)


@dataclass(frozen=True)
class Choice:
    """Which gated heads are kept, and how this differs from the learned set.

    Attributes:
        kept: the gated heads that are kept.
        dropped: the others.
        learned: size of the learned set.
        included: kept heads that are not in the learned set.
        excluded: dropped heads that are in the learned set.
    """

    kept: list[Part]
    dropped: list[Part]
    learned: int
    included: list[Part]
    excluded: list[Part]


def choose(gates: SavedGates, count: int | dict[str, int] | None = None) -> Choice:
    """Return the learned set, or the nearest one with exactly ``count`` heads (in total, or per component).

    If the learned set is too small, the dropped heads with the highest weights are included; if it is too large, the
    kept heads with the lowest weights are excluded (Li et al. 2021, §4.3). The order is that of the weights, not of the
    gates, which tie at 0 and 1; among equal weights the lowest index ranks highest. As no dropped gate has a higher
    weight than a kept one, these are the ``count`` highest weights.

    Raises:
        ValueError: a number is out of range, the components are not the gated ones, or a single number was given for
            gates that were learned separately per component: their weights have no common scale.
    """
    learned = gates.hard()
    trained = gates.description.get("heads_kept")
    if count is None:
        chosen = learned
    elif isinstance(count, int) and isinstance(trained, dict) and gates.description["kind"] != "l0":
        asked = ",".join(f"{component}={number}" for component, number in trained.items())
        raise ValueError(
            f"cannot keep {count} heads over all components: the gates were learned for each component by itself "
            f"({asked}); give a number for each"
        )
    else:
        chosen = SubsetRule(gates.heads, count).hard(gates.weight)  # ties: lowest index first

    def where(marks) -> list[Part]:
        return [head for head, mark in zip(gates.heads, marks, strict=True) if mark]

    included, excluded = where(chosen & ~learned), where(learned & ~chosen)
    return Choice(where(chosen), where(~chosen), int(learned.sum()), included, excluded)
