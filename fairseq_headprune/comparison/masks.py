"""The masks of every number of heads, for each method."""

from typing import Any

import numpy as np

from fairseq_headprune.heads import HeadMask
from fairseq_headprune.importance.estimate import ScoreSettings, estimate
from fairseq_headprune.pruning import next_heads


def random_mask(shape: dict[str, list[int]], count: int, seed: int) -> HeadMask:
    """Keep ``count`` heads, each set of them equally likely.

    Raises:
        ValueError: fewer than 0 heads, or more than there are.
    """
    full = HeadMask.full(shape)
    heads = full.kept()
    if not 0 <= count <= len(heads):
        raise ValueError(f"cannot keep {count} heads of {len(heads)}: give 0 to {len(heads)}")
    drawn = np.random.default_rng([seed, count]).permutation(len(heads))[count:]
    return full.without(heads[place] for place in drawn)


def importance_masks(session: Any, counts: list[int], reduction: str, step: int, sentences: int) -> dict[int, HeadMask]:
    """Remove the least important heads of a trained model, estimating anew after every ``step`` of them (§4.2.1).

    Args:
        reduction: ``sentence`` (eq. 21) or ``signed`` (the sign error of the published comparison).
        sentences: of the training set, drawn with seed 1, on which importance is estimated.

    Returns:
        number of heads kept -> mask.
    """
    settings = ScoreSettings(reduction=reduction, sentences=sentences)
    from fairseq_headprune.session import sample_indices

    chosen = sample_indices(len(session.dataset(settings.subset)), sentences, settings.seed)
    batches = session.batches(settings.subset, chosen)
    target = session.task.target_dictionary
    start = mask = session.gates.mask()
    total, masks = len(start.kept()), {}
    components = list(start.shape)
    for count in sorted(counts, reverse=True):
        while len(mask.kept()) > count:
            with session.gates.masked(mask):
                scores = estimate(session.model, session.gates, batches, settings, target.pad(), target.eos())
            fewer = max(count, len(mask.kept()) - step)
            mask = mask.without(next_heads(mask, scores, components, start, total - fewer))
        masks[count] = mask
    return masks


def learned_mask(checkpoint: Any, count: int | None) -> tuple[HeadMask, int]:
    """Return the mask of a checkpoint's learned gates, corrected to ``count`` heads, and how many were learned."""
    from fairseq_headprune.checkpoints import head_layout, read_state
    from fairseq_headprune.gates.choice import choose
    from fairseq_headprune.gates.saved import saved_gates

    state = read_state(checkpoint)
    gates = saved_gates(state)
    if gates is None:
        raise ValueError(f"{checkpoint} holds no learned gates")
    choice = choose(gates, count)
    return head_layout(state).mask().without(choice.dropped), choice.learned
