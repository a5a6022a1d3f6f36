"""How many heads may stay so that a model has a given share of its parameters."""

from collections.abc import Mapping
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
