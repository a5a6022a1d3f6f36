"""Keep the heads with the highest scores."""

from fairseq_headprune.parts import Mask, Part, all_heads
from fairseq_headprune.parts.scores import Scores


def keep_highest(mask: Mask, scores: Scores, count: int) -> Mask:
    """Keep the highest-scored heads among those the mask keeps in the scored components.

    Of equal scores the lowest index, in the order component, layer, head, is kept. Heads without a score were pruned
    when the scores were made; they are not kept.

    Raises:
        ValueError: fewer than 0, or more than there are.
    """
    order = ranked(mask, scores)
    if not 0 <= count <= len(order):
        raise ValueError(f"--heads {count}: there are {len(order)} kept heads with a score, so give 0 to {len(order)}")
    chosen = set(order[:count])
    return mask.without(head for head in all_heads(scores.shape) if head not in chosen)


def ranked(mask: Mask, scores: Scores) -> list[Part]:
    """List the kept heads that have a score, the best first."""
    kept = set(mask.kept())
    return [head for head in reversed(scores.pruning_order()) if head in kept]
