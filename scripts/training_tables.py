"""The README's tables of statistics over trainings: random pruning, and pruning methods compared."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench_tables import Value, values

from fairseq_headprune.files import read_json
from fairseq_headprune.report.marks import MARGIN, Family
from fairseq_headprune.report.tables import Marked, Table
from fairseq_headprune.studies.pruners.points import COST_NOTE, cost_table, costs
from fairseq_headprune.studies.pruners.results import score_note, score_table, tests_of
from fairseq_headprune.studies.random_means import over_samplings
from fairseq_headprune.studies.random_tables import interval, kept_heads, mean_tests


def random_pruning(results: Path) -> Table:
    """Random pruning with fine-tuning, compared with the paper's differences (Budhraja et al. 2020, Tables 1 to 3)."""
    value = read_json(results / "random.json")
    note = (
        f"BLEU, {value['signature']}; the baseline is not tuned further; {{tests}}. The paper's columns: its "
        "differences from its own baselines."
    )
    header = ["pruned", "heads kept", "BLEU", "difference", "95% interval", "sd", "n"]
    return _random(value, results, header, "all (baseline)", kept_heads, note)


def classifier_random(results: Path) -> Table:
    """Random heads and whole layers pruned before fine-tuning on SST-2, compared with the paper's (Tables 4 to 6)."""
    value = read_json(results / "random-SST-2.json")
    note = (
        f"difference from the unpruned models of the same seeds; {value['signature']}; {{tests}}. "
        "The paper's differences are BERT-base's, for the same shares of its layers."
    )
    return _random(
        value, results, ["pruned", "what", "accuracy", "difference", "95% interval", "sd", "n"], "none", _pruned, note
    )


def _pruned(item: Value) -> str:
    return "random heads" if item["kind"] == "random" else f"layers {item['text'].replace(':', ' ')}"


def _random(
    value: Value, results: Path, header: list[str], whole: str, name: Callable[[Value], str], note: str
) -> Table:
    """Tabulate the means of a study's items, the unpruned model first, next to examples/NAME/paper-random.json."""
    paper, margin = read_json(results.parent / "paper-random.json"), value.get("margin", MARGIN)
    items = over_samplings(value["items"], value["baseline"], margin)
    tests = mean_tests(items, value["baseline"], value["alpha"], margin)
    none = [None] * len(paper["columns"])
    rows: list[list[Any]] = [["0%", whole, f"{value['baseline']['score']:.2f}", None, None, None, None, *none]]
    for item in items:
        spread = None if item["sd"] is None else f"{item['sd']:.2f}"
        difference = Marked(f"{item['delta']:+.2f}", tests.mark(item["difference"]))
        row = [f"{item['percent']:.0f}%", name(item), f"{item['score']:.2f}", difference, interval(item, tests), spread]
        rows.append([*row, item["samplings"], *paper["items"].get(item["item"], none)])
    header = [*header, *paper["columns"]]
    base = "the baseline" if whole.endswith("(baseline)") else "unpruned"
    notes = [f"Mean of n samplings, each fine-tuned; {note.format(tests=tests.legend(base))}"]
    return Table(header, rows, "ll" + "r" * (len(header) - 2), notes=notes)


def comparison(results: Path) -> Table:
    """Scores for every pruning method and number of heads, in the format of Li et al. 2021, Table 3b."""
    (value,) = values(results, "compare.json", "pruners-*.json").values()
    of_sentences = isinstance(tests_of(value), Family)
    return replace(
        score_table(value), notes=[score_note(value) + (without_statistics([value]) if of_sentences else "")]
    )


def without_statistics(studies: Iterable[Value]) -> str:
    """Say, after a legend, that results lack the sentence statistics that p comes from; empty if none lack them."""
    lacking = [not study.get("statistics") for study in studies]
    if not any(lacking):
        return ""
    which = "The results hold" if all(lacking) else f"{sum(lacking)} of {len(lacking)} results hold"
    return f" {which} no sentence statistics and their translations are not kept: p cannot be computed again."


def comparison_costs(results: Path) -> Table:
    """Cost, control and quality of every pruning method: the properties in Li et al. 2021, Table 1, measured."""
    value = read_json(results / "compare.json")
    found = costs(value["rows"], value["settings"]["updates"])
    return replace(cost_table(found, value["measure"]), notes=[COST_NOTE])


TABLES: dict[str, Callable[[Path], Table]] = {
    "random": random_pruning,
    "classifier-random": classifier_random,
    "classifier-pruners": comparison,
    "comparison": comparison,
    "comparison-costs": comparison_costs,
}
