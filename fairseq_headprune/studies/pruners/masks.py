"""The masks of every number of heads, for each method."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fairseq_headprune.choosing.random_heads import parse_amount, prune_random
from fairseq_headprune.files import PathLike
from fairseq_headprune.importance.settings import ScoreSettings
from fairseq_headprune.parts import HEADS, Mask, Shape
from fairseq_headprune.pruning import next_heads


@dataclass(frozen=True)
class MadeMask:
    """A mask, and how it came about.

    Attributes:
        facts: JSON values that belong to the result.
    """

    mask: Mask
    facts: dict[str, Any]


def random_mask(shape: Shape, count: int, seed: int) -> Mask:
    """Keep ``count`` heads, the ones that ``headprune mask --random`` keeps with this seed and number.

    Raises:
        ValueError: fewer than 0 heads, or more than there are.
    """
    full = Mask.full(shape)
    total = len(full.kept())
    if not 0 <= count <= total:
        raise ValueError(f"cannot keep {count} heads of {total}: give 0 to {total}")
    if count in (0, total):
        mask = full.without(full.kept()[count:])
    else:
        mask = prune_random(full, parse_amount(str(total - count)), [list(shape)], seed)
    mask.source = {"random": {"heads": count, "seed": seed}}
    return mask


def importance_masks(session: Any, counts: Sequence[int], settings: ScoreSettings, step: int) -> dict[int, MadeMask]:
    """Remove the least important heads of a trained model, estimating anew after every ``step`` of them (§4.2.1).

    One descent serves all numbers of heads. What is kept does not depend on which numbers are asked for.

    Returns:
        number of heads kept -> mask; the facts tell how many estimates it took from the whole model on, and seconds.

    Raises:
        ValueError: more heads than there are.
    """
    from fairseq_headprune.studies.estimates import estimate_scores  # torch, as late as possible

    start = mask = session.gates.mask()
    total, components = len(start.kept()), list(start.only(HEADS).rows)
    if not 0 <= min(counts) <= max(counts) <= total:
        raise ValueError(f"cannot keep {max(counts)} heads of {total}: give 0 to {total}")
    made: dict[int, MadeMask] = {}
    began = time.perf_counter()
    for number, present in enumerate(range(total, min(counts), -step), 1):
        with session.gates.masked(mask):
            scores = estimate_scores(session, settings)
        seconds = round(time.perf_counter() - began, 1)
        facts = {"estimates": number, "scoring_seconds": seconds}
        for count in (c for c in counts if present - step <= c < present):
            made[count] = MadeMask(mask.without(next_heads(mask, scores, components, start, total - count)), facts)
        mask = mask.without(next_heads(mask, scores, components, start, min(total, total - present + step)))
    if total in counts:
        made[total] = MadeMask(start, {"estimates": 0, "scoring_seconds": 0.0})
    return made


def learned_mask(checkpoint: PathLike, count: int | None) -> MadeMask:
    """Return the mask of a checkpoint's learned gates, corrected to ``count`` heads; how many were learned is a fact.

    Raises:
        ValueError: no learned gates, or a number out of range.
    """
    from fairseq_headprune.checkpoints import read_state, stored_layout
    from fairseq_headprune.gates.saved import choose, saved_gates

    state = read_state(checkpoint)
    gates = saved_gates(state)
    if gates is None:
        raise ValueError(f"{checkpoint} holds no learned gates")
    choice = choose(gates, count)
    changed = len(choice.included) + len(choice.excluded)
    return MadeMask(
        stored_layout(state).mask().without(choice.dropped), {"learned": choice.learned, "changed": changed}
    )
