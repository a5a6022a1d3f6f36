"""What a document shows as pictures: data of figures that are drawn only, one class a figure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: (update, value), by update
Points = Sequence[tuple[int, float]]


@dataclass(frozen=True)
class AttentionMaps:
    """The attention of every head of one component for one sentence; drawn only.

    Attributes:
        name: the figure is written to ``figures/NAME.png`` and ``.svg``.
        caption: title of the figure.
        queries, keys: the tokens down and across.
        layers: one list per layer; an entry per head by original index: the map (tgt, src), or None if it is pruned.
    """

    name: str
    caption: str
    queries: list[str]
    keys: list[str]
    layers: list[list[list[list[float]] | None]]


@dataclass(frozen=True)
class Shares:
    """Bars that are divided into the same kinds of parts; drawn only.

    Attributes:
        name, caption: see :class:`AttentionMaps`.
        kinds: names of the parts.
        bars: label -> the share of each kind, from 0 to 1.
    """

    name: str
    caption: str
    kinds: Sequence[str]
    bars: dict[str, list[float]]


@dataclass(frozen=True)
class TicketScores:
    """Mean scores of lottery tickets over seeds, a plot for each task; drawn only.

    Attributes:
        name, caption: see :class:`AttentionMaps`.
        tasks: list of ``{"task", "measure", "points", "line", "baseline"}``; a point has ``ticket``, ``how``, ``mean``,
            ``sd`` and ``n``; ``line`` and ``baseline`` (or None) are scores.
    """

    name: str
    caption: str
    tasks: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Distribution:
    """Histograms of several groups of numbers; drawn only.

    Attributes:
        name, caption: see :class:`AttentionMaps`.
        label: what the numbers are.
        values: group -> its numbers.
    """

    name: str
    caption: str
    label: str
    values: Mapping[str, list[float]]


@dataclass(frozen=True)
class GateCurves:
    """A training with learned gates, by update (Li et al. 2021, Figures 7 and 8); drawn only.

    Attributes:
        name, caption: see :class:`AttentionMaps`.
        measure: name of the score.
        overlap: percentage of the present set of heads that is in the final one.
        score: validation score; may be empty.
        temperature: falling; empty for none.
        kept: heads kept, in percent of those with a gate; drawn where it changes.
        sampled: percentage of the updates after cooling in which the sampled set was the learned one; may be empty.
    """

    name: str
    caption: str
    measure: str
    overlap: Points
    score: Points = ()
    temperature: Points = ()
    kept: Points = ()
    sampled: Points = ()


@dataclass(frozen=True)
class HeadsByPenalty:
    """Heads that L0 kept against lambda (Li et al. 2021, Figure 2); drawn only.

    Attributes:
        name: see :class:`AttentionMaps`.
        caption: what the figure shows, told where it cannot be seen.
        points: (lambda, heads kept) of each training.
        total: number of heads with a gate.
    """

    name: str
    caption: str
    points: Sequence[tuple[float, float]]
    total: int


@dataclass(frozen=True)
class HeadsByLayer:
    """Kept heads by layer (Li et al. 2021, Figure 6); drawn only.

    Attributes:
        name, caption: see :class:`AttentionMaps`.
        counts: number of heads kept -> component -> number of them in each layer (the mean, if several trainings kept
            the same number).
    """

    name: str
    caption: str
    counts: Mapping[int, Mapping[str, Sequence[float]]]


Picture = AttentionMaps | Shares | TicketScores | Distribution | GateCurves | HeadsByPenalty | HeadsByLayer
