"""Tables 1 and 3b of Li et al. 2021, from the results of a comparison."""

from collections.abc import Mapping, Sequence
from typing import Any

from fairseq_headprune.cli.comparison_flags import legend
from fairseq_headprune.comparison.methods import NAMES
from fairseq_headprune.report.tables import Marked, Table, mark_of


def score_table(points: Sequence[Mapping[str, Any]], alpha: float) -> Table:
    """Tabulate scores in the form of Table 3b: a line a number of heads, a column a method, mean ± deviation.

    Marked: differs from the unpruned model, see :func:`~fairseq_headprune.report.tables.mark_of`.
    """
    found = {(point["method"], point["heads"]): point for point in points}
    methods = [m for m in NAMES if m != "unpruned" and any(method == m for method, _ in found)]
    counts = sorted({heads for _, heads in found if heads is not None}, reverse=True)
    rows: list[list[Any]] = [[count, *(_cell(found.get((m, count)), alpha) for m in methods)] for count in counts]
    return Table(["Unpruned Heads", *(NAMES[m] for m in methods)], rows)


def score_note(results: Mapping[str, Any], form: str = "text") -> str:
    """Say what the table's numbers are, and the unpruned model's score; in ``form`` for the marks alone."""
    points = results["points"]
    unpruned = [point for point in points if point["method"] == "unpruned"]
    base = f"The unpruned model has {_shown(unpruned[0])}. " if unpruned else ""
    seeds = max(len(point["seeds"]) for point in points)
    over = f"mean ± standard deviation over {seeds} seeds, the mean is tested" if seeds > 1 else "one seed"
    marks = legend(results["alpha"], results["resamples"], results["bootstrap_seed"], form)
    return f"{base}{results['measure']} on {results['split']}, {results['signature']}; {over}; {marks}."


def cost_table(costs: Sequence[Mapping[str, Any]], measure: str) -> Table:
    """Tabulate what Table 1 shows as symbols: cost, control of the number of heads, quality."""
    rows: list[list[Any]] = []
    for cost in costs:
        more = f" + {cost['estimates']:.1f} rankings" if cost["estimates"] else ""
        off = "0 (exact)" if cost["off"] is None else f"{cost['off']:.2f}"
        row = [NAMES[cost["method"]], f"{cost['seconds']:.2f}", f"{cost['updates']:.2f}{more}", off]
        rows.append([*row, f"{cost['score']:.2f}"])
    return Table(["Method", "Time", "Updates", "Heads off", f"Mean {measure}"], rows)


COST_NOTE = (
    "Time and updates to a pruned model, as multiples of the unpruned one's training (wall time of processes that ran "
    "side by side; rankings: estimates of importance); heads off: mean |learned - asked| before the correction."
)


def _cell(point: Mapping[str, Any] | None, alpha: float) -> Any:
    if point is None:
        return None
    mark = mark_of(point["p"], point["p_holm"], alpha) if "p" in point else ""
    return Marked(_shown(point), mark)


def _shown(point: Mapping[str, Any]) -> str:
    return f"{point['score']:.2f}" + ("" if point["sd"] is None else f" ± {point['sd']:.2f}")
