"""What an attention module costs by its number of heads, from the times of models that have fewer heads.

The model of time is additive: the rest, plus one cost for every attention module. Nothing is proportional to heads: the
first head of a module brings projections, a cache and kernel launches.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fairseq_headprune.parts import HEADS, Shape


class Group(NamedTuple):
    """Layers of one component that have equally many heads, and so cost the same."""

    component: str
    layers: tuple[int, ...]
    heads: int

    def points(self) -> list[int]:
        """Return the numbers of heads that are measured: 0, 1, half, all."""
        return sorted({0, 1, self.heads // 2, self.heads})


class Cost(NamedTuple):
    """Seconds of one attention module with so many heads over those of one without any: median and range of rounds."""

    heads: int
    seconds: float
    low: float
    high: float


def groups(counts: Shape, each_layer: bool = False) -> list[Group]:
    """Return the groups of a model with so many heads in each layer; layers without heads are in none.

    Args:
        each_layer: one group a layer: slower to measure, and noisier.
    """
    found: dict[tuple, list[int]] = {}
    for component in HEADS:
        for layer, heads in enumerate(counts.get(component, [])):
            if heads:
                found.setdefault((component, heads, layer if each_layer else None), []).append(layer)
    return [Group(component, tuple(layers), heads) for (component, heads, _), layers in found.items()]


def module_costs(times: Mapping[int, Sequence[float]], layers: int) -> list[Cost]:
    """Return the cost of one module for each measured number of heads, ascending.

    Differences are taken within a round, so that what slows a whole round cancels. Costs never fall when heads are
    added: where noise says otherwise, neighbours get their mean (isotonic regression).

    Args:
        times: number of heads in all of ``layers`` modules -> seconds of each round; 0 must be among them.
    """
    measured = []
    for heads in sorted(times):
        saved = [(mine - none) / layers for mine, none in zip(times[heads], times[0], strict=True)]
        measured.append(Cost(heads, statistics.median(saved), min(saved), max(saved)))
    smooth = monotone([cost.seconds for cost in measured])
    return [cost._replace(seconds=value) for cost, value in zip(measured, smooth, strict=True)]


def monotone(values: Sequence[float]) -> list[float]:
    """Return the nearest values (least squares) that do not fall, the first of which is 0 as given.

    Pools adjacent violators; bounded from below by 0 the solution is the unbounded one, clipped.
    """
    pools: list[list[float]] = []
    for value in values[1:]:
        pools.append([value])
        while len(pools) > 1 and statistics.mean(pools[-2]) > statistics.mean(pools[-1]):
            pools[-2:] = [pools[-2] + pools[-1]]
    return [0.0] + [max(0.0, statistics.mean(pool)) for pool in pools for _ in pool]


def interpolate(points: Sequence[tuple[int, float]], heads: int) -> float:
    """Return the cost of so many heads, on the straight line between its measured neighbours.

    Raises:
        ValueError: more heads than were measured.
    """
    for (low, before), (high, after) in zip(points, points[1:], strict=False):
        if low <= heads <= high:
            return before + (after - before) * (heads - low) / (high - low)
    if heads == points[0][0]:
        return points[0][1]
    raise ValueError(f"{heads} heads, where {points[-1][0]} were measured at most")
