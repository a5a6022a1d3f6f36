"""Prune or keep random heads, over all heads or within components (Budhraja et al. 2020, Tables 1 and 3).

Every allowed set of heads is equally likely. Each part of the model has a number by the seed, and those with the lowest
numbers are kept: a seed gives the same heads whichever components are in play, and whatever is pruned already. Python
guarantees a stable sequence per seed only for ``random()``, not for its other methods; only ``random()`` is used, so
that this holds in every Python version.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import comb

from fairseq_headprune.errors import errors_of
from fairseq_headprune.parts import COMPONENTS, Mask, Part, all_heads, by_layer


@dataclass(frozen=True)
class Amount:
    """How much to prune, as given: a share of the prunable heads, or a number of heads."""

    text: str
    value: Fraction | int

    def of(self, total: int) -> int:
        """Return the number of heads to prune: round(share x total), with ties to the even number.

        Raises:
            ValueError: this would prune no head, or all heads.
        """
        count = self.value if isinstance(self.value, int) else round(self.value * total)
        if not 0 < count < total:
            what = "no head" if count < 1 else "all heads" if count == total else "more than all heads"
            raise ValueError(f"--random {self.text} prunes {what} of {total} ({count}); ask for 1 to {total - 1}")
        return count


def parse_amount(text: str) -> Amount:
    """Read ``60%`` or ``86``: how much is PRUNED, as in Table 1.

    Raises:
        ValueError: not in this form.
    """
    value = text.strip()
    try:
        if value.endswith("%"):
            return Amount(value, Fraction(value[:-1]) / 100)
        if value.isdecimal():
            return Amount(value, int(value))
    except (ValueError, ZeroDivisionError):
        pass
    raise ValueError(f"--random {text!r} is neither a percentage such as 60% nor a number of heads to prune such as 86")


def prune_random(
    mask: Mask, amount: Amount, groups: Iterable[Sequence[str]], seed: int, at_least_one: bool = False
) -> Mask:
    """Prune exactly this amount of the kept heads, drawn uniformly within each group of components.

    Args:
        groups: lists of components; each group is drawn separately.
        at_least_one: keep at least one head in every layer of these components; uniform over all such masks.

    Raises:
        ValueError: nothing or everything would be pruned, fewer heads than layers, or a negative seed.
    """
    numbers, chance = numbered(mask, seed), generator(seed)
    result = mask
    for components in groups:
        present = mask.kept(components)
        keep = len(present) - amount.of(len(present))
        result = _keep(result, components, keep, numbers, chance if at_least_one else None)
    return result


def keep_random(mask: Mask, counts: Mapping[str, int], seed: int, at_least_one: bool = False) -> Mask:
    """Keep exactly this many heads of each component, drawn uniformly within it (the triples of Table 3).

    Raises:
        ValueError: a component that the model does not have, more heads than remain, fewer heads than layers with
            ``at_least_one``, or a negative seed.
    """
    numbers, chance = numbered(mask, seed), generator(seed)
    result = mask
    for component, count in counts.items():
        if component not in mask.rows:
            raise ValueError(f"the model has no {component}; it has {', '.join(mask.rows)}")
        present = len(mask.kept([component]))
        if count > present:
            raise ValueError(f"{component}: cannot keep {count} heads, {present} are not pruned yet")
        result = _keep(result, [component], count, numbers, chance if at_least_one else None)
    return result


def keep_drawn(mask: Mask, count: int, seed: int) -> Mask:
    """Keep ``count`` of the kept heads, drawn uniformly: those that ``headprune mask --random`` keeps with this seed.

    Raises:
        ValueError: a negative seed.
    """
    return mask.keeping(lowest(mask.kept(), count, numbered(mask, seed)))


def numbered(mask: Mask, seed: int) -> dict[Part, float]:
    """Return a uniform random number for every part of a model, kept or pruned; heads do not depend on other parts.

    Raises:
        ValueError: a negative seed.
    """
    chance = generator(seed)
    return {part: chance.random() for part in all_heads(mask.shape, COMPONENTS)}


def lowest(parts: Sequence[Part], count: int, numbers: Mapping[Part, float]) -> list[Part]:
    """Choose the ``count`` parts with the lowest numbers, in their order."""
    chosen = set(sorted(parts, key=numbers.__getitem__)[:count])
    return [part for part in parts if part in chosen]


def _keep(
    mask: Mask, components: Sequence[str], count: int, numbers: Mapping[Part, float], chance: random.Random | None
) -> Mask:
    """Keep ``count`` parts; ``chance``: draw one at least in each layer with it."""
    if chance is None:
        return mask.keeping(lowest(mask.kept(components), count, numbers), components)
    layers = _layers(mask, components)
    with errors_of(f"--at-least-one, {'+'.join(components)}"):
        return mask.keeping(draw_from_each(layers, count, chance), components)


def _layers(mask: Mask, components: Sequence[str]) -> list[list[Part]]:
    """Return the kept heads of each layer.

    Raises:
        ValueError: a layer without kept heads.
    """
    layers = by_layer(mask.kept(components))
    for component in components:
        for layer in range(len(mask.rows.get(component, []))):
            if (component, layer) not in layers:
                raise ValueError(f"--at-least-one: {component} layer {layer} has no head left to keep")
    return list(layers.values())


def generator(seed: int) -> random.Random:
    """Return the random number generator for a seed.

    Raises:
        ValueError: a negative seed (Python treats -1 like 1).
    """
    if seed < 0:
        raise ValueError(f"--seed must be 0 or more, got {seed}")
    return random.Random(seed)


def draw_heads(heads: Sequence[Part], count: int, chance: random.Random) -> list[Part]:
    """Draw ``count`` of these heads without replacement; all sets are equally likely."""
    keys = [chance.random() for _ in heads]
    places = sorted(range(len(heads)), key=keys.__getitem__)[:count]
    return [heads[place] for place in sorted(places)]


def draw_from_each(layers: Sequence[Sequence[Part]], count: int, chance: random.Random) -> list[Part]:
    """Draw ``count`` heads with at least one from each layer; all such sets are equally likely.

    The number of heads from a layer is drawn first, in proportion to the number of sets with that many heads there.

    Raises:
        ValueError: fewer heads than layers, or more than are available.
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
        # There are ways[place][left] sets; draw one by its number, and find how many heads it has in this layer.
        number, here = int(Fraction(chance.random()) * ways[place][left]), 0
        while number >= 0:
            here += 1
            number -= comb(len(layer), here) * ways[place + 1][left - here] if here <= left else 0
        drawn += draw_heads(layer, here, chance)
        left -= here
    return drawn


def _ways(sizes: Sequence[int], count: int) -> list[list[int]]:
    """Entry [i][k]: the number of sets of k heads from layers i and up with at least one head per layer."""
    ways = [[1] + [0] * count]
    for size in reversed(sizes):
        after = ways[0]
        ways.insert(
            0, [sum(comb(size, c) * after[k - c] for c in range(1, min(size, k) + 1)) for k in range(count + 1)]
        )
    return ways
