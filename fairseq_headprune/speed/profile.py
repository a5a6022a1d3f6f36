"""The profile file: decoding time on one machine as a function of the heads of every layer."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np

from fairseq_headprune.files import PathLike, check_format, read_json, write_json
from fairseq_headprune.parts import HEADS, Mask, Shape, check_component

FORMAT = "headprune.profile/1"


@dataclass
class Profile:
    """An additive model of time, and the measurements it is based on; all times are in seconds per batch.

    Attributes:
        shape: original number of heads of each layer.
        rest: seconds of everything except attention modules.
        costs: component -> one list per layer of (heads, seconds), from 0 heads up to all that the model has.
        settings: device, precision, threads, batch size, beam, length and so on.
        measured: one row per timed model; ``checks``: whole masks with predicted and measured times.
        checkpoint, data, environment: what was measured, and on which system.
    """

    shape: Shape
    rest: float
    costs: dict[str, list[list[tuple[int, float]]]]
    settings: dict = field(default_factory=dict)
    measured: list = field(default_factory=list)
    checks: list = field(default_factory=list)
    checkpoint: dict = field(default_factory=dict)
    data: dict = field(default_factory=dict)
    environment: dict = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the entries.

        Raises:
            KeyError: an unknown component.
            ValueError: costs that do not fit the shape, are not finite, or do not start at 0 heads.
        """
        if not _is_number(self.rest):
            raise ValueError(f'"rest" is {self.rest!r}, not a finite number')
        for component, counts in self.shape.items():
            rows = self.costs.get(check_component(component), [])
            if len(rows) != len(counts):
                raise ValueError(f"{component}: costs of {len(rows)} layers, the shape has {len(counts)}")
            self.costs[component] = [_points(f"{component} layer {i}", row) for i, row in enumerate(rows)]

    def seconds(self, mask: Mask) -> float:
        """Return the predicted time of the slim model for a mask.

        Raises:
            ValueError: the mask does not fit, or keeps more heads than the profiled model has.
        """
        mask = mask.only(HEADS)
        mask.check_shape(self.shape, "the profiled model")
        total = self.rest
        for component, rows in mask.rows.items():
            for layer, row in enumerate(rows):
                try:
                    total += interpolate(self.costs[component][layer], sum(row))
                except ValueError as error:
                    raise ValueError(f"{component} layer {layer}: the mask keeps {error}") from None
        return total

    def whole(self) -> float:
        """Return the time of the profiled model itself."""
        return self.rest + sum(row[-1][1] for rows in self.costs.values() for row in rows)

    def worst_error(self) -> float | None:
        """Return the largest relative error over the masks in ``checks``, None if there are none."""
        return max((abs(check["error"]) for check in self.checks), default=None)

    def to_dict(self) -> dict[str, Any]:
        """Return the profile file's content."""
        return {"format": FORMAT, "unit": "seconds a batch", **asdict(self)}

    @classmethod
    def from_dict(cls, value: Any, name: str = "profile") -> "Profile":
        """Read a profile file's content.

        Raises:
            ValueError, KeyError: not a profile, another version, or invalid entries.
        """
        check_format(value, FORMAT, "profile", "a profile file", name)
        known = {key: value[key] for key in cls.__dataclass_fields__ if key in value}
        if not all(isinstance(known.get(key), Mapping) for key in ("shape", "costs")):
            raise ValueError(f'{name}: "shape" and "costs" must hold one list a component')
        try:
            return cls(**{"rest": None, **known})
        except (ValueError, KeyError) as error:
            raise type(error)(f"{name}: {error.args[0]}") from error

    def save(self, path: PathLike) -> None:
        """Write the profile file, atomically."""
        write_json(path, self.to_dict())

    @classmethod
    def load(cls, path: PathLike) -> "Profile":
        """Read a profile file.

        Raises:
            FileNotFoundError, ValueError, KeyError: as for :meth:`from_dict`.
        """
        return cls.from_dict(read_json(path), str(path))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _points(where: str, row: Any) -> list[tuple[int, float]]:
    try:
        points = [(heads, seconds) for heads, seconds in row]
        counts = [heads for heads, _ in points]
        good = all(type(n) is int for n in counts) and all(_is_number(seconds) for _, seconds in points)
        if good and counts and counts[0] == 0 and counts == sorted(set(counts)):
            return points
    except (TypeError, ValueError):
        pass
    raise ValueError(f"{where}: costs are pairs of heads, ascending from 0, and seconds; found {row!r}")


class LayerGroup(NamedTuple):
    """Layers of one component that have equally many heads, and therefore the same cost."""

    component: str
    layers: tuple[int, ...]
    heads: int

    def points(self) -> list[int]:
        """Return the numbers of heads that are measured: 0, 1, half, all."""
        return sorted({0, 1, self.heads // 2, self.heads})


class Cost(NamedTuple):
    """Extra seconds of one attention module with this many heads over none: median and range over rounds."""

    heads: int
    seconds: float
    low: float
    high: float


def layer_groups(counts: Shape, each_layer: bool = False) -> list[LayerGroup]:
    """Group the layers of a model by head count; layers without heads are omitted.

    Args:
        each_layer: use one group per layer, which is slower to measure and noisier.
    """
    found: dict[tuple, list[int]] = {}
    for component in HEADS:
        for layer, heads in enumerate(counts.get(component, [])):
            if heads:
                found.setdefault((component, heads, layer if each_layer else None), []).append(layer)
    return [LayerGroup(component, tuple(layers), heads) for (component, heads, _), layers in found.items()]


def module_costs(times: Mapping[int, Sequence[float]], layers: int) -> list[Cost]:
    """Return the cost of one module for each measured number of heads, in ascending order.

    Differences are taken within a round, so that a slowdown of a whole round cancels. Costs are made non-decreasing in
    the number of heads: neighbours that violate this through noise are averaged (isotonic regression).

    Args:
        times: total number of heads in all ``layers`` modules -> seconds of each round; must include 0.
    """
    measured = []
    for heads in sorted(times):
        saved = [(mine - none) / layers for mine, none in zip(times[heads], times[0], strict=True)]
        measured.append(Cost(heads, statistics.median(saved), min(saved), max(saved)))
    smooth = monotone([cost.seconds for cost in measured])
    return [cost._replace(seconds=value) for cost, value in zip(measured, smooth, strict=True)]


def monotone(values: Sequence[float]) -> list[float]:
    """Return the nearest non-decreasing values (least squares), keeping the first one, which is 0.

    With the lower bound 0, the solution is the unbounded one, clipped at 0.
    """
    from scipy.optimize import isotonic_regression  # not for verbs that only read profiles

    return [0.0, *isotonic_regression(values[1:]).x.clip(min=0.0).tolist()]


def interpolate(points: Sequence[tuple[int, float]], heads: int) -> float:
    """Return the cost of this many heads, interpolated linearly between the measured points.

    Raises:
        ValueError: more heads than were measured.
    """
    counts, seconds = zip(*points, strict=True)
    if heads > counts[-1]:
        raise ValueError(f"{heads} heads, where {counts[-1]} were measured at most")
    return float(np.interp(heads, counts, seconds))
