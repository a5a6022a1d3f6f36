"""What is shown of gates while they are learned."""

from typing import Any

from fairseq_headprune.heads import COMPONENTS


def by_component(learner: Any, values: Any) -> dict[str, float]:
    """Add one value a gated head up, by component."""
    sums: dict[str, float] = {}
    for head, value in zip(learner.heads, values.tolist(), strict=True):
        sums[head.component] = sums.get(head.component, 0.0) + float(value)
    return {component: sums[component] for component in COMPONENTS if component in sums}


def gate_metrics(learner: Any) -> dict[str, float]:
    """Return name -> value: heads in the learned set, expected open gates (L0), temperature, penalty."""
    result = {f"heads_{component}": count for component, count in by_component(learner, learner.hard()).items()}
    if learner.rule.penalty is not None:
        expected = by_component(learner, learner.expected())
        result |= {f"expected_{component}": round(value, 3) for component, value in expected.items()}
        result["gate_penalty"] = learner.penalty()
    return result | learner.stats()
