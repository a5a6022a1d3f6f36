"""How a ranking of heads evolves: correlation between epochs, and when the final set is first reached."""

from collections.abc import Mapping, Sequence
from typing import Any

from fairseq_headprune.evaluation.correlation import correlations
from fairseq_headprune.parts.scores import Scores


def evolution(scores: Mapping[int, Scores], components: Sequence[str], keep: Sequence[int]) -> dict[str, Any]:
    """Compare the rankings of several epochs.

    Args:
        scores: epoch -> scores of the same heads, in ascending order of epochs.
        components: whose heads are ranked together.
        keep: sizes of the sets of most important heads.

    Returns:
        ``epochs``; ``spearman``: one row an epoch, one coefficient an epoch, ``None`` where the scores of one side are
        all equal; ``sets``: for each size ``keep`` the heads that the last epoch keeps (``final``), the epoch in which
        just these are first kept (``first``), the epoch from which they stay (``stays_from``), and how many of them
        each epoch keeps (``shared``).
    """
    epochs = list(scores)
    orders = {epoch: found.pruning_order(components) for epoch, found in scores.items()}
    values = {epoch: [scores[epoch][head] for head in sorted(order)] for epoch, order in orders.items()}
    return {
        "epochs": epochs,
        "spearman": [[_spearman(values[a], values[b]) for b in epochs] for a in epochs],
        "sets": [_final_set(orders, size) for size in keep],
    }


def _spearman(x: list, y: list) -> float | None:
    try:
        return correlations(x, y)["spearman"].value
    except ValueError:
        return None  # no variance, or hardly any heads: there is no ranking to compare


def _final_set(orders: Mapping[int, list], size: int) -> dict[str, Any]:
    kept = {epoch: set(order[len(order) - size :]) for epoch, order in orders.items()}
    final = kept[max(kept)]
    same = [epoch for epoch in kept if kept[epoch] == final]
    other = [epoch for epoch in kept if kept[epoch] != final]
    return {
        "keep": size,
        "final": [list(head) for head in sorted(final)],
        "first": min(same),
        "stays_from": min(epoch for epoch in same if not other or epoch > max(other)),
        "shared": [len(heads & final) for heads in kept.values()],
    }
