"""Keep the parts with the highest scores."""

from collections.abc import Iterable

from fairseq_headprune.parts import FFN, HEADS, Mask, Part, has_ffn
from fairseq_headprune.parts.scores import Scores


def keep_highest(mask: Mask, scores: Scores, count: int, components: Iterable[str] = HEADS) -> Mask:
    """Keep the ``count`` highest-scored of the parts that the mask keeps in these components, if scored.

    Ties are resolved in favour of the first part in the order component, layer, index. Parts without a score were
    already pruned when the scores were computed; they are not kept.

    Raises:
        ValueError: ``count`` is negative or exceeds the number of scored parts.
    """
    components = [component for component in components if component in scores.rows]
    order = ranked(mask, scores, components)
    if not 0 <= count <= len(order):
        flag, what = (
            ("--ffn", "scored feed-forward parts") if has_ffn(components) else ("--heads", "kept heads with a score")
        )
        raise ValueError(f"{flag} {count}: there are {len(order)} {what}, so give 0 to {len(order)}")
    chosen = set(order[:count])
    return mask.without(part for part in mask.kept(components) if part not in chosen)


def ranked(mask: Mask, scores: Scores, components: Iterable[str] = HEADS) -> list[Part]:
    """List the kept parts of these components that have a score, highest score first."""
    kept = set(mask.kept(components))
    return [part for part in reversed(scores.pruning_order(components)) if part in kept]


def keep_highest_ffn(mask: Mask, scores: Scores, count: int) -> Mask:
    """Keep the highest-scored feed-forward parts; see :func:`keep_highest`.

    Raises:
        ValueError: there are no such scores, or fewer than ``count``.
    """
    if not has_ffn(scores.rows):
        raise ValueError("the score file has no feed-forward scores; make them with headprune score --ffn")
    return keep_highest(mask, scores, count, FFN)
