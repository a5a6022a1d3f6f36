"""Keep the parts with the highest scores: a number of them, as many as fit a budget, or equally many in each layer."""

import math
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction

from fairseq_headprune.parts import FFN, HEADS, Mask, Part, has_ffn
from fairseq_headprune.parts.notation import parse_fraction
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
    return mask.keeping(order[:count], components)


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


def parse_share(text: str) -> Fraction:
    """Read a share such as ``0.8x``, ``0.8`` or ``80%`` exactly.

    Raises:
        ValueError: not a number above 0 and up to 1.
    """
    share = parse_fraction(text.strip().removesuffix("x"))
    if share is None or not 0 < share <= 1:
        raise ValueError(f"{text!r} is not a share of the parameters: give a number above 0 and up to 1, as in 0.8x")
    return share


def keep_within(
    mask: Mask, scores: Scores, parameters: int, per_head: Mapping[Part, int], share: Fraction, other: int = 0
) -> tuple[Mask, int]:
    """Prune the lowest-scored heads one by one until at most this share of the parameters is left.

    Args:
        parameters: parameter count of the checkpoint.
        per_head: head -> number of its parameters; heads that were removed before are missing.
        other: parameters removed in any case, with feed-forward parts.

    Returns:
        The mask, and the parameter count of the slim model.

    Raises:
        ValueError: removing all scored heads is not enough.
    """
    gone = other + sum(per_head.get(head, 0) for head in mask.dropped())
    dropped = []
    for head in reversed(ranked(mask, scores)):
        if parameters - gone <= share * parameters:
            break
        gone += per_head[head]
        dropped.append(head)
    if parameters - gone > share * parameters:
        raise ValueError(
            f"without any scored head the model has {parameters - gone:,} of {parameters:,} parameters, which is "
            f"{(parameters - gone) / parameters:.3f}x: give no smaller share"
        )
    return mask.without(dropped), parameters - gone


#: returns the predicted time for a mask
Time = Callable[[Mask], float]

#: relative tolerance for rounding in floating-point sums
ROUNDING = 1e-9


def parse_speed(text: str) -> float:
    """Read a speed-up factor such as ``1.3x`` or ``1.3``.

    Raises:
        ValueError: not a finite number of at least 1.
    """
    value = _number(text.strip().removesuffix("x"))
    if not 1 <= value < math.inf:
        raise ValueError(f"--for-speed {text}: say how many times as fast, from 1, as in 1.3x")
    return value


def parse_latency(text: str) -> float:
    """Read a time in milliseconds, such as ``250`` or ``250ms``.

    Raises:
        ValueError: not a finite number above 0.
    """
    value = _number(text.strip().removesuffix("ms"))
    if not 0 < value < math.inf:
        raise ValueError(f"--for-latency {text}: give milliseconds a batch, above 0, as in 250")
    return value


def keep_in_time(mask: Mask, scores: Scores, time: Time, limit: float) -> Mask | None:
    """Prune the lowest-scored heads one by one until the predicted time is within the limit.

    Time is not proportional to the number of heads, so pruned heads are then restored, the highest-scored first, where
    the limit still holds.

    Returns:
        The mask; None if even pruning all scored heads does not meet the limit.
    """
    limit *= 1 + ROUNDING
    kept = ranked(mask, scores)
    found = mask
    for gone in range(len(kept) + 1):
        found = mask.without(kept[len(kept) - gone :])
        if time(found) <= limit:
            break
    else:
        return None
    dropped = kept[len(kept) - gone :]
    for head in list(dropped):
        fewer = [other for other in dropped if other != head]
        if time(mask.without(fewer)) <= limit:
            dropped = fewer
    return mask.without(dropped)


def fastest(mask: Mask, scores: Scores, time: Time) -> float:
    """Return the predicted time with all scored heads pruned."""
    return time(mask.without(ranked(mask, scores)))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


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
        found = mask.keeping(best)
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
