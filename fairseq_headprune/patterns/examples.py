"""Attention maps of known patterns (those of Kovaleva et al. 2019): made up, or annotated by hand."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_headprune.files import PathLike, parse_json, read_lines

#: to the neighbouring tokens, to few tokens, to both, evenly within a segment, and everything else
PATTERNS = ("diagonal", "vertical", "vertical+diagonal", "block", "heterogeneous")

#: numbers of tokens of made-up maps, and the share of a row's weight that is on its pattern (more for blocks)
LENGTHS, SHARE = (8, 48), (0.5, 0.95)

#: standard deviation of the logarithm of a column's norm in made-up norm-weighted maps
NORM_SD = 0.35

#: rows and columns of a map as the network sees it
SIZE = 32

#: share of the annotated maps of each pattern that the classifier is tested with
_HELD_OUT = 0.25


def canvas(maps: Tensor) -> Tensor:
    """Scale maps of one size, (n, tgt, src), to (n, 32, 32) by averaging, with maximum 1; a map of zeros stays so."""
    small = F.adaptive_avg_pool2d(maps.float()[:, None], SIZE)[:, 0]
    return small / small.amax(dim=(1, 2), keepdim=True).clamp(min=1e-12)


@dataclass(frozen=True)
class Labelled:
    """Attention maps with their patterns.

    Attributes:
        maps: (n, 32, 32).
        labels: positions in :data:`PATTERNS`.
        forms: where each comes from: the component whose maps it imitates, or ``annotated``.
    """

    maps: Tensor
    labels: list[int]
    forms: list[str]

    @classmethod
    def of(cls, entries: Iterable[tuple[Tensor, int, str]]) -> "Labelled":
        """Collect (map of any size, label, form)."""
        maps, labels, forms = zip(*entries, strict=True)
        return cls(torch.cat([canvas(found[None]) for found in maps]), list(labels), list(forms))

    def of_form(self, form: str) -> "Labelled":
        """Return the maps of one form."""
        places = [place for place, its in enumerate(self.forms) if its == form]
        return Labelled(self.maps[places], [self.labels[place] for place in places], [form] * len(places))


def made_up(components: Sequence[str], normed: bool, count: int, seed: int) -> Labelled:
    """Make up ``count`` maps of each pattern for each component."""
    chance = torch.Generator().manual_seed(seed)
    return Labelled.of(
        (made_up_map(pattern, component, normed, chance), label, component)
        for component in components
        for label, pattern in enumerate(PATTERNS)
        for _ in range(count)
    )


def read_annotated(path: PathLike, normed: bool) -> list[tuple[Tensor, int]]:
    """Read the raw or the norm-weighted maps of a file of annotated maps.

    The file has a JSON object a line: ``{"pattern": "diagonal", "normed": false, "map": [[0.9, 0.1], …]}``, rows are
    queries; ``normed`` may be left out for raw maps. Maps may have any size from 2 x 2 on.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a line is not of this form.
    """
    found = []
    for number, line in enumerate(read_lines(path), 1):
        if line.strip():
            name = f"{path}, line {number}"
            entry = parse_json(line, name)
            label, map_ = _checked(entry, name)
            if bool(entry.get("normed")) == normed:
                found.append((map_, label))
    return found


def divided(annotated: Sequence[tuple[Tensor, int]], path: PathLike, seed: int) -> tuple[Labelled, Labelled]:
    """Divide annotated maps by chance into those to train on and those held out, a quarter of each pattern.

    Raises:
        ValueError: a pattern has only one map.
    """
    chance = torch.Generator().manual_seed(seed)
    sides: tuple[list, list] = ([], [])
    for label, pattern in enumerate(PATTERNS):
        mine = [(map_, label, "annotated") for map_, its in annotated if its == label]
        if len(mine) == 1:
            raise ValueError(f"{path}: one map of the pattern {pattern}; give two or more, since a quarter is held out")
        order = torch.randperm(len(mine), generator=chance).tolist()
        held = max(1, round(_HELD_OUT * len(mine))) if mine else 0
        for place, index in enumerate(order):
            sides[place < held].append(mine[index])
    return Labelled.of(sides[0]), Labelled.of(sides[1])


def _checked(entry: Any, name: str) -> tuple[int, Tensor]:
    if not isinstance(entry, dict) or entry.get("pattern") not in PATTERNS:
        raise ValueError(f"{name}: give a pattern of {', '.join(PATTERNS)}")
    rows: Any = entry.get("map")
    lengths = {len(row) if isinstance(row, list) else 0 for row in rows} if isinstance(rows, list) and rows else {0}
    if len(lengths) > 1 or min(lengths) < 2 or len(rows) < 2:
        raise ValueError(f"{name}: a map is a list of two or more rows, all of the same length of 2 or more")
    if any(
        isinstance(x, bool) or not isinstance(x, (int, float)) or not 0 <= x < float("inf") for r in rows for x in r
    ):
        raise ValueError(f"{name}: the weights of a map are finite numbers of 0 or more")
    return PATTERNS.index(entry["pattern"]), torch.tensor(rows, dtype=torch.float)


def made_up_map(pattern: str, component: str, normed: bool, chance: torch.Generator) -> Tensor:
    """Draw an attention map of a pattern, (tgt, src), of 8 to 48 tokens a side.

    Args:
        component: ``dec_self`` gives a causal map, ``enc_dec`` one of two lengths, ``enc_self`` a square one.
        normed: scale each column by a log-normal factor, as the norms of the transformed inputs do; otherwise each row
            sums to 1.

    Raises:
        KeyError: no such pattern.
    """
    if pattern not in PATTERNS:
        raise KeyError(f"no attention pattern {pattern!r}; patterns are {', '.join(PATTERNS)}")
    source = _whole(*LENGTHS, chance)
    target = min(max(LENGTHS[0], round(source * _real(0.7, 1.4, chance))), LENGTHS[1])
    seen = torch.ones(target if component == "enc_dec" else source, source)
    seen = seen.tril() if component == "dec_self" else seen
    while True:
        found = _of(pattern, seen, chance)
        # A heterogeneous map that is by chance much like a diagonal or a vertical one is drawn again.
        if pattern != "heterogeneous" or max(band_excess(found), column_excess(found)) < 0.3:
            break
    return found * torch.exp(NORM_SD * torch.randn(source, generator=chance)) if normed else found


def band_excess(maps: Tensor) -> float:
    """Return the share of weight on the diagonal and its neighbours: 0 as in even attention, 1 if all is there.

    Only the second half of the rows counts: the first rows of a causal map see few columns, where all patterns look
    alike. Where the lengths differ, the diagonal goes from the first tokens of both to the last ones.
    """
    return _excess(maps, lambda weights: weights * (_distance(weights) <= 1))


def column_excess(maps: Tensor) -> float:
    """Return the share of weight in the three heaviest columns; see :func:`band_excess`."""
    return _excess(maps, lambda weights: weights[:, weights[len(weights) // 2 :].sum(0).topk(3).indices])


def _excess(maps: Tensor, part: Callable[[Tensor], Tensor]) -> float:
    seen, half = (maps > 0).float(), slice(len(maps) // 2, None)
    even = seen / seen.sum(1, keepdim=True)
    share, by_chance = (float(part(weights)[half].sum() / weights[half].sum()) for weights in (maps, even))
    return (share - by_chance) / (1 - by_chance)


def _of(pattern: str, seen: Tensor, chance: torch.Generator) -> Tensor:
    if pattern == "heterogeneous":
        return _rows(_noise(seen, _real(1.5, 4, chance), chance), seen)
    if pattern == "vertical+diagonal":
        share = _real(0.35, 0.65, chance)
        found = share * _rows(_diagonal(seen, chance), seen) + (1 - share) * _rows(_vertical(seen, chance), seen)
    else:
        make = {"diagonal": _diagonal, "vertical": _vertical, "block": _block}[pattern]
        found = _rows(make(seen, chance), seen)
    # Much or uneven noise would leave no even attention.
    share, power = (
        (_real(0.8, 0.97, chance), 1.0) if pattern == "block" else (_real(*SHARE, chance), _real(1, 2, chance))
    )
    return share * found + (1 - share) * _rows(_noise(seen, power, chance), seen)


def _diagonal(seen: Tensor, chance: torch.Generator) -> Tensor:
    """To the token before, the same one or the next, sharply or with some weight on either side."""
    causal = bool(seen[0, -1] == 0)
    offset = _whole(-1, 0 if causal else 1, chance)
    away = (_distance(seen, offset)).clamp(max=3)
    width = _real(0.05, 0.6, chance)
    # The first or last token has no neighbour there: it takes the nearest.
    nearest = away == away.masked_fill(seen == 0, math.inf).min(dim=1, keepdim=True).values
    return torch.where(nearest, 1.0, torch.where(away <= 1, width * torch.rand(seen.shape, generator=chance), 0.0))


def _vertical(seen: Tensor, chance: torch.Generator) -> Tensor:
    """To one, two or three tokens, such as the first, the last or punctuation."""
    causal, size = bool(seen[0, -1] == 0), seen.size(1)
    # A causal map shows a column only below the diagonal: the first one is early enough to be seen.
    columns = [_whole(0, size // 4 if causal else size - 1, chance)]
    columns += [_whole(0, size - 1, chance) for _ in range(_whole(0, 2, chance))]
    found = torch.zeros_like(seen)
    for column in columns:
        strength = _real(0.4, 1, chance) if len(columns) > 1 else 1.0
        found[:, column] = strength * (0.6 + 0.4 * torch.rand(len(seen), generator=chance))
    return found


def _block(seen: Tensor, chance: torch.Generator) -> Tensor:
    """Evenly to the tokens of the same segment, of one to three."""
    places = ((), ((0.25, 0.75),), ((0.25, 0.4), (0.6, 0.75)))[_whole(0, 2, chance)]
    cuts = torch.tensor([*(_real(*place, chance) for place in places), 1.0])
    row, column = (torch.bucketize((torch.arange(n) + 0.5) / n, cuts) for n in seen.shape)
    even = 0.8 + 0.4 * torch.rand(seen.shape, generator=chance)
    return (row[:, None] == column[None]) * even


def _noise(seen: Tensor, power: float, chance: torch.Generator) -> Tensor:
    """Random weights; the higher the power, the fewer of them matter."""
    return (-torch.rand(seen.shape, generator=chance).clamp(min=1e-6).log()).pow(power)


def _rows(weights: Tensor, seen: Tensor) -> Tensor:
    """Make each row sum to 1; a row without weight on what it sees attends evenly."""
    weights = weights * seen
    weights = torch.where(weights.sum(1, keepdim=True) > 0, weights, seen)
    return weights / weights.sum(1, keepdim=True)


def _distance(maps: Tensor, offset: int = 0) -> Tensor:
    """Return how many columns each cell is from the place that is aligned with its row, moved by ``offset``."""
    target, source = maps.shape
    places = (torch.arange(target) * (source - 1) / max(target - 1, 1)).round() + offset
    return (torch.arange(source)[None] - places.clamp(0, source - 1)[:, None]).abs()


def _whole(low: int, high: int, chance: torch.Generator) -> int:
    return int(torch.randint(low, high + 1, (), generator=chance))


def _real(low: float, high: float, chance: torch.Generator) -> float:
    return low + (high - low) * float(torch.rand((), generator=chance))
