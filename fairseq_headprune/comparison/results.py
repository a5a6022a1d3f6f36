"""Rows of a comparison, and the tables that are made of them (Li et al. 2021, Tables 1 and 3b)."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_headprune.comparison.methods import NAMES
from fairseq_headprune.evaluation.significance import paired_bootstrap
from fairseq_headprune.files import read_lines

Rows = Sequence[Mapping[str, Any]]


def test_against_unpruned(rows: Rows, folder: Path, references: list[str], resamples: int, seed: int) -> list[dict]:
    """Return the rows with ``p`` and ``p_holm`` against the unpruned model of the same seed (paired bootstrap)."""
    result = []
    for model_seed in sorted({row["seed"] for row in rows}):
        mine = sorted((row for row in rows if row["seed"] == model_seed), key=lambda row: row["method"] != "unpruned")
        if not mine or mine[0]["method"] != "unpruned":
            result += [dict(row) for row in mine]
            continue
        systems = {row["hypotheses"]: read_lines(folder / row["hypotheses"]) for row in mine}
        found = {r.name: r for r in paired_bootstrap("bleu", references, systems, resamples, seed)}
        for row in mine:
            test = found[row["hypotheses"]]
            extra = {} if row["method"] == "unpruned" else {"p": test.p, "p_holm": test.p_holm}
            result.append({**row, **extra})
    return result


def summary(rows: Rows) -> list[dict[str, Any]]:
    """Return mean, standard deviation (over seeds, n - 1) and number of seeds for every method and number of heads."""
    groups: dict[tuple[str, Any], list[float]] = defaultdict(list)
    for row in rows:
        if row["method"] != "l0-lambda":
            groups[row["method"], row["count"]].append(row["bleu"])
    return [
        {
            "method": method,
            "heads": count,
            "bleu": round(float(np.mean(values)), 2),
            "deviation": round(float(np.std(values, ddof=1)), 2) if len(values) > 1 else None,
            "seeds": len(values),
        }
        for (method, count), values in groups.items()
    ]


def table_3b(rows: Rows) -> tuple[list[str], list[list[Any]]]:
    """Return header and body in the form of Table 3b: a line for each number of heads, a column for each method."""
    found = {(s["method"], s["heads"]): s for s in summary(rows)}
    methods = [m for m in NAMES if m != "unpruned" and any(key[0] == m for key in found)]
    counts = sorted({key[1] for key in found if key[1] is not None}, reverse=True)
    body: list[list[Any]] = [[count, *(_shown(found.get((m, count))) for m in methods)] for count in counts]
    unpruned = found.get(("unpruned", None))
    if unpruned is not None:
        body.insert(0, ["all", *([_shown(unpruned)] * len(methods))])
    return ["Heads kept", *(NAMES[m] for m in methods)], body


def _shown(value: Mapping[str, Any] | None) -> str:
    if value is None:
        return ""
    return f"{value['bleu']:.2f}" + ("" if value["deviation"] is None else f" ± {value['deviation']:.2f}")


def table_1(rows: Rows) -> tuple[list[str], list[list[Any]]]:
    """Return Table 1 as a measured table: cost, control of sparsity, and quality of each method.

    Cost: updates (and wall time) beyond those of the unpruned model, for one number of heads. Control: mean absolute
    difference between the heads asked for and the heads learned, before the correction of §4.3.
    """
    unpruned = [row for row in rows if row["method"] == "unpruned"]
    base = float(np.mean([row["train_seconds"] for row in unpruned])) if unpruned else float("nan")
    body = []
    for method, name in NAMES.items():
        mine = [row for row in rows if row["method"] == method]
        if not mine or method in ("unpruned", "l0-lambda"):
            continue
        learned = [abs(row["learned"] - row["count"]) for row in mine if "learned" in row]
        seconds = [row.get("train_seconds", 0.0) + row.get("scoring_seconds", 0.0) for row in mine]
        after = "needs" in mine[0] and mine[0]["needs"]
        total = float(np.mean(seconds)) + (base if after else 0.0)
        body.append(
            [
                name,
                f"{total / base:.2f}",
                f"{np.mean(learned):.1f}" if learned else "0 (by rule)",
                f"{np.mean([row['bleu'] for row in mine]):.2f}",
            ]
        )
    return ["Method", "Time to a pruned model / unpruned", "Mean |learned - asked| heads", "Mean BLEU"], body
