"""Speed and size of a classifier by number of heads (Michel et al. 2019, Table 4; Li et al. 2021, Figure 4).

Masks are random, or were chosen by pruning methods and have labels or scores.
"""

import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

from fairseq_headprune.checkpoints import State, read_state
from fairseq_headprune.choosing.random_heads import keep_drawn
from fairseq_headprune.files import PathLike, read_json, sha256
from fairseq_headprune.parts import Mask
from fairseq_headprune.parts.notation import format_config
from fairseq_headprune.removal.checkpoint import remove_heads
from fairseq_headprune.session import Session
from fairseq_headprune.speed.measure import ClassifierSide, Side, measure, median_and_range, parameter_shares
from fairseq_headprune.speed.variants import slim_session


def named_masks(pairs: Sequence[str]) -> dict[str, tuple[Mask, dict[str, Any]]]:
    """Read masks given as ``NAME=FILE``: name -> the mask, and its description.

    Raises:
        ValueError: not in this form, a repeated name, or not a mask file.
        FileNotFoundError: there is no such file.
    """
    found: dict[str, tuple[Mask, dict[str, Any]]] = {}
    for pair in pairs:
        name, equals, path = pair.partition("=")
        if not (name and equals and path):
            raise ValueError(f"--mask-files {pair!r}: give NAME=FILE")
        if name in found:
            raise ValueError(f"--mask-files: the name {name!r} is given twice")
        found[name] = (Mask.load(path), {"name": name, **_file(path)})
    return found


def read_points(path: PathLike, study: PathLike | None = None) -> list[tuple[Mask | None, dict[str, Any]]]:
    """Read a list of ``{"method", "heads", "mask", "score"}``: each mask, and its description.

    ``mask`` is a file, relative to the list's folder, or null for the whole model (a mask of None). ``heads`` is
    optional. Instead of a list, a result of ``compare_pruners.py`` can be given with its study folder (for the masks).

    Raises:
        ValueError: not in this form (the message names the entry), or a comparison without its study folder.
        FileNotFoundError: there is no such file.
    """
    value, folder = read_json(path), Path(path).parent
    if isinstance(value, Mapping) and isinstance(value.get("rows"), list):
        if study is None:
            raise ValueError(f"{path}: a comparison; say with --study where its masks are (its --work)")
        value, folder = [_of_row(row) for row in value["rows"]], Path(study) / "masks"
    if not isinstance(value, list) or not value:
        raise ValueError(f'{path}: expected a list of {{"method", "heads", "mask", "score"}}')
    return [_point(f"{path} entry {number}", entry, folder) for number, entry in enumerate(value)]


def _of_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Describe a comparison's row as a point; its number of heads is the requested one, if any."""
    seed = {} if row.get("seed") is None else {"seed": row["seed"]}
    return {"method": row.get("method"), "score": row.get("score"), "mask": f"{row.get('id')}.json", **seed}


def _point(where: str, entry: Any, folder: Path) -> tuple[Mask | None, dict[str, Any]]:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("method"), str) or "mask" not in entry:
        raise ValueError(f'{where}: expected an object with "method", "mask" and "score"')
    score, file = entry.get("score"), entry["mask"]
    if isinstance(score, bool) or not isinstance(score, (int, float)) or not math.isfinite(score):
        raise ValueError(f"{where}: the score must be a finite number, found {score!r}")
    about = {"method": entry["method"], "score": score, **({"seed": entry["seed"]} if "seed" in entry else {})}
    if file is None:
        return None, about
    if not isinstance(file, str):
        raise ValueError(f'{where}: "mask" is the name of a file, or null for the whole model; found {file!r}')
    mask = Mask.load(folder / file)
    kept = len(mask.kept())
    if entry.get("heads", kept) != kept:
        raise ValueError(f'{where}: "heads" is {entry["heads"]!r}, but {file} keeps {kept} heads')
    return mask, {**about, **_file(folder / file)}


def _file(path: PathLike) -> dict[str, str]:
    return {"mask": os.path.basename(path), "sha256": sha256(path)}


#: number of models timed in alternation with the unpruned one; small, so that its times stay comparable
GROUP = 8

UNPRUNED = "unpruned"


@dataclass(frozen=True)
class Timing:
    """How to time: ``examples`` of a split, repeated until the unpruned model takes ``seconds``, ``rounds`` times."""

    split: str
    examples: int
    batch_sizes: Sequence[int]
    rounds: int
    seconds: float

    def check(self, found: int) -> None:
        """Check that a split of ``found`` examples fills the largest batch.

        Raises:
            ValueError: it does not.
        """
        largest, there = max(self.batch_sizes), min(self.examples, found)
        if largest > there:
            raise ValueError(
                f"--batch-sizes {largest}: {there} examples are timed ({self.split} has {found}, --examples "
                f"{self.examples}); give smaller batches or more examples"
            )


def draw_masks(full: Mask, heads: int, count: int, seed: int) -> dict[int, Mask]:
    """Draw masks that keep exactly ``heads`` heads, uniformly; each equals ``headprune mask --random`` with its seed.

    For a given seed, the heads kept at a lower count are a subset of those at a higher count.

    Returns:
        seed -> mask, for ``count`` seeds starting at ``seed``; a single mask if all heads are kept.

    Raises:
        ValueError: more heads than the model has, no heads, no masks, or a negative seed.
    """
    present = len(full.kept())
    if not 1 <= heads <= present:
        raise ValueError(f"--heads {heads}: the model has {present} heads; give 1 to {present}")
    if count < 1:
        raise ValueError(f"--masks {count}: at least 1 mask a level")
    seeds = range(seed, seed + (count if heads < present else 1))
    return {number: keep_drawn(full, heads, number) for number in seeds}


class _Variant(ClassifierSide):
    """A session's model with only the heads of one mask in memory.

    Args:
        made: batch size -> batches; all models get those that the first one has made, enough to take it ``seconds``.
    """

    def __init__(self, session: Session, mask: Mask, timing: Timing, made: dict[int, list[dict[str, Any]]]) -> None:
        super().__init__(slim_session(session, mask), timing.split)
        self._least, self._made = timing.seconds, made

    def batches(self, sentences: int, batch_size: int) -> list[dict[str, Any]]:
        if batch_size not in self._made:
            once = super().batches(sentences, batch_size)
            self.seconds(once, None)  # warm-up
            self._made[batch_size] = once * max(1, math.ceil(self._least / self.seconds(once, None)))
        return self._made[batch_size]


class _Counter:
    """A file that stores only its size."""

    def __init__(self) -> None:
        self.bytes = 0

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self.bytes += size
        return size

    def flush(self) -> None:
        """Do nothing."""


def slim_bytes(state: State, mask: Mask) -> int:
    """Return the size in bytes of the file that ``headprune slim`` would write, without optimizer state.

    Raises:
        ValueError: as for :func:`~fairseq_headprune.removal.checkpoint.remove_heads`.
    """
    counter = _Counter()
    torch.save(remove_heads(state, mask).state, counter)  # type: ignore[arg-type]
    return counter.bytes


def measure_masks(session: Session, masks: Mapping[str, Mask], timing: Timing) -> dict[str, dict[str, Any]]:
    """Remove the heads that each mask prunes, in memory, and measure size and speed; the model's own mask is ignored.

    All sizes are computed first, so that a mask that does not fit is refused before anything is timed.

    Returns:
        Name -> heads kept, in total and per layer; parameters; bytes of the slim checkpoint; and per batch size the
        seconds of each round, examples per round, examples per second, and the speed ratio to the unpruned model, round
        by round. ``"unpruned"``, the whole model, is timed with each group of masks: its ``seconds`` cover all groups.

    Raises:
        ValueError: a mask that does not fit the model or prunes feed-forward parts, or batches larger than the data.
    """
    timing.check(len(session.dataset(timing.split)))
    session.gates.set_mask(None)
    every = {UNPRUNED: session.gates.full(), **masks}
    state = read_state(session.path)
    sizes = {}
    for name, mask in every.items():
        session.gates.check(mask)
        sizes[name] = slim_bytes(state, mask)
    del state
    found: dict[str, dict[str, Any]] = {}
    made: dict[int, list[dict[str, Any]]] = {}
    names = list(masks)
    for start in range(0, len(names), GROUP):
        group = [UNPRUNED, *names[start : start + GROUP]]
        sides: dict[str, Side] = {name: _Variant(session, every[name], timing, made) for name in group}
        rows = measure(sides, timing.examples, timing.batch_sizes, [None], timing.rounds)
        for name, side in sides.items():
            mine = found.setdefault(name, _entry(side, every[name], sizes[name]))
            for row in rows:
                if row["model"] == name:
                    _add(mine["batches"].setdefault(str(row["batch_size"]), {"seconds": []}), row)
        if not session.args.quiet:
            print(f"{min(start + GROUP, len(names))} of {len(names)} masks timed", file=sys.stderr)
    return found


def _entry(side: Side, mask: Mask, size: int) -> dict[str, Any]:
    shares = parameter_shares(side.session.model, side.session.gates)
    return {
        "heads": shares["heads"],
        "config": format_config(mask),
        "parameters": shares["parameters"],
        "bytes": size,
        "batches": {},
    }


def _add(to: dict[str, Any], row: Mapping[str, Any]) -> None:
    to["seconds"] += row["seconds"]
    to["examples"] = row["sentences"]
    to["examples_per_second"] = row["sentences"] / median(to["seconds"])
    to["ratio"] = row["speed"]


def level(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Summarise masks that keep equally many heads; each mask is represented by its median over rounds.

    Args:
        entries: as returned by :func:`~fairseq_headprune.speed.by_heads.measure_masks`.
    """
    return {
        "heads": entries[0]["heads"],
        "masks": len(entries),
        "parameters": median_and_range([entry["parameters"] for entry in entries]),
        "bytes": median_and_range([entry["bytes"] for entry in entries]),
        "batches": {
            size: {
                "examples_per_second": median_and_range([e["batches"][size]["examples_per_second"] for e in entries]),
                "ratio": median_and_range([e["batches"][size]["ratio"]["median"] for e in entries]),
            }
            for size in entries[0]["batches"]
        },
    }
