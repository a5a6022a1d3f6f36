"""Scores and tests of a comparison: means over seeds against the unpruned model (Li et al. 2021, Tables 1 and 3b)."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fairseq_headprune.evaluation.hypotheses import read_references
from fairseq_headprune.evaluation.p_values import enough_resamples, holm
from fairseq_headprune.files import read_lines
from fairseq_headprune.jobs.methods import base, in_order, options, place, title
from fairseq_headprune.report.document import Document
from fairseq_headprune.report.marks import Family, marks_named
from fairseq_headprune.report.tables import Marked, Table
from fairseq_headprune.studies.mask_study import Comparison, mean_test

Cells = Sequence[Mapping[str, Any]]


def document(
    study: Any, cells: Mapping[str, Mapping[str, Any]], split: str, references: Sequence[str] | None, how: Comparison
) -> Document:
    """Return the scores on a split, the tests of every method and head count, and the cost of each method.

    Args:
        study: a :class:`~fairseq_headprune.studies.pruners.study.ComparePruners`.
        references: default: those of the data.

    Raises:
        ValueError: there are no outputs yet, or the numbers of references and sentences differ.
    """
    folder, task = study.folder, study.how.task
    mine = [cell for cell in cells.values() if cell["split"] == split]
    if not mine:
        raise ValueError(f"nothing of {split} is translated in {folder.path} yet")
    if references is None:
        references = read_references(folder.path / "references" / f"{split}.txt").lines
    metric = task.metric(references, how)
    if how.resamples is None:
        points = {(cell["method"], cell["count"]) for cell in mine if cell["method"] not in ("unpruned", "l0-lambda")}
        how = replace(how, resamples=enough_resamples(max(1, len(points)), how.alpha))
    sentences, rows = {}, []
    for cell in mine:
        path = folder.hyp_path(cell["id"])
        try:
            sentences[cell["id"]] = metric.extract(read_lines(path))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        score = float(metric.score(sentences[cell["id"]].sum(axis=0)))
        rows.append({**cell, "score": round(score, 4)})
    rows.sort(key=lambda row: (place(row["method"]), row["seed"], -(row["count"] or 0)))
    data = {
        "split": split,
        "measure": task.measure,
        "sentences": len(references),
        "signature": metric.signature,
        "resamples": how.resamples,
        "bootstrap_seed": how.seed,
        "alpha": how.alpha,
        "settings": study.settings,
        "environments": folder.runs,
        "points": summarise(rows, sentences, metric.score, how),
        "costs": costs(rows, study.settings["updates"]),
        "rows": rows,
    }
    where = {"settings": study.settings, "runs": folder.runs, "study": str(folder.path)}
    found = best_methods(data["points"], task.measure)
    title = f"Pruning methods compared, on {split}"
    return Document(title, result_tables(data), found, data=data, provenance=where)


def best_methods(points: Sequence[Mapping[str, Any]], measure: str) -> list[str]:
    """Say in one sentence which methods have the highest mean at how many head counts; methods are not tested."""
    best: dict[int, Mapping[str, Any]] = {}
    for point in sorted((p for p in points if p["heads"] is not None), key=lambda point: point["score"]):
        best[point["heads"]] = point
    if not best:
        return []
    first = Counter(title(point["method"]) for point in best.values()).most_common()
    shares = ", ".join(f"{name} at {count}" for name, count in first)
    return [f"highest mean {measure}, of {len(best)} numbers of heads: {shares} (not a test between methods)"]


def summarise(rows: Cells, sentences: Mapping[str, np.ndarray], score: Any, how: Comparison) -> list[dict[str, Any]]:
    """Return mean and standard deviation over seeds (n - 1) of each method and head count, and its test.

    The paired bootstrap resamples sentences and compares the mean score over seeds with that of the unpruned models of
    the same seeds. Holm's correction is over all points. ``l0-lambda``, which has no given head count, is omitted.

    Args:
        rows: dicts with ``id``, ``method``, ``count``, ``seed``, ``score``.
        sentences: id -> statistics (sentences, stats).
        score: sums of statistics (…, stats) -> scores (…).
    """
    groups: dict[tuple[str, int | None], dict[int, Mapping[str, Any]]] = defaultdict(dict)
    for row in rows:
        if row["method"] != "l0-lambda":
            groups[row["method"], row["count"]][row["seed"]] = row
    unpruned = groups.get(("unpruned", None), {})
    points = []
    for (method, count), of_seed in groups.items():
        scores = [row["score"] for row in of_seed.values()]
        point = {"method": method, "heads": count, "seeds": sorted(of_seed), "score": round(statistics.mean(scores), 4)}
        point["sd"] = round(statistics.stdev(scores), 4) if len(scores) > 1 else None
        if method != "unpruned" and set(of_seed) <= set(unpruned):
            base = [sentences[unpruned[seed]["id"]] for seed in of_seed]
            before, test = mean_test(score, base, [sentences[row["id"]] for row in of_seed.values()], how)
            point |= {"delta": round(test.pop("score") - before, 4), **test}
        points.append(point)
    tested = [point for point in points if "p" in point]
    for point, p in zip(tested, holm([point["p"] for point in tested]), strict=True):
        point["p_holm"] = p
    return points


def costs(rows: Cells, updates: int) -> list[dict[str, Any]]:
    """Measure the columns of Table 1: a method's cost, how well it meets the head count, and its mean score.

    Returns:
        one dict per method: ``seconds`` and ``updates`` to get a pruned model, as multiples of the unpruned ones with
        the same seeds (including the training of the model that a method starts from; ``estimates`` counts rankings
        instead of updates; ``seconds`` is None if no training ran uninterrupted and next to as many others as the
        unpruned model's, since that number determines its speed); ``off``: mean |heads learned - heads requested|
        before the correction, None if heads are chosen by rank; ``score``: mean of the means over seeds, over the head
        counts that all methods have; ``sampled``: mean share of the updates after cooling that sampled the learned set.
    """
    unpruned = {row["seed"]: row["training"] for row in rows if row["method"] == "unpruned"}
    groups = {
        method: [row for row in rows if row["method"] == method and row["seed"] in unpruned]
        for method in in_order(row["method"] for row in rows)
        if base(method) not in ("unpruned", "l0-lambda")
    }
    groups = {method: mine for method, mine in groups.items() if mine}
    shared = set.intersection(*({row["count"] for row in mine} for mine in groups.values())) if groups else set()
    result = []
    for method, mine in groups.items():
        learned = [abs(row["learned"] - row["count"]) for row in mine if "learned" in row]
        sampled = [row["sampled_as_learned"] for row in mine if "sampled_as_learned" in row]
        seconds = [_seconds(row, unpruned[row["seed"]]) for row in mine if _alike(row, unpruned[row["seed"]])]
        result.append(
            {
                "method": method,
                "seconds": statistics.mean(seconds) if seconds else None,
                "updates": statistics.mean(_updates(row, updates) / updates for row in mine),
                "estimates": statistics.mean(row.get("estimates", 0) for row in mine),
                "off": statistics.mean(learned) if learned else None,
                "score": _mean_score([row for row in mine if row["count"] in shared]),
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
    return (row["training"]["seconds"] + (whole if _starts_trained(row) else 0.0)) / whole


def _updates(row: Mapping[str, Any], updates: int) -> int:
    """Return the updates to get a pruned model: those of the whole runs, but for pipelined DSP's to its best set."""
    if options(row["method"]) and "updates" in row:
        return row["updates"]
    return updates + (row["best"]["updates"] if base(row["method"]) == "pipelined-dsp" else 0)


def _starts_trained(row: Mapping[str, Any]) -> bool:
    return base(row["method"]) == "pipelined-dsp" or "tuned" in options(row["method"])


def result_tables(value: Mapping[str, Any]) -> list[Table]:
    """Return the tables of a document's data, with notes."""
    scores = replace(score_table(value), notes=[score_note(value, None), ""])
    costs = value["costs"]
    return [scores, replace(cost_table(costs, value["measure"]), notes=[COST_NOTE])] if costs else [scores]


def score_table(results: Mapping[str, Any]) -> Table:
    """Tabulate scores as in Table 3b: one row per head count, one column per method, mean ± standard deviation.

    Marks: differs from the unpruned model. If the number of seeds differs between points, it is given in brackets where
    it is more than one.
    """
    points, tests = results["points"], _tests(results)
    uneven = _uneven(points)
    found = {(point["method"], point["heads"]): point for point in points}
    methods = [m for m in in_order(method for method, _ in found) if base(m) != "unpruned"]
    counts = sorted({heads for _, heads in found if heads is not None}, reverse=True)
    rows: list[list[Any]] = [
        [count, *(_cell(found.get((m, count)), tests, uneven) for m in methods)] for count in counts
    ]
    return Table(["Unpruned Heads", *map(title, methods)], rows)


def score_note(results: Mapping[str, Any], form: str | None = "text") -> str:
    """Describe the table's numbers, and give the unpruned model's score.

    Args:
        form: output form whose significance marks are named; None: keep placeholders for the document's renderer.
    """
    points = results["points"]
    unpruned = [point for point in points if point["method"] == "unpruned"]
    uneven = _uneven(points)
    base = f"The unpruned model has {_shown(unpruned[0], uneven)}. " if unpruned else ""
    seeds = max(len(point["seeds"]) for point in points)
    over = f"mean ± standard deviation over {seeds} seeds, the mean is tested" if seeds > 1 else "one seed"
    if uneven:
        over = "one seed, or mean ± standard deviation over as many seeds as the brackets say, the mean is tested"
    marks = _tests(results).legend()
    note = f"{base}{results['measure']} on {results['split']}, {results['signature']}; {over}; {marks}."
    return note if form is None else marks_named(note, form)


def cost_table(costs: Sequence[Mapping[str, Any]], measure: str) -> Table:
    """Tabulate what Table 1 shows as symbols: cost, control of the head count, quality."""
    rows: list[list[Any]] = []
    sampled = any("sampled" in cost for cost in costs)
    for cost in costs:
        more = f" + {cost['estimates']:.1f} rankings" if cost["estimates"] else ""
        off = "0 (exact)" if cost["off"] is None else f"{cost['off']:.2f}"
        row = [title(cost["method"]), _number(cost["seconds"]), f"{cost['updates']:.2f}{more}", off]
        row += [f"{100 * cost['sampled']:.0f}%" if "sampled" in cost else None] * sampled
        rows.append([*row, _number(cost["score"])])
    header = ["Method", "Time", "Updates", "Heads off", *["Sampled = learned"] * sampled, f"Mean {measure}"]
    return Table(header, rows)


COST_NOTE = (
    "Time and updates to a pruned model, as multiples of the unpruned one's training (wall time of processes that ran "
    "side by side, as many as with the unpruned one; rankings: estimates of importance); heads off: mean "
    "|learned - asked| before the correction; mean score: over the numbers of heads that all methods have."
)


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.2f}"


def _tests(results: Mapping[str, Any]) -> Family:
    count = sum("p" in point for point in results["points"])
    return Family(results["alpha"], results["resamples"], results["bootstrap_seed"], count)


def _uneven(points: Sequence[Mapping[str, Any]]) -> bool:
    return len({len(point["seeds"]) for point in points}) > 1


def _cell(point: Mapping[str, Any] | None, tests: Family, uneven: bool) -> Any:
    if point is None:
        return None
    mark = tests.mark(point) if "p" in point else ""
    return Marked(_shown(point, uneven), mark)


def _shown(point: Mapping[str, Any], uneven: bool) -> str:
    if point["sd"] is None:
        return f"{point['score']:.2f}"
    return f"{point['score']:.2f} ± {point['sd']:.2f}" + (f" ({len(point['seeds'])})" if uneven else "")
