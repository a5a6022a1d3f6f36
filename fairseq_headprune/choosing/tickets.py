"""Tickets of the size of a good one: random, or from the parts that did not survive (Prasanna et al. 2020, §4.2)."""

import random
from collections.abc import Iterable, Sequence

import torch

from fairseq_headprune.choosing.magnitude import Kept
from fairseq_headprune.choosing.random_heads import draw
from fairseq_headprune.parts import COMPONENTS, FFN, HEADS, Mask, Part

#: tickets have equal sizes within each of these groups
KINDS = (HEADS, FFN)


def random_ticket(start: Mask, good: Mask, chance: random.Random, groups: Iterable[Sequence[str]] = KINDS) -> Mask:
    """Draw as many parts of each group of components as the good ticket keeps, from all parts of the model.

    Args:
        groups: heads and blocks; or one group per component, to preserve how many parts each component keeps.

    Raises:
        ValueError: the good ticket has more parts than can be drawn.
    """
    return _ticket(start, [drawn(start.kept(group), len(good.kept(group)), chance) for group in groups])


def bad_ticket(start: Mask, good: Mask, chance: random.Random) -> Mask:
    """Draw as many heads and blocks as the good ticket keeps: first those it prunes, then random ones of its own."""
    chosen = []
    for group in KINDS:
        kept = set(good.kept(group))
        others = [part for part in start.kept(group) if part not in kept]
        first = drawn(others, min(len(kept), len(others)), chance)
        chosen.append(first + drawn(good.kept(group), len(kept) - len(first), chance))
    return _ticket(start, chosen)


def super_survivors(goods: Sequence[Mask]) -> Mask:
    """Return the mask of the parts that survive in every search."""
    first, *others = goods
    for other in others:
        first = first & other
    return Mask(first.rows)


def drawn(parts: Sequence[Part], count: int, chance: random.Random) -> list[Part]:
    """Draw ``count`` of these parts; all sets are equally likely.

    Raises:
        ValueError: there are fewer parts than that.
    """
    if count > len(parts):
        raise ValueError(f"a ticket of {count} parts is larger than the {len(parts)} there are to draw from")
    return draw(parts, count, chance)


def _ticket(start: Mask, chosen: Iterable[Iterable[Part]]) -> Mask:
    kept = {part for parts in chosen for part in parts}
    return Mask(start.rows).without(part for part in start.kept(COMPONENTS) if part not in kept)


def random_weights(good: Kept, seed: int) -> Kept:
    """Draw as many weights of each matrix as the good ticket keeps there."""
    chance = torch.Generator().manual_seed(seed)
    return {name: _highest(torch.rand(kept.numel(), generator=chance), kept) for name, kept in good.items()}


def bad_weights(good: Kept, seed: int) -> Kept:
    """Draw as many weights of each matrix as the good ticket keeps there, preferring those that it prunes."""
    chance = torch.Generator().manual_seed(seed)
    return {
        name: _highest(torch.rand(kept.numel(), generator=chance) - kept.flatten().float(), kept)
        for name, kept in good.items()
    }


def _highest(keys: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    """Return a mask of the weights with the highest keys, as many as ``kept`` keeps."""
    found = torch.zeros(len(keys), dtype=torch.bool)
    found[keys.argsort(descending=True, stable=True)[: int(kept.sum())]] = True
    return found.view_as(kept)
