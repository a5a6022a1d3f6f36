"""Tickets as large as a good one: drawn by chance, or from what did not survive (Prasanna et al. 2020, §4.2)."""

import random
from collections.abc import Iterable, Sequence

import torch

from fairseq_headprune.choosing.magnitude import Kept
from fairseq_headprune.choosing.random_heads import draw
from fairseq_headprune.parts import COMPONENTS, FFN, HEADS, Mask, Part

#: sizes are the same by kind of part
KINDS = (HEADS, FFN)


def random_ticket(start: Mask, good: Mask, chance: random.Random, groups: Iterable[Sequence[str]] = KINDS) -> Mask:
    """Draw as many parts of each group of components as the good ticket keeps, from all that the model has.

    Args:
        groups: heads and blocks; or each component by itself, to keep "only how many where".

    Raises:
        ValueError: the good ticket is larger than what there is to draw from.
    """
    return _ticket(start, [drawn(start.kept(group), len(good.kept(group)), chance) for group in groups])


def bad_ticket(start: Mask, good: Mask, chance: random.Random) -> Mask:
    """Draw as many heads and blocks as the good ticket keeps from those it does not, filled from its own at random."""
    chosen = []
    for group in KINDS:
        kept = set(good.kept(group))
        others = [part for part in start.kept(group) if part not in kept]
        first = drawn(others, min(len(kept), len(others)), chance)
        chosen.append(first + drawn(good.kept(group), len(kept) - len(first), chance))
    return _ticket(start, chosen)


def super_survivors(goods: Sequence[Mask]) -> Mask:
    """Return the parts that survive in every search."""
    first, *others = goods
    for other in others:
        first = first & other
    return Mask(first.rows)


def drawn(parts: Sequence[Part], count: int, chance: random.Random) -> list[Part]:
    """Draw ``count`` of these parts, each set with the same probability.

    Raises:
        ValueError: there are fewer.
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
    """Draw as many weights of each matrix as the good ticket keeps there, those that it does not keep first."""
    chance = torch.Generator().manual_seed(seed)
    return {
        name: _highest(torch.rand(kept.numel(), generator=chance) - kept.flatten().float(), kept)
        for name, kept in good.items()
    }


def _highest(keys: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    """Keep as many weights as ``kept`` does, those with the highest keys."""
    found = torch.zeros(len(keys), dtype=torch.bool)
    found[keys.argsort(descending=True, stable=True)[: int(kept.sum())]] = True
    return found.view_as(kept)
