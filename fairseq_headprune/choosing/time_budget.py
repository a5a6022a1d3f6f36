"""How many heads may stay so that translation is as fast as asked for."""

import math
from collections.abc import Callable

from fairseq_headprune.choosing.scored import ranked
from fairseq_headprune.parts import Mask
from fairseq_headprune.parts.scores import Scores

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
