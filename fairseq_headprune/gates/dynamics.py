"""How the set of kept heads developed during training, from the log of the gates (Li et al. 2021, §5.6)."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_headprune.files import PathLike
from fairseq_headprune.gates.log import NAME, read_log
from fairseq_headprune.parts import HEADS, Part

Heads = frozenset[Part]


@dataclass(frozen=True)
class GateRun:
    """The log of one training run.

    Attributes:
        path: the log file.
        description: kind and settings of the gates.
        heads: the gated heads.
        sets: (update, set of kept heads), by update.
        temperatures: (update, temperature), by update; empty if there is none (L0, STE).
        validations: (update, name -> value), by update.
        expected: expected number of open gates at the last update; None if the log lacks it.
        sampled: (update, share of the updates after cooling so far in which the sampled set was the learned one), by
            update; empty if there is none.
    """

    path: Path
    description: dict[str, Any]
    heads: list[Part]
    sets: list[tuple[int, Heads]]
    temperatures: list[tuple[int, float]]
    validations: list[tuple[int, dict[str, float]]]
    expected: float | None = None
    sampled: Sequence[tuple[int, float]] = ()

    @property
    def final(self) -> Heads:
        """The set of kept heads at the last logged update."""
        return self.sets[-1][1]

    @property
    def last_update(self) -> int:
        """The last logged update."""
        return max(update for update, _ in [*self.sets, *self.validations])

    @property
    def name(self) -> str:
        """Name of the run's folder."""
        return self.path.resolve().parent.name


def read_run(path: PathLike, until: int | None = None) -> GateRun:
    """Read the log of a training run from its folder (``--save-dir``) or file; the run may still be going on.

    Args:
        until: ignore later updates (default: read all).

    Raises:
        FileNotFoundError: there is no log.
        ValueError: a line is damaged, or there is no update in the log yet, or none up to ``until``.
    """
    path = Path(path)
    path = path / NAME if path.is_dir() else path
    if not path.exists():
        raise FileNotFoundError(
            f"{path}: there is no such log; a training with learned gates writes it to its --save-dir"
        )
    description, lines = read_log(path)
    try:
        lines = [line for line in lines if until is None or line["update"] <= until]
        heads = [Part(*place) for place in description["heads"]]
        updates = [line for line in lines if "kept" in line]
        sets = [(line["update"], _kept(heads, line)) for line in updates]
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path}: its gates or updates are not as this package logs them ({error})") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if not sets:
        when = "yet" if until is None else f"until {until}"
        raise ValueError(f"{path}: no update is logged {when} (--gate-log-interval says how often one is)")
    temperatures = [(line["update"], line["temperature"]) for line in updates if line.get("temperature") is not None]
    if temperatures and "tau_start" in description:
        temperatures.insert(0, (0, description["tau_start"]))
    validations = [(line["update"], line["valid"]) for line in lines if "valid" in line]
    expected = updates[-1].get("expected")
    total = sum(expected.values()) if isinstance(expected, dict) else None
    share = "sampled_as_learned"
    sampled = [(line["update"], line[share]) for line in updates if share in line]
    return GateRun(path, description, heads, sets, temperatures, validations, total, sampled)


def _kept(heads: list[Part], line: dict[str, Any]) -> Heads:
    """Return the kept heads of a log line, which has a string of 0s and 1s for each layer with gated heads."""
    layers: dict[tuple[str, int], list[Part]] = {}
    for head in heads:
        layers.setdefault((head.component, head.layer), []).append(head)
    rows = [row for component in dict.fromkeys(c for c, _ in layers) for row in line["kept"].get(component, [])]
    if [len(row) for row in rows] != [len(row) for row in layers.values()] or set("".join(rows)) - {"0", "1"}:
        raise ValueError(f"update {line['update']}: {line['kept']} does not fit the {len(heads)} gated heads")
    marked = zip(layers.values(), rows, strict=True)
    return frozenset(head for row, marks in marked for head, mark in zip(row, marks, strict=True) if mark == "1")


def overlap(present: Heads, final: Heads) -> float | None:
    """Return the percentage of the present set that is in the final one (Fig. 7); None if the present set is empty."""
    return 100.0 * len(present & final) / len(present) if present else None


def overlap_at(run: GateRun, update: int) -> float | None:
    """Return the overlap with the final set at an update or the last logged one before it; None if there is none."""
    until = [chosen for logged, chosen in run.sets if logged <= update]
    return overlap(until[-1], run.final) if until else None


def settled(run: GateRun) -> tuple[int, int]:
    """Return when the set became final: the first logged update from which on it is the final set, and the one before.

    The set became final after the second (0: there is none) and not later than the first.
    """
    first, before = run.sets[-1][0], 0
    for update, chosen in reversed(run.sets):
        if chosen != run.final:
            before = update
            break
        first = update
    return first, before


def scores(run: GateRun, name: str) -> list[tuple[int, float]]:
    """Return (update, value) of one validation metric, without values that are not finite."""
    values = [(update, found[name]) for update, found in run.validations if name in found]
    return [(update, value) for update, value in values if math.isfinite(value)]


def layer_counts(run: GateRun) -> dict[str, list[int]]:
    """Return component -> number of heads of the final set in each layer."""
    layers = {c: 1 + max(h.layer for h in run.heads if h.component == c) for c in components(run.heads)}
    return {
        c: [sum(h.component == c and h.layer == layer for h in run.final) for layer in range(n)]
        for c, n in layers.items()
    }


def components(heads: Iterable[Part]) -> list[str]:
    """List the components of these heads, in the papers' order."""
    found = {head.component for head in heads}
    return [component for component in HEADS if component in found]


def distribution(runs: list[GateRun]) -> dict[int, dict[str, list[float]]]:
    """Return number of heads kept -> component -> how many of them are in each layer (Fig. 6).

    If several runs kept the same number, the counts are means over them.

    Raises:
        ValueError: the gated heads of a run differ from the first run's.
    """
    groups: dict[int, list[dict[str, list[int]]]] = {}
    for run in sorted(runs, key=lambda run: len(run.final)):
        if run.heads != runs[0].heads:
            raise ValueError(f"{run.path} has gates on other heads than {runs[0].path}: give runs of one model")
        groups.setdefault(len(run.final), []).append(layer_counts(run))
    return mean_counts(groups)


def mean_counts(groups: Mapping[int, Sequence[Mapping[str, Sequence[int]]]]) -> dict[int, dict[str, list[float]]]:
    """Return number of heads kept -> component -> heads per layer, the mean over the sets with that number."""
    return {
        kept: {
            component: [sum(layer) / len(layer) for layer in zip(*(counts[component] for counts in group), strict=True)]
            for component in group[0]
        }
        for kept, group in groups.items()
    }


def heads_by_penalty(runs: list[GateRun]) -> list[tuple[float, int]]:
    """Return (lambda, heads kept) of the runs with a fixed L0 penalty, sorted by lambda (Fig. 2)."""
    return sorted((run.description["penalty"], len(run.final)) for run in runs if "penalty" in run.description)
