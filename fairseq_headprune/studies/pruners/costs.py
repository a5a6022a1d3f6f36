"""What each pruning method costs, measured (the symbols of Li et al. 2021, Table 1)."""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from fairseq_headprune.jobs.methods import base, in_order, options, title
from fairseq_headprune.report.tables import Table, fixed

Cells = Sequence[Mapping[str, Any]]


def costs(rows: Cells, updates: int) -> list[dict[str, Any]]:
    """Measure the columns of Table 1: a method's cost, how well it meets the head count, and its mean score.

    Returns:
        one dict per method: ``seconds`` and ``updates`` to get a pruned model, as multiples of the unpruned ones with
        the same seeds (including the training of the model that a method starts from; ``estimates`` counts rankings
        instead of updates; ``seconds`` is None if no training ran uninterrupted and next to as many others as the
        unpruned model's, since that number determines its speed); ``off``: mean |heads learned - heads requested|
        before the correction, None if heads are chosen by rank; ``score``: mean of the means over seeds, over the head
        counts and seeds that all methods have; ``sampled``: mean share of the updates after cooling that sampled the
        learned set.
    """
    unpruned = {row["seed"]: row["training"] for row in rows if row["method"] == "unpruned"}
    groups = {
        method: [row for row in rows if row["method"] == method and row["seed"] in unpruned]
        for method in in_order(row["method"] for row in rows)
        if base(method) not in ("unpruned", "l0-lambda")
    }
    groups = {method: mine for method, mine in groups.items() if mine}
    cells = [{(row["count"], row["seed"]) for row in mine} for mine in groups.values()]
    shared = set.intersection(*cells) if cells else set()
    result = []
    for method, mine in groups.items():
        sampled = [row["sampled_as_learned"] for row in mine if "sampled_as_learned" in row]
        learned = [abs(row["learned"] - row["count"]) for row in mine if "learned" in row]
        seconds = [_seconds(row, unpruned[row["seed"]]) for row in mine if _alike(row, unpruned[row["seed"]])]
        result.append(
            {
                "method": method,
                "seconds": statistics.mean(seconds) if seconds else None,
                "updates": statistics.mean(_updates(row, updates) / updates for row in mine),
                "estimates": statistics.mean(row.get("estimates", 0) for row in mine),
                "off": statistics.mean(learned) if learned else None,
                "score": _mean_score([row for row in mine if (row["count"], row["seed"]) in shared]),
                **({"sampled": statistics.mean(sampled)} if sampled else {}),
            }
        )
    return result


def _alike(row: Mapping[str, Any], unpruned: Mapping[str, Any]) -> bool:
    """Whether a training and the unpruned model's both have a time, and ran next to equally many others."""
    training = row["training"] or {}
    if "seconds" not in unpruned or training.get("resumed") or unpruned.get("resumed"):
        return False
    return not training or ("seconds" in training and training.get("side_by_side") == unpruned.get("side_by_side"))


def _mean_score(rows: Cells) -> float | None:
    of_count: dict[int, list[float]] = defaultdict(list)
    for row in rows:
        of_count[row["count"]].append(row["score"])
    return statistics.mean(statistics.mean(scores) for scores in of_count.values()) if of_count else None


def _seconds(row: Mapping[str, Any], unpruned: Mapping[str, Any]) -> float:
    """Return the time to get a pruned model, as a multiple of the unpruned model's training."""
    whole = unpruned["seconds"]
    if row["training"] is None:
        return (whole + row.get("scoring_seconds", 0.0)) / whole
    before = whole + row.get("choosing_seconds", 0.0) if _starts_trained(row) else 0.0
    return (row["training"]["seconds"] + before) / whole


def _updates(row: Mapping[str, Any], updates: int) -> int:
    """Return the updates to get a pruned model: those of the whole runs, but for pipelined DSP's to its best set."""
    if options(row["method"]) and "updates" in row:
        return row["updates"]
    return updates + (row["best"]["updates"] if base(row["method"]) == "pipelined-dsp" else 0)


def _starts_trained(row: Mapping[str, Any]) -> bool:
    return base(row["method"]) == "pipelined-dsp" or "tuned" in options(row["method"])


def cost_table(costs: Sequence[Mapping[str, Any]], measure: str) -> Table:
    """Tabulate what Table 1 shows as symbols: cost, control of the head count, quality."""
    rows: list[list[Any]] = []
    sampled = any("sampled" in cost for cost in costs)
    for cost in costs:
        more = f" + {cost['estimates']:.1f} rankings" if cost["estimates"] else ""
        off = "0 (exact)" if cost["off"] is None else f"{cost['off']:.2f}"
        row = [title(cost["method"]), fixed(cost["seconds"]), f"{cost['updates']:.2f}{more}", off]
        row += [f"{100 * cost['sampled']:.0f}%" if "sampled" in cost else None] * sampled
        rows.append([*row, fixed(cost["score"])])
    header = ["Method", "Time", "Updates", "Heads off", *["Sampled = learned"] * sampled, f"Mean {measure}"]
    return Table(header, rows)


COST_NOTE = (
    "Time and updates to a pruned model, as multiples of the unpruned one's training (wall time of processes that ran "
    "side by side, as many as with the unpruned one; rankings: estimates of importance); heads off: mean "
    "|learned - asked| before the correction; mean score: over the numbers of heads and seeds that all methods have."
)
