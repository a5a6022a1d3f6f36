"""Logging of gates while they are learned: ``gates.jsonl`` in the run's folder, one JSON document per line, and the
numbers logged with the loss.
"""

import json
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_headprune.files import PathLike, parse_json, write_text
from fairseq_headprune.parts import HEADS

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
    places, present = _places(tuple(head.component for head in learner.heads))
    sums = np.bincount(places, weights=values.double().numpy(), minlength=len(HEADS)).tolist()
    return {HEADS[place]: sums[place] for place in present}


@lru_cache(maxsize=8)
def _places(components: tuple[str, ...]) -> tuple[Any, list[int]]:
    """Return the index of each head's component, and the indices that occur; called after every update."""
    places = [HEADS.index(component) for component in components]
    return np.array(places), sorted(set(places))


def gate_metrics(learner: Any) -> dict[str, float]:
    """Return name -> value: heads in the learned set, expected open gates (L0), temperature, penalty."""
    result = {f"heads_{component}": count for component, count in by_component(learner, learner.hard()).items()}
    if learner.rule.penalty is not None:
        expected = by_component(learner, learner.expected())
        result |= {f"expected_{component}": round(value, 3) for component, value in expected.items()}
        result["gate_penalty"] = learner.penalty()
    return result | learner.stats()
