"""Generate the manual's tables from the JSON files under examples/*/results, so that no number is typed by hand.

Without arguments, all tables are printed as Markdown. ``--write`` replaces the text between
``<!-- table NAME EXAMPLE -->`` and ``<!-- end -->`` in the manual and the READMEs; a table whose results are missing is
unchanged.
The tables of trained models, their sizes and speed are in bench_tables.py, those of statistics over trainings in
training_tables.py, those of lottery tickets in lottery_tables.py.
"""

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import bench_tables
import lottery_tables
import training_tables
from bench_tables import Value, values

from fairseq_headprune.files import read_json, read_lines, write_text
from fairseq_headprune.parts import HEADS, PAPER_NAMES
from fairseq_headprune.report.document import Document
from fairseq_headprune.report.marks import Family
from fairseq_headprune.report.tables import Marked, Table
from fairseq_headprune.studies.curves import curve_rows
from fairseq_headprune.studies.study import UNPRUNED

_EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
_MARKER = re.compile(r"<!-- table (\S+) (\S+) -->")
#: Tables whose marks are of tests over the sentences of single trainings.
_OF_SENTENCES = {"pruning", "single-heads", "one-head", "orders"}
_TASKS = ("SST-2", "CoLA", "MRPC")


def pruning(results: Path) -> Table:
    """BLEU by share of heads pruned, one column per curve and study."""
    columns, value, found = {}, {}, values(results, "prune-*.json")
    for name, value in found.items():
        words = name.split("-")[2:]
        for label, points in value["curves"].items():
            columns[" ".join([PAPER_NAMES.get(label, label), *(f"({word})" for word in words)])] = points, _tests(value)
    return _by_share(columns, f"BLEU, {value['signature']}", found.values())


def orders(results: Path) -> Table:
    """BLEU by share of heads pruned in order of importance, in an oracle's order, and at random (Michel, Figure 3)."""
    found = values(results, "studies/order-*.json")
    columns = {name.removeprefix("order-"): _curve(value) for name, value in found.items()}
    return _by_share(columns, next(iter(found.values()))["signature"], found.values())


def classifier_orders(results: Path) -> Table:
    """The score by share of heads pruned, one column per task and order (Michel et al., Figures 3b and 6)."""
    found = {task: values(results, f"{task}/order-*.json") for task in _TASKS if (results / task).is_dir()}
    columns = {
        f"{task}, {name.removeprefix('order-')}": _curve(value)
        for task, orders in found.items()
        for name, value in orders.items()
    }
    if not columns:
        raise FileNotFoundError(f"{results}/*/order-*.json")
    studies = [value for orders in found.values() for value in orders.values()]
    return _by_share(columns, "Accuracy, Matthews, mean of accuracy and F1", studies, digits=1)


def single_heads(results: Path) -> Table:
    """Each head on its own: how many matter, by test set and component (summary of Michel's Table 1 and Figure 1)."""
    rows, found = [], values(results, "studies/ablate-*.json", "ablate-*.json")
    for name, value in found.items():
        tests = _tests(value)
        for component in HEADS:
            cells = [cell for cell in value["cells"] if cell["component"] == component]
            worst = min(cells, key=lambda cell: cell["delta"])
            place = f"layer {worst['layer'] + 1}, head {worst['head'] + 1}"
            row = [name.removeprefix("ablate-"), PAPER_NAMES[component], len(cells), *_changed(cells, tests)]
            rows.append([*row, _difference(worst, tests), place])
    header = ["test set", "component", "heads", "lose BLEU (p < 0.01)", "gain BLEU", "largest loss", "where (from 1)"]
    legend = _legend(map(_tests, found.values()), found.values())
    note = f"{value['signature']}; lose, gain: before Holm's correction; {legend}"
    return Table(header, rows, "llrrrrl", notes=[note])


def one_head(results: Path) -> Table:
    """One head kept per layer: the difference for the best one (Michel, Tables 2 and 5)."""
    value = read_json(results / "studies" / "keep-one.json")
    tests, cells = _tests(value), {(cell["component"], cell["layer"]): cell for cell in value["cells"]}
    layers = sorted({layer for _, layer in cells})
    rows = [[layer + 1, *(_difference(cells.get((c, layer)), tests) for c in HEADS)] for layer in layers]
    chosen, shown = value["select_data"]["split"], value["data"]["split"]
    what = f"Difference in BLEU; the head is chosen on {chosen}, the difference is that on {shown}"
    notes = [f"{what}. {value['signature']}; {_legend([tests], [value])}"]
    return Table(["layer", *(PAPER_NAMES[c] for c in HEADS)], rows, notes=notes)


def classifier_heads(results: Path) -> Table:
    """Each head on its own on two sets, and how the effects agree (Michel, Figure 2)."""
    rows: list[list[Any]] = []
    families: list[Family] = []
    studies: list[Value] = []
    for task in (task for task in _TASKS if (results / task / "effects.json").exists()):
        read = {name: read_json(results / task / f"{name}.json") for name in ("effects", "keep-one")}
        row: list[Any] = [task]
        for name in ("dev", "train"):
            value = read_json(results / task / f"ablate-{name}.json")
            row.append(" / ".join(map(str, _changed(value["cells"], _tests(value)))))
        limit = _tests(value).limit
        both = [read["effects"][name] for name in ("pearson", "spearman")]
        row += [f"{found['value']:+.2f} (p = {found['p']:.1g})" for found in both]
        worst = min(read["keep-one"]["cells"], key=lambda cell: cell["delta"])
        families.append(_tests(read["keep-one"]))
        studies += [value, read["keep-one"]]
        text = f"{worst['delta']:+.2f} (layer {worst['layer'] + 1})"
        rows.append([*row, Marked(text, families[-1].mark(worst))])
    if not rows:
        raise FileNotFoundError(f"{results}/*/effects.json")
    header = ["task", "lose / gain, dev", "lose / gain, train", "Pearson", "Spearman", "worst layer with one head"]
    note = (
        f"Of 72 heads, how many change the score when masked alone (p < 0.01 before Holm's correction; {limit}), on "
        "the development set and on train; correlation of the effects on both; the largest loss with the best single "
        f"head of a layer, chosen on train: {_legend(families, studies)}"
    )
    return Table(header, rows, "lrrrrr", notes=[note])


def epochs(results: Path) -> Table:
    """BLEU at each epoch and the share of it left after pruning (Michel, Figure 5)."""
    (value, *_) = values(results, "studies/sweep.json", "sweep.json").values()
    rows, shown = [], (20, 40, 60, 80)
    for row in value["epochs"]:
        left = {round(point["percent"]): point["relative"] for point in row["curves"]["all"]}
        kept = value["kept_within"]["all"][str(row["epoch"])]
        shares = [None if left[share] is None else f"{left[share]:.0%}" for share in shown]
        last = None if kept is None else f"{kept:.0f}%"
        rows.append([row["epoch"], f"{row['baseline']['score']:.2f}", *shares, last])
    header = ["epoch", "unpruned BLEU", *(f"{share}% pruned" for share in shown), "90% kept up to"]
    note = f"Share of each epoch's unpruned BLEU; {value['epochs'][0]['baseline']['signature']}."
    return Table(header, rows, "r" * len(header), notes=[note])


TABLES: dict[str, Callable[[Path], Table]] = {
    "pruning": pruning,
    "single-heads": single_heads,
    "one-head": one_head,
    "orders": orders,
    "epochs": epochs,
    "classifier-orders": classifier_orders,
    "classifier-heads": classifier_heads,
    **training_tables.TABLES,
    **lottery_tables.TABLES,
    **bench_tables.TABLES,
}


def _tests(value: Value) -> Family:
    """Return a study's family of tests; results that do not record it used 1,000 resamples with seed 12345."""
    how = {"resamples": 1000, "seed": 12345} | value.get("settings", {}) | value
    of_curves = [point for points in value.get("curves", {}).values() for point in points[1:]]
    cells = value.get("items") or of_curves or [cell for cell in value.get("cells", []) if cell.get("id") != UNPRUNED]
    return Family(value["alpha"], how["resamples"], how["seed"], len(cells))


def _legend(families: Iterable[Family], studies: Iterable[Value]) -> str:
    """Return the legend for several families of tests, which states what the largest of them cannot show.

    It also says where the results do not hold what their p values come from.
    """
    return f"{max(families, key=lambda tests: tests.count).legend()}.{training_tables.without_statistics(studies)}"


def _curve(value: Value) -> tuple[list[Value], Family]:
    """Return the curve over all heads; for a random order, its means, which are not tested."""
    means = value.get("means", {}).get("all")
    return (means, replace(_tests(value), count=0)) if means else (value["curves"]["all"], _tests(value))


def _by_share(
    columns: Mapping[str, tuple[list[Value], Family]], what: str, studies: Iterable[Value], digits: int = 2
) -> Table:
    """Tabulate curves by share of heads pruned."""
    note = f"{what}; {_legend((tests for _, tests in columns.values()), studies)}"
    return Table(["pruned", *columns], curve_rows(columns, digits), notes=[note])


def _changed(cells: list[Value], tests: Family) -> list[int]:
    """Count the cells with a loss, and with a gain, that is significant by its own test."""
    sure = [cell["delta"] for cell in cells if tests.raw(cell)]
    return [sum(delta < 0 for delta in sure), sum(delta > 0 for delta in sure)]


def _difference(cell: Value | None, tests: Family) -> Marked | None:
    return None if cell is None else Marked(f"{cell['delta']:+.2f}", tests.mark(cell))


def rendered(name: str, example: str) -> str | None:
    """Return a table in Markdown with its notes, or None if its results are missing."""
    results = _EXAMPLES / example / "results"
    try:
        table = TABLES[name](results)
        notes = [*table.notes, *control(results)] if name in _OF_SENTENCES else table.notes
        return Document("", [replace(table, notes=notes)]).render("markdown")
    except FileNotFoundError as error:
        print(f"{name} {example}: no results ({error})", file=sys.stderr)
        return None


def control(results: Path) -> list[str]:
    """Say what the tests over sentences mark between equivalent models, where there is nothing to find."""
    path = results / "compare-models.json"
    if not path.exists():
        return []
    value = read_json(path)
    systems = value["systems"][1:]
    tests = Family(value["alpha"], value["resamples"], value["seed"], len(systems))
    marks = [tests.mark(system) for system in systems]
    return [
        f"Control, where there is nothing to find: between {len(value['systems'])} trainings of equivalent models "
        f"the same test marks {marks.count('holm')} of {len(marks)} with {{holm}} and {marks.count('raw')} with {{raw}}"
        f" ({path.name})."
    ]


def pages() -> list[Path]:
    """Return the Markdown files that may hold tables."""
    root = _EXAMPLES.parent
    return [root / "README.md", *sorted(root.glob("examples/*/README.md")), *sorted(root.glob("docs/**/*.md"))]


def _replaced(lines: list[str], path: Path | str) -> str:
    kept: list[str] = []
    skipping = False
    for number, line in enumerate(lines, 1):
        end = line.strip() == "<!-- end -->"
        if not skipping or end:
            kept.append(line)
        marker = _MARKER.fullmatch(line.strip())
        if marker and "<!-- end -->" not in map(str.strip, lines[number:]):
            raise SystemExit(f"{path}: a table marker has no <!-- end --> after it")
        table = rendered(*marker.groups()) if marker else None
        kept += ["", *table.split("\n"), ""] if table else []
        skipping = bool(table) or skipping and not end
    return "\n".join(kept) + "\n"


def main() -> None:
    """Print the tables or write them into files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    text = "replace the tables in these Markdown files, or in all (default: print the tables)"
    parser.add_argument("--write", metavar="FILE", nargs="*", help=text)
    args = parser.parse_args()
    for path in pages() if args.write == [] else args.write or []:
        write_text(path, _replaced(read_lines(path), path))
    for results in [] if args.write is not None else sorted(_EXAMPLES.glob("*/results")):
        for name in TABLES:
            table = rendered(name, results.parent.name)
            if table is not None:
                print(f"<!-- table {name} {results.parent.name} -->\n\n{table}\n\n<!-- end -->\n")


if __name__ == "__main__":
    main()
