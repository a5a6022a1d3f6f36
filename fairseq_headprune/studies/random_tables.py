"""The tables of a random pruning study: those of Budhraja et al. (2020), and one of all samplings."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fairseq_headprune.evaluation.trainings import against_value, spread
from fairseq_headprune.parts import HEADS, Mask
from fairseq_headprune.parts.notation import format_config, parse_triple
from fairseq_headprune.report.marks import SENTENCES, Family, TrainingTests, difference_text
from fairseq_headprune.report.tables import Marked, Table, fixed
from fairseq_headprune.studies.results import with_holm
from fairseq_headprune.studies.samplings import AT_LEAST_ONE, CONTROL, Item
from fairseq_headprune.studies.study import UNPRUNED, Done

Entry = Mapping[str, Any]
#: caption, kinds of items, first titles, cells of the unpruned model below these, the same of an item
_Form = tuple[str, tuple[str, ...], list[str], list[Any], Callable[[Entry], list[Any]]]


def paper_tables(
    baseline: float,
    start: Mask,
    items: Sequence[Entry],
    tests: TrainingTests,
    measure: str,
    noun: str = "heads",
    theirs: Mapping[str, Any] | None = None,
) -> list[Table]:
    """Return the paper's tables: percentages (Table 1), configurations (2), triples (3), layers (5 and 6).

    Args:
        baseline: score with which the items are compared.
        start: the mask of the unpruned model.
        items: one entry per item: ``kind``, ``text``, ``percent``, ``pruned``, ``config``, and the statistics of
            :func:`~fairseq_headprune.studies.samplings.over_samplings`. Empty tables are omitted.
        tests: the tests of the entries' means.
        noun: the word for what is pruned.
        theirs: the paper's numbers: titles of ``columns``, and the cells of each of its ``items``.
    """
    columns, of_paper = (theirs["columns"], theirs["items"]) if theirs else ([], {})
    none = [None] * len(columns)
    tables = []
    for caption, kinds, header, first, cells in _forms(start, noun):
        mine = [item for item in items if item["kind"] in kinds]
        rows = [[*cells(item), *_score(item, tests), *of_paper.get(item.get("item"), none)] for item in mine]
        if rows:
            whole = [[*first, f"{baseline:.2f}", None, None, None, *none], *rows]
            tables.append(Table([*header, measure, "95% interval", "sd", "n", *columns], whole, caption=caption))
    return tables


def _forms(start: Mask, noun: str) -> list[_Form]:
    full = {component: n["kept"] for component, n in start.counts().items()}
    config = format_config(start)
    return [
        (
            f"{noun.capitalize()} pruned at random",
            (CONTROL, "random"),
            ["% Pruning"],
            ["0 (Baseline)"],
            lambda item: [_percentage(item, noun)],
        ),
        (
            "Heads kept in each layer",
            ("config",),
            ["%", *config],
            ["0", *config.values()],
            lambda item: [f"{item['percent']:.0f}", *item["config"].values()],
        ),
        (
            "Heads kept in each component",
            ("triple",),
            ["Pruning %", "ES, ED, DS"],
            ["Baseline", _triple(full)],
            lambda item: [f"{item['percent']:.0f}%", _triple(parse_triple(item["text"]))],
        ),
        (
            f"Layers without {noun}",
            ("layers",),
            ["Layers pruned", "%"],
            ["0 (Baseline)", None],
            lambda item: [_layers(item["text"]), f"{item['percent']:.0f}"],
        ),
    ]


def mean_tests(items: Sequence[Entry], baseline: Entry, alpha: float, margin: float) -> TrainingTests:
    """Return the family of the tests of the items' means."""
    pairs = "paired t-test over the samplings, each with the control of its seed"
    test = pairs if "scores" in baseline else "one-sample t-test of the samplings against that one checkpoint"
    return TrainingTests(alpha, sum(item["difference"]["p"] is not None for item in items), margin, test)


def interval(item: Entry, tests: TrainingTests) -> str | None:
    """Return the interval of an item's difference over samplings, with = where it is equal within the margin."""
    ci = item["difference"]["ci"]
    return None if ci is None else f"{ci[0]:+.2f} to {ci[1]:+.2f}{' =' if tests.equivalent(item['difference']) else ''}"


def by_item(items: Sequence[Item], cells: Mapping[str, Done]) -> tuple[Done | None, dict[str, list[Done]]]:
    """Return the unpruned model's cell (None if not done), and item -> finished samplings in the study's order.

    ``p_holm`` is corrected over the finished samplings only; items without one are omitted.
    """
    done = dict(cells)
    unpruned = done.pop(UNPRUNED, None)
    tested = sorted(with_holm(list(done.values())), key=lambda cell: cell["seed"])
    found = {item.name: [cell for cell in tested if cell["item"] == item.name] for item in items}
    return unpruned, {name: cells for name, cells in found.items() if cells}


def samplings_table(
    unpruned: Done, items: Sequence[Sequence[Done]], tests: Family, measure: str, caption: str
) -> Table:
    """Return a table with a row for the unpruned model and one per item: its mean, and how many samplings differ.

    The difference has its 95% interval over the samplings (Student's t).

    Args:
        unpruned: the cell of the unpruned model.
        items: the samplings of each item, as cells with ``p_holm``; at least one.
    """
    header = ["pruned", "heads kept", measure, "difference", "sd", "samplings", "worse / better"]
    rows: list[list[Any]] = [["0%", "all (unpruned)", f"{unpruned['score']:.2f}", None, None, None, None]]
    for cells in items:
        scores = [cell["score"] for cell in cells]
        over, apart = spread(scores), against_value(unpruned["score"], scores)
        assert apart.mean is not None
        worse, better = differing(unpruned, cells, tests)
        row: list[Any] = [f"{cells[0]['percent']:.0f}%", kept_heads(cells[0]), f"{over.mean:.2f}"]
        row += [difference_text(apart.mean, apart.ci), fixed(over.sd)]
        rows.append([*row, over.n, f"{worse} / {better}"])
    return Table(header, rows, "llrrrrr", caption)


def differing(unpruned: Done, cells: Sequence[Done], tests: Family) -> tuple[int, int]:
    """Count the samplings that are significantly worse, and better, than the unpruned model."""
    better = [cell["score"] > unpruned["score"] for cell in cells if tests.significant(cell)]
    return better.count(False), better.count(True)


def differing_caption(tests: Family) -> str:
    """Explain "worse / better" for the family of all finished samplings."""
    return (
        f"worse / better: how many samplings differ from the unpruned model at p < {tests.alpha:g} after Holm's "
        f"correction over all {tests.count} ({SENTENCES}, {tests.resamples} resamples, seed {tests.seed})"
        + (f"; {tests.limit}" if tests.limit else "")
    )


def kept_heads(item: Entry) -> str:
    """Describe which heads an item keeps, in the words of Budhraja et al. 2020.

    Args:
        item: an entry or a cell of the study: ``kind``, ``text``, ``mirror``, and ``config`` of a configuration.
    """
    if item["kind"] == "config":
        return " ".join(item["config"].values()) + (" (mirror)" if item["mirror"] else "")
    words = {
        CONTROL: "all, fine-tuned",
        "triple": f"({item['text']})",
        "layers": f"no layers {item['text'].replace(':', ' ')}",
    }
    return words.get(item["kind"], "random, one a layer at least" if item["text"].endswith(AT_LEAST_ONE) else "random")


def _percentage(item: Entry, noun: str) -> str:
    if item["kind"] == CONTROL:
        return "0, fine-tuned"
    amount, *rest = item["text"].split(":")
    share = amount.removesuffix("%") if amount.endswith("%") else f"{item['percent']:.0f} ({item['pruned']} {noun})"
    return ", ".join([share, *rest])


def _score(item: Entry, tests: TrainingTests) -> list[Any]:
    text = f"{item['score']:.2f} ({item['delta']:+.2f})"
    return [Marked(text, tests.mark(item["difference"])), interval(item, tests), fixed(item["sd"]), item["samplings"]]


def _triple(kept: Mapping[str, int]) -> str:
    return "(" + ",".join(str(kept.get(component, 0)) for component in HEADS) + ")"


def _layers(text: str) -> str:
    return text.replace(":", " ").replace(",", ", ").capitalize()
