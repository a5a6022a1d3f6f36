"""The numbers of a comparison of pruners: points (means over trainings) with their tests, and the costs of methods."""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from fairseq_headprune.evaluation.p_values import LEAST, corrected, enough_resamples, holm
from fairseq_headprune.evaluation.significance import bootstrap_statistics
from fairseq_headprune.evaluation.trainings import (
    Difference,
    hierarchical_bootstrap,
    mixed_model,
    paired,
    spread,
)
from fairseq_headprune.jobs.methods import base, in_order, options, title
from fairseq_headprune.report.tables import Table, fixed
from fairseq_headprune.studies.mask_study import Comparison

Rows = Sequence[Mapping[str, Any]]

COST_NOTE = (
    "Time and updates to a pruned model, as multiples of the unpruned one's training (wall time of processes that ran "
    "side by side, as many as with the unpruned one; rankings: estimates of importance); heads off: mean "
    "|learned - asked| before the correction; mean score: over the numbers of heads and seeds that all methods have."
)


def grouped(rows: Rows) -> dict[tuple[str, int | None], dict[int, Mapping[str, Any]]]:
    """Return (method, head count) -> seed -> row; ``l0-lambda``, which has no given head count, is omitted."""
    groups: dict[tuple[str, int | None], dict[int, Mapping[str, Any]]] = defaultdict(dict)
    for row in sorted(rows, key=lambda row: row["seed"]):
        if row["method"] != "l0-lambda":
            groups[row["method"], row["count"]][row["seed"]] = row
    return dict(groups)


def over_trainings(rows: Rows, margin: float) -> list[dict[str, Any]]:
    """Return the points: mean over trainings, and the difference from the unpruned models of the same seeds.

    Args:
        rows: dicts with ``method``, ``count``, ``seed``, ``score``.
        margin: of equivalence (TOST), in points of the score.

    Returns:
        dicts with ``method``, ``heads``, ``seeds``, ``scores`` (one a seed), ``score``, ``sd``, ``ci``, and but for the
        unpruned models ``difference``: a :class:`~fairseq_headprune.evaluation.trainings.Difference` as a dict, with
        Holm's correction over all points that are tested.
    """
    groups = grouped(rows)
    unpruned = {seed: row["score"] for seed, row in groups.get(("unpruned", None), {}).items()}
    points: list[dict[str, Any]] = []
    differences = []
    for (method, count), of_seed in groups.items():
        scores = {seed: row["score"] for seed, row in of_seed.items()}
        found = spread(list(scores.values()))
        points.append(
            {
                "method": method,
                "heads": count,
                "seeds": list(scores),
                "scores": list(scores.values()),
                "score": round(found.mean, 4),
                "sd": None if found.sd is None else round(found.sd, 4),
                "ci": found.ci,
            }
        )
        differences.append(paired(unpruned if method != "unpruned" else {}, scores, margin))
    for point, difference in zip(points, corrected(differences), strict=True):
        if point["method"] != "unpruned":
            point["difference"] = asdict(difference)
    return points


def summarise(
    rows: Rows, sentences: Mapping[str, np.ndarray], score: Any, how: Comparison, margin: float
) -> list[dict[str, Any]]:
    """Return the points of :func:`over_trainings` with what resampling sentences says.

    A point whose seeds are shared with several unpruned models has ``both_levels`` (trainings and sentences resampled);
    one with a single pair of models has ``sentences``, the paired bootstrap of that model against that model, with
    Holm's correction over all such points.

    Args:
        rows: as for :func:`over_trainings`, with ``id``.
        sentences: id -> statistics (sentences, stats).
        score: sums of statistics (…, stats) -> scores (…).
        how: without ``resamples``, as many are drawn as the single pairs need.
    """
    groups, points = grouped(rows), over_trainings(rows, margin)
    unpruned = groups.get(("unpruned", None), {})
    single = []
    for point in points:
        of_seed = groups[point["method"], point["heads"]]
        pairs = [(unpruned[seed]["id"], row["id"]) for seed, row in of_seed.items() if seed in unpruned]
        if point["method"] == "unpruned" or not pairs:
            continue
        if len(pairs) == 1:
            single.append((point, pairs[0]))
        else:
            base, mine = ([sentences[name] for name in side] for side in zip(*pairs, strict=True))
            point["both_levels"] = hierarchical_bootstrap(score, base, mine, LEAST, how.seed)
    resamples = how.resamples or enough_resamples(max(1, len(single)), how.alpha)
    for point, (base_id, mine_id) in single:
        systems = {"base": sentences[base_id], "mine": sentences[mine_id]}
        result = bootstrap_statistics(score, systems, resamples, how.seed)[1].alone()
        point["sentences"] = {"resamples": resamples, **{name: result[name] for name in result if name != "score"}}
    for (point, _), p in zip(single, holm([point["sentences"]["p"] for point, _ in single]), strict=True):
        point["sentences"]["p_holm"] = p
    return points


def methods_compared(rows: Rows) -> dict[str, Any] | None:
    """Compare the methods by a mixed-effects model of their mean over the head counts and seeds that all have.

    Returns:
        ``reference``, ``counts``, ``seeds``, and ``methods``: method -> mean ``score``, and ``difference`` from the
        reference; None where fewer than two methods share two seeds.

    Raises:
        ImportError: statsmodels is not installed.
    """
    of_method: dict[str, dict[tuple[int, int], float]] = defaultdict(dict)
    for (method, count), of_seed in grouped(rows).items():
        if count is not None:
            of_method[method] |= {(count, seed): row["score"] for seed, row in of_seed.items()}
    seeds = sorted({seed for mine in of_method.values() for _, seed in mine})
    # The block of head counts that every method has for every seed kept.
    seeds = [seed for seed in seeds if all(any(s == seed for _, s in mine) for mine in of_method.values())]
    counts = [c for c in sorted({c for mine in of_method.values() for c, _ in mine}, reverse=True)
              if all((c, seed) in mine for mine in of_method.values() for seed in seeds)]  # fmt: skip
    if len(of_method) < 2 or len(seeds) < 2 or not counts:
        return None
    scores = {
        method: {seed: sum(mine[count, seed] for count in counts) / len(counts) for seed in seeds}
        for method, mine in of_method.items()
    }
    reference = "random-after" if "random-after" in scores else next(iter(scores))
    found: dict[str, Difference] = mixed_model(scores, reference)
    return {
        "reference": reference,
        "counts": counts,
        "seeds": seeds,
        "methods": {
            method: {
                "score": spread(list(of_seed.values())).mean,
                "difference": asdict(found[method]) if method in found else None,
            }
            for method, of_seed in scores.items()
        },
    }


def costs(rows: Rows, updates: int) -> list[dict[str, Any]]:
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


def _mean_score(rows: Rows) -> float | None:
    of_count: dict[int, list[float]] = defaultdict(list)
    for row in rows:
        of_count[row["count"]].append(row["score"])
    return statistics.mean(statistics.mean(scores) for scores in of_count.values()) if of_count else None


def _seconds(row: Mapping[str, Any], unpruned: Mapping[str, Any]) -> float:
    """Return the time to get a pruned model, as a multiple of the unpruned model's training."""
    whole = unpruned["seconds"]
    if row["training"] is None:
        return (whole + row.get("scoring_seconds", 0.0)) / whole
    starts_trained = base(row["method"]) == "pipelined-dsp" or "tuned" in options(row["method"])
    before = whole + row.get("choosing_seconds", 0.0) if starts_trained else 0.0
    return (row["training"]["seconds"] + before) / whole


def _updates(row: Mapping[str, Any], updates: int) -> int:
    """Return the updates to get a pruned model: those of the whole runs, but for pipelined DSP's to its best set."""
    if options(row["method"]) and "updates" in row:
        return row["updates"]
    return updates + (row["best"]["updates"] if base(row["method"]) == "pipelined-dsp" else 0)


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
