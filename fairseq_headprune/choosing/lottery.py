"""The lottery (Prasanna et al. 2020): what a search prunes next (§3), and tickets of the size of a good one (§4.2)."""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from fairseq_headprune.choosing.random_heads import draw_heads
from fairseq_headprune.parts import COMPONENTS, FFN, HEADS, Mask, Part

#: mode of a structured search -> its phases; each step of a phase prunes heads, blocks, or both
PHASES = {"heads": ("heads",), "blocks": ("blocks",), "both": ("both", "heads", "blocks")}

#: modes of a search: the structured ones, and single weights
MODES = (*PHASES, "magnitude")

#: what a structured search prunes -> its components; tickets have equal sizes within each of these groups
GROUPS = {"heads": HEADS, "blocks": FFN}

#: the base of a share of weights
SHARES_OF = ("original", "remaining")


@dataclass(frozen=True)
class Move:
    """One pruning step to try: how many heads and blocks to prune, and in which phase."""

    phase: str
    heads: int
    blocks: int


class StructuredSearch:
    """A structured search: try each :meth:`move`, :meth:`tell` whether the score held; repeat until None.

    A step prunes a share of all heads, one block, or both. A failed joint step ends the joint phase; a failed step of
    heads alone is retried with half as many heads, down to one. (The paper prunes "for as long as the model retains"
    the score and does not give the step size; pruning "as many parts as we can" is our interpretation.)

    Args:
        mode: one of :data:`PHASES`.
        heads, blocks: how many can be pruned.
        share: share of these heads pruned per step, rounded to at least one head.
    """

    def __init__(self, mode: str, heads: int, blocks: int, share: Fraction = Fraction(1, 10)) -> None:
        self._phases = list(PHASES[mode])
        self._heads, self._blocks = heads, blocks
        self._size = max(1, round(share * heads))

    def move(self) -> Move | None:
        """Return the next step to try; None if the search has ended."""
        while self._phases:
            phase = self._phases[0]
            heads = 0 if phase == "blocks" else min(self._size, self._heads)
            blocks = 0 if phase == "heads" else min(1, self._blocks)
            if (heads or phase == "blocks") and (blocks or phase == "heads"):
                return Move(phase, heads, blocks)
            self._phases.pop(0)
        return None

    def tell(self, held: bool) -> None:
        """Report whether the score held after the current step."""
        move = self.move()
        if move is None:
            raise RuntimeError("the search has ended: there is no step to tell of")
        if held:
            self._heads, self._blocks = self._heads - move.heads, self._blocks - move.blocks
        elif move.phase == "heads" and move.heads > 1:
            self._size = move.heads // 2
        else:
            self._phases.pop(0)


def weights_pruned(total: int, share: Fraction, of: str) -> Iterator[int]:
    """Yield how many of ``total`` weights are pruned after each step, until all are pruned.

    Args:
        share: share pruned per step, of the ``original`` or of the ``remaining`` weights. A share of the remaining
            weights is rounded in each step, as in repeated calls of torch.nn.utils.prune.
    """
    if of == "original":
        yield from sorted({min(total, round(step * share * total)) for step in range(1, ceil(1 / share) + 1)} - {0})
        return
    pruned = 0
    while more := round(share * (total - pruned)):
        pruned += more
        yield pruned


def random_ticket(
    start: Mask, good: Mask, chance: random.Random, groups: Iterable[Sequence[str]] = GROUPS.values()
) -> Mask:
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
    for group in GROUPS.values():
        kept = set(good.kept(group))
        others = [part for part in start.kept(group) if part not in kept]
        first = drawn(others, min(len(kept), len(others)), chance)
        chosen.append(first + drawn(good.kept(group), len(kept) - len(first), chance))
    return _ticket(start, chosen)


def parts_kept(mask: Mask) -> dict[str, int]:
    """Return how many heads and blocks a mask keeps."""
    return {what: len(mask.kept(group)) for what, group in GROUPS.items()}


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
    return draw_heads(parts, count, chance)


def _ticket(start: Mask, chosen: Iterable[Iterable[Part]]) -> Mask:
    return Mask(start.rows).keeping((part for parts in chosen for part in parts), COMPONENTS)
