"""Tables 1 and 3b of Li et al. 2021, from the results of a comparison."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fairseq_headprune.jobs.methods import NAMES
from fairseq_headprune.report.marks import Family, marks_named
from fairseq_headprune.report.tables import Marked, Table


def result_tables(value: Mapping[str, Any]) -> list[Table]:
    """Return the tables of a document's data, each with its note below it."""
    scores = replace(score_table(value), notes=[score_note(value, None), ""])
    costs = value["costs"]
    return [scores, replace(cost_table(costs, value["measure"]), notes=[COST_NOTE])] if costs else [scores]


def score_table(results: Mapping[str, Any]) -> Table:
    """Tabulate scores in the form of Table 3b: a line a number of heads, a column a method, mean ± deviation.

    Marked: differs from the unpruned model. Where not all points have as many seeds, their number is in brackets if it
    is more than one.
    """
    points, tests = results["points"], _tests(results)
    uneven = _uneven(points)
    found = {(point["method"], point["heads"]): point for point in points}
    methods = [m for m in NAMES if m != "unpruned" and any(method == m for method, _ in found)]
    counts = sorted({heads for _, heads in found if heads is not None}, reverse=True)
    rows: list[list[Any]] = [
        [count, *(_cell(found.get((m, count)), tests, uneven) for m in methods)] for count in counts
    ]
    return Table(["Unpruned Heads", *(NAMES[m] for m in methods)], rows)


def score_note(results: Mapping[str, Any], form: str | None = "text") -> str:
    """Say what the table's numbers are, and the unpruned model's score.

    Args:
        form: in which the marks of significance are named; None leaves that to the document's renderer.
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
    """Tabulate what Table 1 shows as symbols: cost, control of the number of heads, quality."""
    rows: list[list[Any]] = []
    for cost in costs:
        more = f" + {cost['estimates']:.1f} rankings" if cost["estimates"] else ""
        off = "0 (exact)" if cost["off"] is None else f"{cost['off']:.2f}"
        row = [NAMES[cost["method"]], _number(cost["seconds"]), f"{cost['updates']:.2f}{more}", off]
        rows.append([*row, _number(cost["score"])])
    return Table(["Method", "Time", "Updates", "Heads off", f"Mean {measure}"], rows)


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
