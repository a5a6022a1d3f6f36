"""Models with fewer heads, derived in memory from one model, and the profile of their times."""

import copy
import statistics
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import torch
from torch import nn

from fairseq_headprune.choosing.per_layer import keep_per_layer
from fairseq_headprune.choosing.random_heads import parse_amount, prune_random
from fairseq_headprune.modules.attach import find_gates
from fairseq_headprune.modules.shrink import shrink
from fairseq_headprune.parts import HEADS, Mask, Shape
from fairseq_headprune.provenance import environment
from fairseq_headprune.session import Session
from fairseq_headprune.speed.measure import Side, conditions, measure, median_and_range
from fairseq_headprune.speed.profile import Cost, LayerGroup, Profile, layer_groups, module_costs

#: percentages of heads pruned in the random masks that check the prediction
CHECKED = (25, 50, 75, 90)

_WHOLE = "whole"


def with_heads(model: nn.Module, mask: Mask) -> nn.Module:
    """Return the slim model for a mask; it shares all weights except those of modules that lose heads."""
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    result = copy.deepcopy(model, shared)
    gates = find_gates(result)
    shrink(gates, gates.layout().under(mask))
    return result


def slim_session(session: Session, mask: Mask) -> Session:
    """Return a session whose model has only the heads that a mask keeps, in memory."""
    slim = copy.copy(session)
    slim.model = with_heads(session.model, mask)
    slim.gates = find_gates(slim.model)
    return slim


def first_heads(full: Mask, group: LayerGroup, heads: int) -> Mask:
    """Return the mask that keeps the first ``heads`` heads of each layer of a group; which ones does not matter."""
    counts = [heads if layer in group.layers else n for layer, n in enumerate(_counts(full)[group.component])]
    return keep_per_layer(full, {group.component: counts})


def random_masks(full: Mask) -> dict[str, Mask]:
    """Return masks that prune ``CHECKED`` percent of all heads at random, by name."""
    total = len(full.kept())
    shares = [share for share in CHECKED if 0 < round(Fraction(share, 100) * total) < total]
    return {
        f"{share}% pruned": prune_random(full, parse_amount(f"{share}%"), [list(full.shape)], 1) for share in shares
    }


def profile_session(
    session: Session, split: str, batch_size: int, batches: int, beam: int, length: int, rounds: int, each_layer: bool
) -> Profile:
    """Time the model with fewer heads in each component (or layer), and with whole masks to check the prediction.

    In each round, all models are timed, in rotating order. The model's own mask, if any, is ignored.

    Raises:
        ValueError: the split has too few sentences.
    """
    found = len(session.dataset(split))
    if found < batch_size * batches:
        raise ValueError(
            f"{batches} batches of {batch_size} need {batch_size * batches} sentences, {split} has {found}: give less "
            "to --batches or --batch-size"
        )
    session.gates.set_mask(None)
    full = session.gates.full().only(HEADS)
    parts = layer_groups(_counts(full), each_layer)
    masks = {_WHOLE: full}
    for number, group in enumerate(parts):
        masks |= {f"{number} {heads}": first_heads(full, group, heads) for heads in group.points()[:-1]}
    checks = random_masks(full)
    sides = {
        name: Side(slim_session(session, mask), split, length, [beam]) for name, mask in {**masks, **checks}.items()
    }
    rows = measure(sides, batch_size * batches, [batch_size], [beam], rounds)
    times = {row["model"]: [seconds / batches for seconds in row["seconds"]] for row in rows}
    profile = _profile(full, parts, times)
    profile.checks = [_check(profile, name, mask, times) for name, mask in checks.items()]
    profile.settings = {
        **conditions(session),
        "gpu": torch.cuda.get_device_name() if session.device.type == "cuda" else None,
        "batch_size": batch_size,
        "beam": beam,
        "length": length,
        "batches": batches,
        "rounds": rounds,
    }
    profile.checkpoint, profile.data = session.checkpoint, session.data(split)
    profile.environment = environment(session.args.headprune_command)
    return profile


def _counts(mask: Mask) -> Shape:
    return {component: [sum(row) for row in rows] for component, rows in mask.rows.items()}


def _profile(full: Mask, parts: Sequence[LayerGroup], times: dict[str, list[float]]) -> Profile:
    """Build the cost table from the seconds per batch of every round."""
    whole = times[_WHOLE]
    costs: dict[str, list] = {c: [[(0, 0.0)] for _ in rows] for c, rows in full.rows.items()}
    measured: list[dict[str, Any]] = [{"model": _WHOLE, "seconds": whole, "median": statistics.median(whole)}]
    for number, group in enumerate(parts):
        mine = {heads: times[f"{number} {heads}"] for heads in group.points()[:-1]} | {group.heads: whole}
        found = module_costs(mine, len(group.layers))
        for layer in group.layers:
            costs[group.component][layer] = [(cost.heads, cost.seconds) for cost in found]
        measured += [_row(group, cost, mine[cost.heads]) for cost in found]
    modules = sum(row[-1][1] for rows in costs.values() for row in rows)
    return Profile(full.shape, statistics.median(whole) - modules, costs, measured=measured)


def _row(group: LayerGroup, cost: Cost, times: list[float]) -> dict[str, Any]:
    return {
        "component": group.component,
        "layers": list(group.layers),
        "heads": cost.heads,
        "seconds": times,
        "median": statistics.median(times),
        "cost": {"seconds": cost.seconds, "min": cost.low, "max": cost.high},
    }


def _check(profile: Profile, name: str, mask: Mask, times: dict[str, list[float]]) -> dict[str, Any]:
    measured, predicted = median_and_range(times[name]), profile.seconds(mask)
    return {
        "mask": name,
        "heads": _counts(mask),
        "predicted": predicted,
        "measured": measured,
        "error": predicted / measured["median"] - 1,
    }
