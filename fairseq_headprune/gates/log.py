"""The log of learned gates, ``gates.jsonl``: written in training, and read to tell how the kept set developed.

One JSON document per line (Li et al. 2021, §5.6); and the numbers that are logged with the loss.
"""

import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_headprune.files import PathLike, parse_json, write_text
from fairseq_headprune.parts import HEADS, Part, by_layer

NAME = "gates.jsonl"
#: values that fairseq logs with a validation but that are not results
_SPEEDS = ("wps", "wpb", "bsz")


class GateLog:
    """Writes the log of one run; a resumed run continues after the last update of its checkpoint."""

    def __init__(self, folder: PathLike) -> None:
        """Set the path of the log; nothing is written yet."""
        self.path = Path(folder) / NAME
        #: the last logged update
        self.logged = 0

    def start(self, description: dict[str, Any], updates: int) -> None:
        """Write the header, and keep the lines of earlier parts of the run up to update ``updates``."""
        kept = read_log(self.path)[1] if updates and self.path.exists() else []
        lines = [{"gates": description}, *(line for line in kept if line["update"] <= updates)]
        os.makedirs(self.path.parent, exist_ok=True)
        write_text(self.path, "".join(json.dumps(line) + "\n" for line in lines))

    def update(self, learner: Any) -> None:
        """Append the present state of the gates."""
        kept: dict[str, list[str]] = {}
        layers: dict[tuple[str, int], str] = {}
        for head, keep in zip(learner.heads, learner.hard().tolist(), strict=True):
            place = (head.component, head.layer)
            layers[place] = layers.get(place, "") + str(int(keep))
        for (component, _), row in layers.items():
            kept.setdefault(component, []).append(row)
        stats = learner.stats()
        line = {
            "update": learner.updates,
            "temperature": stats.pop("temperature", None),
            "kept": kept,
            "expected": {c: round(value, 4) for c, value in by_component(learner, learner.expected()).items()},
            "penalty": learner.penalty(),
            **stats,
        }
        self._append(line)
        self.logged = learner.updates

    def validation(self, updates: int, values: dict[str, float]) -> None:
        """Append the results of a validation, which uses the learned set."""
        scores = {name: float(value) for name, value in values.items() if name not in _SPEEDS}
        self._append({"update": updates, "valid": scores})

    def _append(self, line: dict[str, Any]) -> None:
        with open(self.path, "a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")


def read_log(path: PathLike) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the description of the gates and the lines after it, without an incomplete last line.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a line is damaged, or there is no header.
    """
    text = Path(path).read_bytes().decode("utf-8", errors="replace").split("\n")
    # After the last line feed: nothing, or a line that is still being written.
    lines = [_line(path, number, line) for number, line in enumerate(text[:-1], 1)]
    if not lines or "gates" not in lines[0]:
        raise ValueError(f"{path}: not a log of learned gates (its first line has no 'gates')")
    return lines[0]["gates"], lines[1:]


def _line(path: PathLike, number: int, text: str) -> dict[str, Any]:
    try:
        line = parse_json(text, str(path))
    except ValueError:
        line = None
    if not isinstance(line, dict) or (number > 1 and not isinstance(line.get("update"), int)):
        raise ValueError(f"{path}, line {number}: damaged ({text.strip()[:40]!r})")
    return line


def by_component(learner: Any, values: Any) -> dict[str, float]:
    """Sum one value per gated head by component."""
    sums = dict.fromkeys(components(learner.heads), 0.0)
    for head, value in zip(learner.heads, values.tolist(), strict=True):
        sums[head.component] += value
    return sums


def gate_metrics(learner: Any) -> dict[str, float]:
    """Return name -> value: heads in the learned set, expected open gates (L0), temperature, penalty."""
    result = {f"heads_{component}": count for component, count in by_component(learner, learner.hard()).items()}
    if learner.rule.penalty is not None:
        expected = by_component(learner, learner.expected())
        result |= {f"expected_{component}": round(value, 3) for component, value in expected.items()}
        result["gate_penalty"] = learner.penalty()
    return result | learner.stats()


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
    layers = by_layer(heads)
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
    for run in runs:
        if run.heads != runs[0].heads:
            raise ValueError(f"{run.path} has gates on other heads than {runs[0].path}: give runs of one model")
    return mean_counts((len(run.final), layer_counts(run)) for run in runs)


def mean_counts(sets: Iterable[tuple[int, dict[str, list[int]]]]) -> dict[int, dict[str, list[float]]]:
    """Return number of heads kept, ascending -> component -> heads per layer, the mean over the sets with that number.

    Args:
        sets: (number of heads kept, component -> heads in each layer).
    """
    groups: dict[int, list[dict[str, list[int]]]] = {}
    for kept, counts in sets:
        groups.setdefault(kept, []).append(counts)
    return {
        kept: {
            component: [sum(layer) / len(layer) for layer in zip(*(counts[component] for counts in group), strict=True)]
            for component in group[0]
        }
        for kept, group in sorted(groups.items())
    }


def heads_by_penalty(runs: list[GateRun]) -> list[tuple[float, int]]:
    """Return (lambda, heads kept) of the runs with a fixed L0 penalty, sorted by lambda (Fig. 2)."""
    return sorted((run.description["penalty"], len(run.final)) for run in runs if "penalty" in run.description)
