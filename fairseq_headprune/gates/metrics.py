"""What is shown of gates while they are learned."""

from typing import Any

import numpy as np

from fairseq_headprune.parts import HEADS


def by_component(learner: Any, values: Any) -> dict[str, float]:
    """Add one value a gated head up, by component."""
    places = np.array([HEADS.index(head.component) for head in learner.heads])
    sums = np.bincount(places, weights=values.double().numpy(), minlength=len(HEADS))
    return {component: float(sums[place]) for place, component in enumerate(HEADS) if place in places}


def gate_metrics(learner: Any) -> dict[str, float]:
    """Return name -> value: heads in the learned set, expected open gates (L0), temperature, penalty."""
    result = {f"heads_{component}": count for component, count in by_component(learner, learner.hard()).items()}
    if learner.rule.penalty is not None:
        expected = by_component(learner, learner.expected())
        result |= {f"expected_{component}": round(value, 3) for component, value in expected.items()}
        result["gate_penalty"] = learner.penalty()
    return result | learner.stats()
