"""Scores and tests of a comparison: means over seeds against the unpruned model (Li et al. 2021, Tables 1 and 3b)."""

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fairseq_headprune.errors import errors_of
from fairseq_headprune.evaluation.hypotheses import read_references
from fairseq_headprune.evaluation.p_values import LEAST, holm
from fairseq_headprune.evaluation.recorded import packed
from fairseq_headprune.files import read_lines
from fairseq_headprune.jobs.methods import base, in_order, place, title
from fairseq_headprune.report.document import Document
from fairseq_headprune.report.marks import MARGIN, Family, TrainingTests, difference_text, small
from fairseq_headprune.report.tables import Marked, Table, mean_and_sd
from fairseq_headprune.studies.mask_study import Comparison
from fairseq_headprune.studies.pruners.points import (
    COST_NOTE,
    Rows,
    cost_table,
    costs,
    methods_compared,
    over_trainings,
    summarise,
)


def document(
    study: Any,
    cells: Mapping[str, Mapping[str, Any]],
    split: str,
    references: Sequence[str] | None,
    how: Comparison,
    margin: float,
) -> Document:
    """Return the scores on a split, the tests of every method and head count, and the cost of each method.

    Args:
        study: a :class:`~fairseq_headprune.studies.pruners.study.ComparePruners`.
        references: default: those of the data.
        margin: of equivalence, in points of the score.

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
    sentences, rows = {}, []
    for cell in mine:
        path = folder.hyp_path(cell["id"])
        with errors_of(path):
            sentences[cell["id"]] = metric.extract(read_lines(path))
        score = float(metric.score(sentences[cell["id"]].sum(axis=0)))
        rows.append({**cell, "score": round(score, 4)})
    rows.sort(key=lambda row: (place(row["method"]), row["seed"], -(row["count"] or 0)))
    points = summarise(rows, sentences, metric.score, how, margin)
    data = {
        "split": split,
        "measure": task.measure,
        "sentences": len(references),
        "signature": metric.signature,
        "bootstrap_seed": how.seed,
        "alpha": how.alpha,
        "margin": margin,
        "settings": study.settings,
        "environments": folder.runs,
        "points": points,
        "mixed_model": _mixed_model(rows),
        "costs": costs(rows, study.settings["updates"]),
        "data_files": task.hashes_found(study.how.data, ("train", "valid", *study.how.splits)),
        "statistics": [{"split": split, **packed(metric, sentences, _partners(rows), _resamples(points), how.seed)}],
        "rows": rows,
    }
    where = {"settings": study.settings, "runs": folder.runs, "study": str(folder.path)}
    found = best_methods(data["points"], task.measure)
    notes = concerns_told(rows) + blindness_told(rows)
    name = f"Pruning methods compared, on {split}"
    return Document(name, result_tables(data), found, notes=notes, data=data, provenance=where)


def concerns_told(rows: Rows) -> list[str]:
    """Say what the orders of rankings hide, and at which numbers of heads, one line for each method and concern."""
    counts: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row in rows:
        for text in row.get("concerns", ()):
            counts[row["method"], text].append(row["count"])
    return [f"{title(method)}, {max(of)} heads and fewer: {text}" for (method, text), of in counts.items()]


def blindness_told(rows: Rows) -> list[str]:
    """Say of how many models no head of encoder-decoder attention is left, one line for each method."""
    found: dict[str, dict[int, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row["count"] is not None and "enc_dec" in row["kept"]:
            found[row["method"]][row["count"]].append(not any("1" in layer for layer in row["kept"]["enc_dec"]))
    lines = []
    for method, of_count in found.items():
        some = [f"{sum(of)} of {len(of)} with {count} heads" for count, of in of_count.items() if any(of)]
        if some:
            lines.append(f"{title(method)}: models without a head of encoder-decoder attention: {', '.join(some)}")
    return lines


def best_methods(points: Sequence[Mapping[str, Any]], measure: str) -> list[str]:
    """Say in one sentence which methods have the highest mean over the trainings that all have, at how many counts."""
    of_count: dict[int, dict[str, dict[int, float]]] = defaultdict(dict)
    for point in points:
        if point["heads"] is not None:
            of_count[point["heads"]][point["method"]] = dict(zip(point["seeds"], point["scores"], strict=True))
    best, numbers = [], set()
    for methods in of_count.values():
        shared = set.intersection(*map(set, methods.values()))
        if shared:
            numbers.add(len(shared))
            best.append(max(methods, key=lambda method: sum(methods[method][seed] for seed in shared)))
    if not best:
        return []
    shares = ", ".join(f"{title(method)} at {count}" for method, count in Counter(best).most_common())
    trainings = " to ".join(map(str, sorted({min(numbers), max(numbers)})))
    what = f"highest mean {measure} over the trainings that all methods have ({trainings})"
    what += f", of {len(best)} numbers of heads"
    return [f"{what}: {shares} (not a test between methods)"]


def _partners(rows: Rows) -> dict[str, str]:
    """Return the id of each row -> that of the unpruned model of its seed."""
    unpruned = {row["seed"]: row["id"] for row in rows if row["method"] == "unpruned"}
    return {row["id"]: unpruned[row["seed"]] for row in rows if row["seed"] in unpruned}


def _resamples(points: Sequence[Mapping[str, Any]]) -> int:
    return next((point["sentences"]["resamples"] for point in points if "sentences" in point), LEAST)


def _mixed_model(rows: Rows) -> dict[str, Any] | None:
    try:
        return methods_compared(rows)
    except ImportError as error:
        print(f"headprune compare-pruners: {error}", file=sys.stderr)
        return None


def points_of(results: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the points of a document's data; those of older versions are made anew from its rows."""
    points = results["points"]
    if all("scores" in point for point in points):
        return points
    found = over_trainings(results["rows"], results.get("margin", MARGIN))
    before = {(point["method"], point["heads"]): point for point in points}
    single = [point for point in found if len(point["seeds"]) == 1 and "p" in before[point["method"], point["heads"]]]
    old = [before[point["method"], point["heads"]] for point in single]
    for point, test, p in zip(single, old, holm([test["p"] for test in old]), strict=True):
        point["sentences"] = {"resamples": results["resamples"], "p": test["p"], "p_holm": p}
    return found


def result_tables(value: Mapping[str, Any]) -> list[Table]:
    """Return the tables of a document's data, with notes."""
    tables = [replace(score_table(value), notes=[score_note(value), ""])]
    if isinstance(tests_of(value), TrainingTests):
        tables.append(replace(difference_table(value), notes=[""]))
        if any("both_levels" in point for point in value["points"]):
            tables.append(replace(both_levels_table(value), notes=[""]))
    if value.get("mixed_model"):
        tables.append(replace(model_table(value["mixed_model"], value["measure"], value["alpha"]), notes=[""]))
    if value["costs"]:
        tables.append(replace(cost_table(value["costs"], value["measure"]), notes=[COST_NOTE]))
    return tables


def tests_of(results: Mapping[str, Any]) -> TrainingTests | Family:
    """Return the tests that a table's marks show: over trainings if some point has two pairs, else over sentences."""
    points = points_of(results)
    differences = [point["difference"] for point in points if "difference" in point]
    if any(found["n"] > 1 for found in differences):
        tests = sum(found["p"] is not None for found in differences)
        return TrainingTests(results["alpha"], tests, results.get("margin", MARGIN))
    found = [point["sentences"] for point in points if "sentences" in point]
    return Family(results["alpha"], _resamples(points), results["bootstrap_seed"], len(found))


def score_table(results: Mapping[str, Any]) -> Table:
    """Tabulate scores as in Table 3b: a row per head count, a column per method, mean ± deviation (trainings).

    Marks: differs from the unpruned models, by the tests of :func:`tests_of`.
    """
    return _by_method(results, _shown)


def difference_table(results: Mapping[str, Any]) -> Table:
    """Tabulate the differences from the unpruned models of the same seeds, with intervals and numbers of pairs."""
    tests = tests_of(results)
    caption = (
        f"Difference in {results['measure']} from the unpruned models of the same seeds: mean, 95% interval over "
        "trainings (Student's t), number of pairs in brackets; = equal within "
        f"±{results['margin']:g} (TOST at {results['alpha']:g}, not corrected)"
    )

    def shown(point: Mapping[str, Any]) -> str | None:
        found = point["difference"]
        same = " =" if isinstance(tests, TrainingTests) and tests.equivalent(found) else ""
        return None if found["mean"] is None else f"{difference_text(found['mean'], found['ci'])} ({found['n']}){same}"

    return replace(_by_method(results, shown), caption=caption)


def both_levels_table(results: Mapping[str, Any]) -> Table:
    """Tabulate the intervals of these differences where trainings and sentences are both samples."""

    def shown(point: Mapping[str, Any]) -> str | None:
        both = point.get("both_levels")
        return difference_text(both["difference"], both["ci"]) if both else None

    caption = (
        f"The same difference in {results['measure']}, with the 95% interval over trainings and sentences "
        "(hierarchical bootstrap; the marks are those of the t-tests)"
    )
    return replace(_by_method(results, shown), caption=caption)


def _by_method(results: Mapping[str, Any], shown: Callable[[Mapping[str, Any]], str | None]) -> Table:
    points, tests = points_of(results), tests_of(results)
    found = {(point["method"], point["heads"]): point for point in points}
    methods = [m for m in in_order(method for method, _ in found) if base(m) != "unpruned"]
    counts = sorted({heads for _, heads in found if heads is not None}, reverse=True)

    def cell(point: Mapping[str, Any] | None) -> Marked | None:
        text = None if point is None else shown(point)
        if point is None or text is None:
            return None
        test = point["difference"] if isinstance(tests, TrainingTests) else point.get("sentences")
        return Marked(text, tests.mark(test) if test else "")

    rows: list[list[Any]] = [[count, *(cell(found.get((m, count))) for m in methods)] for count in counts]
    return Table(["Unpruned Heads", *map(title, methods)], rows)


def score_note(results: Mapping[str, Any]) -> str:
    """Describe the table's numbers, and give the unpruned model's score; marks are placeholders for the renderer."""
    unpruned = [point for point in points_of(results) if point["method"] == "unpruned"]
    base = f"The unpruned model has {_shown(unpruned[0])}. " if unpruned else ""
    over = "mean ± standard deviation over trainings, whose number is in brackets"
    note = f"{base}{results['measure']} on {results['split']}, {results['signature']}; {over}"
    tests = tests_of(results)
    shown = replace(tests, margin=None) if isinstance(tests, TrainingTests) else tests
    return f"{note}; {shown.legend('the unpruned models of the same seeds')}."


def model_table(model: Mapping[str, Any], measure: str, alpha: float) -> Table:
    """Tabulate the methods' differences by the mixed-effects model."""
    reference, tests = title(model["reference"]), TrainingTests(alpha, len(model["methods"]) - 1)
    rows: list[list[Any]] = []
    for method, found in model["methods"].items():
        difference = found["difference"]
        row: list[Any] = [title(method), f"{found['score']:.2f}", None, None, None]
        if difference is not None:
            shown = difference_text(difference["mean"], difference["ci"])
            row[2:] = [Marked(shown, tests.mark(difference)), *map(small, (difference["p"], difference["p_holm"]))]
        rows.append(row)
    caption = (
        f"Methods against {reference}: mean {measure} over {', '.join(map(str, model['counts']))} heads and "
        f"{len(model['seeds'])} seeds that all have; mixed-effects model, score = method + seed (random)"
    )
    return Table(["Method", f"Mean {measure}", "Difference [95% interval]", "p", "p (Holm)"], rows, caption=caption)


def _shown(point: Mapping[str, Any]) -> str:
    return f"{mean_and_sd(point['score'], point['sd'])} ({len(point['seeds'])})"
