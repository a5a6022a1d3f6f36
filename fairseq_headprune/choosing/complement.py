"""The opposite of a mask: what it keeps is pruned, what it prunes is kept."""

from fairseq_headprune.parts import COMPONENTS, Mask


def complement(mask: Mask, other: Mask) -> Mask:
    """Prune the parts that the other mask keeps. (Not the mirror, which keeps the number of heads.)

    Raises:
        ValueError: the masks are of different shapes.
    """
    other.check_shape(mask.shape, "--like")
    return mask.without(part for part in other.kept(COMPONENTS) if part.component in mask.rows)
