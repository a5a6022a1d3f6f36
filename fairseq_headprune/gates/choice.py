"""The set of heads to keep after gates were learned: the learned one, corrected to any number of heads."""

from dataclasses import dataclass

from fairseq_headprune.gates.saved import SavedGates, highest
from fairseq_headprune.parts import Part


@dataclass(frozen=True)
class Choice:
    """Which gated heads are kept, and how that differs from what was learned.

    Attributes:
        kept: the gated heads that are kept.
        dropped: the others.
        learned: how many heads the learned set had.
        included: heads that the learned set had dropped.
        excluded: heads that the learned set had kept.
    """

    kept: list[Part]
    dropped: list[Part]
    learned: int
    included: list[Part]
    excluded: list[Part]


def choose(gates: SavedGates, count: int | dict[str, int] | None = None) -> Choice:
    """Return the learned set, or the nearest one with exactly ``count`` heads (in all, or one number a component).

    Too few learned ones: the highest of the dropped are included again. Too many: the lowest of the kept are excluded
    (Li et al. 2021, §4.3). The order is that of the weights and not of the gates, which tie at 0 and 1; among equal
    weights the lowest index is the highest. As no dropped gate has a weight above a kept one's, these are the ``count``
    highest weights.

    Raises:
        ValueError: a number out of range, components that are not the gated ones, or one number for gates that were
            learned for each component by itself: their weights have no common scale.
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
        chosen = highest(gates, count)

    def where(marks) -> list[Part]:
        return [head for head, mark in zip(gates.heads, marks, strict=True) if mark]

    included, excluded = where(chosen & ~learned), where(learned & ~chosen)
    return Choice(where(chosen), where(~chosen), int(learned.sum()), included, excluded)
