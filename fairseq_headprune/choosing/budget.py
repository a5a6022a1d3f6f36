"""How many heads may stay so that a model has a share of its parameters, or is as fast as asked for."""

import math
from collections.abc import Callable, Mapping
from fractions import Fraction

from fairseq_headprune.choosing.scored import ranked
from fairseq_headprune.parts import Mask, Part
from fairseq_headprune.parts.scores import Scores


def parse_share(text: str) -> Fraction:
    """Read a share such as ``0.8x``, ``0.8`` or ``80%`` exactly.

    Raises:
        ValueError: not a number above 0 and up to 1.
    """
    plain = text.strip().removesuffix("x").removesuffix("%")
    try:
        share = Fraction(plain) / (100 if text.strip().endswith("%") else 1)
    except (ValueError, ZeroDivisionError):
        share = Fraction(0)
    if not 0 < share <= 1:
        raise ValueError(f"{text!r} is not a share of the parameters: give a number above 0 and up to 1, as in 0.8x")
    return share


def keep_within(
    mask: Mask, scores: Scores, parameters: int, per_head: Mapping[Part, int], share: Fraction, other: int = 0
) -> tuple[Mask, int]:
    """Prune the lowest-scored heads, one after the other, until the parameters are within a share of what there are.

    Args:
        parameters: that the checkpoint has.
        per_head: head -> parameters that go with it; a head that was removed before has none.
        other: of the parameters those that go in any case, with feed-forward parts.

    Returns:
        The mask, and how many parameters the slim model will have.

    Raises:
        ValueError: all heads that have a score together do not hold that many parameters.
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


#: predicted time of a mask
Time = Callable[[Mask], float]

#: what sums of floating-point numbers may be off by, as a share
_ROUNDING = 1e-9


def parse_speed(text: str) -> float:
    """Read how many times as fast a model is to be, such as ``1.3x`` or ``1.3``.

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
    """Prune the lowest-scored heads, one after the other, until the predicted time is within a limit.

    Time is not proportional to heads: of those that went, heads with which the limit is kept all the same come back,
    the highest-scored first.

    Returns:
        The mask; None if the limit is not even kept without any scored head.
    """
    limit *= 1 + _ROUNDING
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
    """Return the predicted time without any scored head."""
    return time(mask.without(ranked(mask, scores)))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
