"""How results of studies are shown in the manual: by the tables of their own documents, several results together."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from shown import where

from fairseq_headprune.evaluation.p_values import p_number
from fairseq_headprune.parts import PAPER_NAMES, Mask
from fairseq_headprune.report.described import Column, Described
from fairseq_headprune.report.marks import MARGIN, Family, p_said
from fairseq_headprune.report.speed import levels_table
from fairseq_headprune.report.tables import Marked, Table
from fairseq_headprune.studies.ablate import BY_COMPONENT
from fairseq_headprune.studies.curves import curve_rows, orders_told
from fairseq_headprune.studies.keep_one import layer_table
from fairseq_headprune.studies.pruners.points import COST_NOTE, cost_table, costs
from fairseq_headprune.studies.pruners.results import score_note, score_table, tests_of
from fairseq_headprune.studies.random_tables import mean_tests, paper_tables
from fairseq_headprune.studies.samplings import over_samplings
from fairseq_headprune.studies.study import UNPRUNED
from fairseq_headprune.studies.sweep_result import epoch_table

Value = dict[str, Any]
Values = Mapping[str, Value]


def curves(values: Values) -> Table:
    """The score by share of heads pruned, one column per curve and study; of random orders the mean."""
    columns: dict[str, tuple[list[Value], Family]] = {}
    for name, value in values.items():
        folder, _, stem = name.rpartition("/")
        kind, *words = stem.split("-")
        means, tests = value.get("means", {}), _tests(value)
        for label, points in (means or value["curves"]).items():
            title = [PAPER_NAMES.get(label, label), *(f"({word})" for word in words[1:])] if kind == "prune" else words
            title = " ".join(title)
            columns[f"{folder}, {title}" if folder else title] = points, replace(tests, count=0) if means else tests
    rows = curve_rows(columns, 1 if "metric" in value.get("settings", {}) else 2)
    note = f"{_signatures(values)}; {_legend((tests for _, tests in columns.values()), values.values())}"
    told = orders_told({title: points for title, (points, _) in columns.items()})
    return Table(["pruned", *columns], rows, notes=[f"{note} Random: {told}." if told else note])


def heads(values: Values) -> Table:
    """How many heads matter on their own, by test set and component (summary of Michel's Table 1 and Figure 1)."""
    listed = {name.removeprefix("ablate-"): _listed(value) for name, value in values.items()}
    columns = [Column("Test set", "@file"), *BY_COMPONENT.columns]
    table = replace(BY_COMPONENT, columns=columns, align=f"l{BY_COMPONENT.align}").table(listed)
    legend = _legend((value["tests"] for value in listed.values()), values.values())
    note = f"{_signatures(values)}; layers and heads from 1; {table.notes[0]}; {legend}"
    return replace(table, notes=[note])


def task_heads(values: Values) -> Table:
    """Each head on its own on two sets, and how the effects agree (Michel, Figure 2), a row for each task."""
    tasks: dict[str, Value] = {}
    for name, value in values.items():
        task, stem = name.split("/")
        tasks.setdefault(task, {})[stem] = value
    kept = [_tests(value["keep-one"]) for value in tasks.values()]
    studies = [value for name, value in values.items() if not name.endswith("effects")]
    note = (
        "Of 72 heads, how many change the score when masked alone (p < 0.01 before Holm's correction; "
        f"{_tests(next(iter(tasks.values()))['ablate-train']).limit}), on the development set and on train; "
        "correlation of the effects on both; the largest loss with the best single head of a layer, chosen on train: "
        f"{_legend(kept, studies)}"
    )

    def changed(value: Value) -> str:
        ((_, _, lose, gain, *_),) = BY_COMPONENT.table({"": _listed(value)}).rows
        return f"{lose} / {gain}"

    def correlation(found: Value) -> str:
        return f"{found['value']:+.2f} ({p_said(p_number(found['p']))})"

    def worst(value: Value) -> Marked:
        cell = min(value["cells"], key=lambda cell: cell["delta"])
        return Marked(f"{cell['delta']:+.2f} (layer {cell['layer'] + 1})", _tests(value).mark(cell))

    columns = [
        Column("task", "@file"),
        Column("lose / gain, dev", "ablate-dev", changed),
        Column("lose / gain, train", "ablate-train", changed),
        Column("Pearson", "effects.pearson", correlation),
        Column("Spearman", "effects.spearman", correlation),
        Column("worst layer with one head", "keep-one", worst),
    ]
    return Described(columns, note=note.replace("{", "{{").replace("}", "}}")).table(tasks)


def one_head(values: Values) -> Table:
    """One head kept per layer (Michel, Tables 2 and 5)."""
    (value,) = values.values()
    chosen, on = value["select_data"]["split"], value["data"]["split"]
    tests = _tests(value)
    note = f"Difference on {on} (the one head, chosen on {chosen}, in brackets; layers and heads from 1)"
    table = layer_table(value["cells"], value["passed_over"], tests)
    return replace(table, notes=[f"{note}; {_signatures(values)}; {_legend([tests], [value])}"])


def epochs(values: Values) -> Table:
    """The score at each epoch and the share of it left after pruning (Michel, Figure 5): every second step."""
    (value,) = values.values()
    rows, tests = value["epochs"], _tests(value["epochs"][0] | value)
    table = epoch_table(rows, "all", value["kept_within"]["all"], tests, "BLEU")
    places = [0, 1, *range(3, len(table.header) - 2, 2), len(table.header) - 1]
    header, *lines = ([row[place] for place in places] for row in [table.header, *table.rows])
    share = "Score, and in brackets percent of the epoch's unpruned score, by share of heads pruned"
    notes = [f"{share}; {_signatures(values)}; {_legend([tests], [value])}"]
    return Table(header, lines, notes=notes)


def random(values: Values, paper: Value) -> list[Table]:
    """Random pruning with fine-tuning, beside the paper's differences (Budhraja et al. 2020)."""
    (value,) = values.values()
    margin, baseline = value.get("margin", MARGIN), value["baseline"]
    items, measure = over_samplings(value["items"], baseline, margin), value["settings"].get("metric", "BLEU")
    tests = mean_tests(items, baseline, value["alpha"], margin)
    tables = paper_tables(baseline["score"], Mask(value["settings"]["start"]), items, tests, measure, theirs=paper)
    base = (
        "the unpruned models of the same seeds" if "scores" in baseline else "the baseline, which is not tuned further"
    )
    note = f"Mean of n samplings, each fine-tuned, and difference from {base}; {_signatures(values)}; the mean: "
    return [
        *tables[:-1],
        replace(tables[-1], notes=[f"{note}{tests.legend('the baseline')}. Paper: {paper['source']}."]),
    ]


def pruners(values: Values) -> Table:
    """Scores for every pruning method and number of heads, in the format of Li et al. 2021, Table 3b."""
    (value,) = values.values()
    told = without_statistics([value]) if isinstance(tests_of(value), Family) else ""
    return replace(score_table(value), notes=[score_note(value) + told])


def pruners_costs(values: Values) -> Table:
    """Cost, control and quality of every pruning method: the properties in Li et al. 2021, Table 1, measured."""
    (value,) = values.values()
    found = costs(value["rows"], value["settings"]["updates"])
    return replace(cost_table(found, value["measure"]), notes=[COST_NOTE])


def speed_by_heads(values: Values) -> Table:
    """Speed and size by heads kept, for all devices; not every device was measured at every batch size."""
    by_size = sorted(values.values(), key=lambda value: value["unpruned"]["parameters"])
    return levels_table(*by_size, device=where)


def _tests(value: Value) -> Family:
    """Return a study's family of tests; results that do not record it used 1,000 resamples with seed 12345."""
    how = {"resamples": 1000, "seed": 12345} | value.get("settings", {}) | value
    of_curves = [point for points in value.get("curves", {}).values() for point in points[1:]]
    cells = value.get("items") or of_curves or [cell for cell in value.get("cells", []) if cell.get("id") != UNPRUNED]
    return Family(value["alpha"], how["resamples"], how["seed"], len(cells))


def _listed(value: Value) -> Value:
    return value | {"tests": _tests(value), "first": 1}


def _legend(families: Iterable[Family], studies: Iterable[Value]) -> str:
    """Return the legend for several families of tests, which states what the largest of them cannot show.

    It also says which families have other resamples, and where the results do not hold what their p values come from.
    """
    largest, *smaller = sorted(set(families), key=lambda tests: -tests.count)
    others = [tests for tests in smaller if tests.resamples != largest.resamples]
    more = "".join(f"; {tests.resamples} resamples for studies of {tests.count} tests" for tests in others)
    return f"{largest.legend()}{more}.{without_statistics(studies)}"


def without_statistics(studies: Iterable[Value]) -> str:
    """Say, after a legend, that results lack the sentence statistics that p comes from; empty if none lack them."""
    lacking = [not study.get("statistics") for study in studies]
    if not any(lacking):
        return ""
    which = "The results hold" if all(lacking) else f"{sum(lacking)} of {len(lacking)} results hold"
    return f" {which} no sentence statistics and their translations are not kept: p cannot be computed again."


def _signatures(values: Values) -> str:
    """Return how the scores of studies were computed."""
    found = dict.fromkeys(value["signature"] for value in values.values())
    return "; ".join(f"BLEU, {text}" if text.startswith("nrefs") else text for text in found)


def control(value: Value) -> str:
    """Say what the tests over sentences mark between equivalent models, where there is nothing to find."""
    systems = value["systems"][1:]
    tests = Family(value["alpha"], value["resamples"], value["seed"], len(systems))
    marks = [tests.mark(system) for system in systems]
    found = f"{marks.count('holm')} of {len(marks)} with {{holm}} and {marks.count('raw')} with {{raw}}"
    return (
        f"Control, where there is nothing to find: between {len(value['systems'])} trainings of equivalent models of "
        f"Multi30k the same test marks {found} (compare-models.json)."
    )
