"""The search for a winning ticket: what is pruned next, and when it ends (Prasanna et al. 2020, §3.2 and §3.3)."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

#: mode of a structured search -> its phases; a phase prunes heads, blocks, or both in each step
PHASES = {"heads": ("heads",), "blocks": ("blocks",), "both": ("both", "heads", "blocks")}

#: what a share of weights is taken of
SHARES_OF = ("original", "remaining")


@dataclass(frozen=True)
class Move:
    """One step that is tried: how many heads and blocks are pruned, in which phase."""

    phase: str
    heads: int
    blocks: int


class Search:
    """A structured search: ask for a :meth:`move`, try it, :meth:`tell` whether the score held; so on until None.

    A step prunes a share of all heads, or one block, or both. A joint step that fails ends its phase; of heads alone
    half as many are tried, down to one. (The paper prunes "for as long as the model retains" the score and does not
    say how finely; "as many parts as we can" is our reading.)

    Args:
        mode: one of :data:`PHASES`.
        heads, blocks: how many there are to prune.
        share: of these heads, pruned in a step: rounded, at least one head.
    """

    def __init__(self, mode: str, heads: int, blocks: int, share: Fraction = Fraction(1, 10)) -> None:
        self._phases = list(PHASES[mode])
        self._heads, self._blocks = heads, blocks
        self._size = max(1, round(share * heads))

    def move(self) -> Move | None:
        """Return the step to try now; None if the search has ended."""
        while self._phases:
            phase = self._phases[0]
            heads = 0 if phase == "blocks" else min(self._size, self._heads)
            blocks = 0 if phase == "heads" else min(1, self._blocks)
            if (heads or phase == "blocks") and (blocks or phase == "heads"):
                return Move(phase, heads, blocks)
            self._phases.pop(0)
        return None

    def tell(self, held: bool) -> None:
        """Say whether the score held after the present move."""
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
    """Yield how many of ``total`` weights are pruned after each step, until none is left to prune.

    Args:
        share: pruned in a step, of the ``original`` weights or of the ``remaining`` ones. A share of the remaining ones
            is rounded in each step, as torch.nn.utils.prune does when it is called again and again.
    """
    if of == "original":
        yield from sorted({min(total, round(step * share * total)) for step in range(1, ceil(1 / share) + 1)} - {0})
        return
    pruned = 0
    while more := round(share * (total - pruned)):
        pruned += more
        yield pruned
