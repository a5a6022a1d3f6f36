"""The best mask with one head count per stack, for programs that support nothing else."""

from collections.abc import Callable

from fairseq_headprune.parts import HEADS, Mask, Part
from fairseq_headprune.parts.scores import Scores

#: the components that share one head count; the decoder's self- and encoder-decoder attention share one, too
STACKS = {"encoder": ("enc_self",), "decoder": ("enc_dec", "dec_self")}


def uniform_mask(mask: Mask, scores: Scores, heads: int) -> Mask:
    """Keep equally many heads in each module of a stack, at most ``heads`` in all: see :func:`best_uniform`.

    Raises:
        ValueError: ``heads`` is negative, or the scores have another shape.
    """
    if heads < 0:
        raise ValueError(f"cannot keep {heads} heads; give 0 or more")
    found = best_uniform(mask, scores, lambda fitting: len(fitting.kept()) <= heads)
    assert found is not None  # no head is within every limit
    return found


def best_uniform(mask: Mask, scores: Scores, fits: Callable[[Mask], bool]) -> Mask | None:
    """Keep equally many heads in each module of a stack, with the highest total score of the masks that fit.

    Every pair of counts (encoder, decoder) is tried; each module keeps its highest-scored heads. Ties go to fewer heads
    in total, then to fewer encoder heads. With negative scores, fewer heads than fit may be best.

    Args:
        mask: the heads to choose from; ``scores`` must score them.

    Returns:
        The mask; None if none fits.

    Raises:
        ValueError: the scores have another shape.
    """
    mine, theirs = mask.only(HEADS).shape, scores.only(HEADS).shape
    if theirs != mine:
        raise ValueError(f"the scores are of a model with heads {theirs}, this one has {mine}")
    options = {stack: _options(mask, scores, components) for stack, components in STACKS.items()}
    pairs = [
        (-enc_total - dec_total, len(enc) + len(dec), len(enc), enc + dec)
        for enc_total, enc in options["encoder"]
        for dec_total, dec in options["decoder"]
    ]
    for *_, best in sorted(pairs, key=lambda pair: pair[:3]):
        found = mask.without(set(mask.kept()) - set(best))
        if fits(found):
            return found
    return None


def _options(mask: Mask, scores: Scores, components: tuple[str, ...]) -> list[tuple[float, list[Part]]]:
    """Return for each head count of a stack, from 0: the total score and the heads kept."""
    kept = set(mask.kept(components))
    rows: dict[tuple[str, int], list[Part]] = {
        (c, layer): [] for c in components for layer in range(len(mask.shape.get(c, [])))
    }
    for head in reversed(scores.pruning_order(components)):
        if head in kept:
            rows[head.component, head.layer].append(head)
    most = min(map(len, rows.values()), default=0)
    chosen = [[head for row in rows.values() for head in row[:count]] for count in range(most + 1)]
    return [(sum(scores[head] or 0.0 for head in heads), heads) for heads in chosen]
