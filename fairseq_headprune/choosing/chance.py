"""Drawing heads by chance: every set of heads that is allowed is equally likely.

Python promises the sequence of ``random()`` for a seed, not of its other methods: only that one is used, so that a seed
gives the same heads in every version.
"""

import random
from collections.abc import Sequence
from fractions import Fraction
from math import comb

from fairseq_headprune.parts import Part


def generator(seed: int) -> random.Random:
    """Return the generator of a seed.

    Raises:
        ValueError: a negative seed (Python takes -1 for 1).
    """
    if seed < 0:
        raise ValueError(f"--seed must be 0 or more, got {seed}")
    return random.Random(seed)


def draw(heads: Sequence[Part], count: int, chance: random.Random) -> list[Part]:
    """Draw ``count`` of these heads without replacement, each set with the same probability."""
    keys = [chance.random() for _ in heads]
    places = sorted(range(len(heads)), key=keys.__getitem__)[:count]
    return [heads[place] for place in sorted(places)]


def draw_from_each(layers: Sequence[Sequence[Part]], count: int, chance: random.Random) -> list[Part]:
    """Draw ``count`` heads with at least one of each layer, each such set with the same probability.

    How many come from a layer is drawn first, in proportion to the number of sets that have so many there.

    Raises:
        ValueError: fewer heads than layers, or more than there are.
    """
    sizes = [len(layer) for layer in layers]
    if not len(layers) <= count <= sum(sizes):
        raise ValueError(
            f"cannot keep at least one head in each of {len(layers)} layers with {count} of {sum(sizes)} heads"
        )
    ways = _ways(sizes, count)
    drawn: list[Part] = []
    left = count
    for place, layer in enumerate(layers):
        # ways[place][left] sets remain; choose one of them by its number, and see how many heads it has here.
        number, here = int(Fraction(chance.random()) * ways[place][left]), 0
        while number >= 0:
            here += 1
            number -= comb(len(layer), here) * ways[place + 1][left - here] if here <= left else 0
        drawn += draw(layer, here, chance)
        left -= here
    return drawn


def _ways(sizes: Sequence[int], count: int) -> list[list[int]]:
    """Entry [i][k]: the number of sets of k heads of the layers from i on that have at least one of each."""
    ways = [[1] + [0] * count]
    for size in reversed(sizes):
        after = ways[0]
        ways.insert(
            0, [sum(comb(size, c) * after[k - c] for c in range(1, min(size, k) + 1)) for k in range(count + 1)]
        )
    return ways
