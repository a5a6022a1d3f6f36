"""Pruning curves: arranging finished cells as curves, means over random orders, tables and findings."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from fairseq_headprune.evaluation.evaluator import BESIDE
from fairseq_headprune.evaluation.trainings import spread
from fairseq_headprune.parts import PAPER_NAMES
from fairseq_headprune.report.document import Curves
from fairseq_headprune.report.marks import Family
from fairseq_headprune.report.tables import Marked, Table
from fairseq_headprune.studies.results import with_holm
from fairseq_headprune.studies.study import Done

#: Separates the name of a curve from the seed of its random order.
SEED = "-seed"

#: What a chart keeps of a cell.
_POINT = ("id", "step", "percent", "pruned", "score", "sd", "seeds", "ci", "p", "p_holm", "relative")


def in_curves(unpruned: Done, cells: Iterable[Done], labels: Sequence[str], unfinished: bool) -> dict[str, list[Done]]:
    """Arrange cells as curves, each starting with the unpruned model.

    ``p_holm`` is corrected over all pruned cells; it is None while some are missing.
    """
    # Cells of interrupted runs are stored in the order of the curves; within each curve the steps are in order.
    ordered = sorted(cells, key=lambda cell: cell["step"])
    tested = with_holm(ordered, not unfinished)
    found = {label: [{**unpruned, "p_holm": 1.0}] for label in labels}
    for cell in tested:
        found[cell["curve"]].append(cell)
    return found


def seeded_curves(found: dict[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """Repeat every curve for each seed, as ``LABEL-seedS``; without seeds return the curves unchanged."""
    if not seeds:
        return found
    return {f"{label}{SEED}{seed}": value for label, value in found.items() for seed in seeds}


def curve_seed(label: str) -> int | None:
    """Return the seed in the name of a curve of :func:`seeded_curves`, None for others."""
    _, found, seed = label.rpartition(SEED)
    return int(seed) if found else None


def mean_curves(curves: dict[str, list[Done]]) -> dict[str, list[Done]]:
    """Average the curves of several random orders, step by step; empty if no curve has a seed.

    Returns:
        Name without the seed -> points with ``percent``, ``pruned``, the mean ``score``, its standard deviation ``sd``
        (n - 1), ``ci``, the 95% interval of the mean by Student's t (both None for one seed), ``seeds``.
    """
    seeded: dict[str, dict[int, list[Done]]] = {}
    for label, points in curves.items():
        seed = curve_seed(label)
        if seed is not None:
            seeded.setdefault(label.removesuffix(f"{SEED}{seed}"), {})[seed] = points
    return {
        label: [
            {
                **{name: points[0][name] for name in ("step", "percent", "pruned")},
                **mean_of(points),
                **{n: statistics.mean(p[n] for p in points) for n in BESIDE if all(n in p for p in points)},
                "seeds": [*of_seed],
            }
            for points in zip(*of_seed.values(), strict=True)
        ]
        for label, of_seed in seeded.items()
    }


def mean_of(cells: Sequence[Done]) -> dict[str, Any]:
    """Return ``score``, the mean of the cells' scores, with ``sd`` and ``ci`` as in :func:`mean_curves`."""
    found = spread([cell["score"] for cell in cells])
    return {"score": found.mean, "sd": found.sd, "ci": None if found.ci is None else list(found.ci)}


def curve_name(label: str) -> str:
    """Return the display name of a pruning curve: a component as in the papers, ``all`` as "All"."""
    return "All" if label == "all" else PAPER_NAMES.get(label, label)


def line(name: str, points: Iterable[Done]) -> dict[str, Any]:
    """Return one curve of a chart."""
    return {"name": name, "points": [{key: point[key] for key in _POINT if key in point} for point in points]}


def share_chart(
    measure: str,
    split: str,
    curves: Mapping[str, Sequence[Done]],
    alpha: float,
    name: str | None = "pruning",
    what: str = "heads pruned",
) -> Curves:
    """Return the chart of scores by share of ``what``; each curve begins with the unpruned model."""
    drawn = [line(curve_name(label), points) for label, points in curves.items()]
    baseline = next(iter(curves.values()))[0]["score"]
    return Curves(f"{measure} on {split} by share of {what}", measure, baseline, drawn, name, alpha)


def curve_table(curves: dict[str, list[Done]], family: Family, caption: str = "") -> Table:
    """Tabulate pruning curves: one row per step, one column per curve, and one for its chrF and COMET if computed.

    Steps that are not done yet are shown as ``-``.
    """
    columns = {curve_name(label): (points, family) for label, points in curves.items()}
    rows = curve_rows(columns)
    header = ["Pruned", *columns]
    for metric, title in BESIDE.items():
        for label, points in curves.items():
            if any(metric in point for point in points):
                header.append(f"{curve_name(label)} ({title})")
                for row, point in zip_longest(rows, points):
                    row.append(f"{point[metric]:.2f}" if point and metric in point else None)
    return Table(header, rows, caption=caption)


def curve_rows(columns: Mapping[str, tuple[Sequence[Done], Family]], digits: int = 2) -> list[list[Any]]:
    """Return one row per step: the share of pruned heads, and each curve's score with its significance mark."""
    rows: list[list[Any]] = []
    for points in zip_longest(*(points for points, _ in columns.values())):
        percent = next(point["percent"] for point in points if point)
        cells = [_shown(point, tests, digits) for point, (_, tests) in zip(points, columns.values(), strict=True)]
        rows.append([f"{percent:.0f}%", *cells])
    return rows


def _shown(point: Done | None, family: Family, digits: int) -> Any:
    if point is None:
        return None
    text = f"{point['score']:.{digits}f}"
    if "sd" not in point:
        return Marked(text, family.mark(point))
    # The unpruned model, where all orders begin, is one score.
    return text if point["sd"] is None or not point["percent"] else f"{text} (sd {point['sd']:.{digits}f})"


def order_name(settings: Mapping[str, Any]) -> str:
    """Return the name of the order in which a study with these settings prunes."""
    return settings["order"] + (", re-estimated" if settings.get("reestimate") else "")


def orders_told(means: Mapping[str, Sequence[Done]]) -> str:
    """Say of how many random orders the means of curves are, empty if there are none."""
    numbers = {len(point["seeds"]) for points in means.values() for point in points if "seeds" in point}
    return " and ".join(f"mean of {n} random orders of one model (sd: over the orders)" for n in sorted(numbers))


def curve_found(label: str, points: list[Done], family: Family, measure: str) -> str:
    """Report how many heads can be pruned before the score drops significantly, and which steps were not tested."""
    total = points[-1]["pruned"]
    worse = [point for point in points if family.nominal(point) and point["score"] < points[0]["score"]]
    if not worse:
        return f"{curve_name(label)}: {total} of {total} heads can go without a significant loss of {measure}"
    first, loss = worse[0], f"without a significant loss of {measure}"
    last = [point for point in points if point["step"] < first["step"]][-1]["pruned"]
    gap = first["pruned"] - last > 1
    count, between = f"{last} of {total} heads", "; numbers between were not tested" if last and gap else ""
    if gap and not last:
        count = f"fewer than {first['pruned']} of {total} heads (not tested)"
    verb, step = "lose" if first["pruned"] > 1 else "loses", f"step {first['step']}, {first['percent']:.0f}%"
    return f"{curve_name(label)}: {count} can go {loss}, {first['pruned']} ({step}) {verb} it{between}{family.too_few}"
