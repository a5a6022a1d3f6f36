"""Labelled attention maps to train the classifier on and to test it with: made up, or annotated by hand."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fairseq_headprune.files import PathLike, parse_json, read_lines
from fairseq_headprune.patterns.classifier import canvas
from fairseq_headprune.patterns.generated import PATTERNS, made_up_map

#: share of the annotated maps of each pattern that the classifier is tested with
_HELD_OUT = 0.25


@dataclass(frozen=True)
class Labelled:
    """Attention maps with their patterns.

    Attributes:
        maps: (n, 32, 32).
        labels: positions in :data:`~fairseq_headprune.patterns.generated.PATTERNS`.
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
