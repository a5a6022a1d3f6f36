"""What is shown of gates while they are learned."""

from functools import lru_cache
from typing import Any

import numpy as np

from fairseq_headprune.parts import HEADS


def by_component(learner: Any, values: Any) -> dict[str, float]:
    """Add one value a gated head up, by component."""
    places, present = _places(tuple(head.component for head in learner.heads))
    sums = np.bincount(places, weights=values.double().numpy(), minlength=len(HEADS)).tolist()
    return {HEADS[place]: sums[place] for place in present}


@lru_cache(maxsize=8)
def _places(components: tuple[str, ...]) -> tuple[Any, list[int]]:
    """Return the number of each head's component, and the numbers that occur; asked for after every update."""
    places = [HEADS.index(component) for component in components]
    return np.array(places), sorted(set(places))


def gate_metrics(learner: Any) -> dict[str, float]:
    """Return name -> value: heads in the learned set, expected open gates (L0), temperature, penalty."""
    result = {f"heads_{component}": count for component, count in by_component(learner, learner.hard()).items()}
    if learner.rule.penalty is not None:
        expected = by_component(learner, learner.expected())
        result |= {f"expected_{component}": round(value, 3) for component, value in expected.items()}
        result["gate_penalty"] = learner.penalty()
    return result | learner.stats()
