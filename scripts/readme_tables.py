"""Make the README's tables from the JSON files under examples/*/results, so that no figure is typed by hand.

Without arguments every table is printed as Markdown. ``--write FILE`` replaces in a Markdown file what stands between
``<!-- table NAME EXAMPLE -->`` and ``<!-- end -->``; a table whose results are missing stays as it is.
"""

import argparse
import re
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import shown
from glue_result_tables import (
    bench_finetune,
    classifier_heads,
    classifier_orders,
    classifier_pruners,
    classifier_random,
    fine_tuned,
)
from random_pruning_table import random_pruning, random_samplings
from removal_result_tables import ablation_speed, removal, speed
from speed_result_tables import speed_by_heads
from study_result_tables import epochs, one_head, orders, single_heads

from fairseq_headprune.files import read_json, read_lines, write_text
from fairseq_headprune.parts import PAPER_NAMES
from fairseq_headprune.report.tables import Marked, Table
from fairseq_headprune.studies.pruners.tables import COST_NOTE, cost_table, score_note, score_table

_EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
_MARKER = re.compile(r"<!-- table (\S+) (\S+) -->")


def training(results: Path) -> str:
    """BLEU of every trained model, and the mean of each architecture."""
    value = read_json(results / "train.json")
    runs = value["runs"]
    sets = [name for name in ("test2016", "test2017", "mscoco2017") if name in runs[0]]
    rows: list[list[Any]] = []
    for run in runs:
        cells = [f"{run[name]['bleu']:.2f}" for name in sets]
        rows.append([run["arch"], run["seed"], *cells, run["best_epoch"], f"{run['valid_loss']:.3f}"])
    for arch in dict.fromkeys(run["arch"] for run in runs):
        of_arch = [run for run in runs if run["arch"] == arch]
        means = [f"{statistics.mean(run[name]['bleu'] for run in of_arch):.2f}" for name in sets]
        rows.append([arch, "mean", *means, "", f"{statistics.mean(run['valid_loss'] for run in of_arch):.3f}"])
    table = Table(["architecture", "seed", *sets, "best epoch", "valid loss"], rows)
    note = f"BLEU, {runs[0][sets[0]]['signature']}; {_where(value['environment'])}."
    return _with_note(table, f"{note} {_difference(runs, sets)}")


def _difference(runs: list[dict], sets: list[str]) -> str:
    """Say how far the means of gated and stock models are apart, with Welch's t over seeds."""
    parts = []
    for name in sets:
        sides: list[list[float]] = [[], []]
        for run in runs:
            sides["gated" in run["arch"]].append(run[name]["bleu"])
        stock, gated = sides
        apart = statistics.mean(gated) - statistics.mean(stock)
        error = (statistics.variance(stock) / len(stock) + statistics.variance(gated) / len(gated)) ** 0.5
        parts.append(f"{name} {apart:+.2f} (Welch's t {apart / error:.2f})")
    return f"Gated minus stock, means: {', '.join(parts)}."


def pruning(results: Path) -> str:
    """BLEU by share of heads pruned, one column a curve of every study."""
    columns: dict[str, list[dict]] = {}
    for path in sorted(results.glob("prune-*.json")):
        value = read_json(path)
        rest = path.stem.removeprefix("prune-").split("-")[1:]
        for label, points in value["curves"].items():
            name = PAPER_NAMES.get(label, "all" if label == "all" else label)
            columns[" ".join([name, *(f"({word})" for word in rest)])] = points
    if not columns:
        raise FileNotFoundError(f"{results}/prune-*.json")
    alpha = value["alpha"]
    percents = sorted({point["percent"] for points in columns.values() for point in points})
    by_percent = [{point["percent"]: _point(point, alpha) for point in points} for points in columns.values()]
    rows = [[f"{percent:.0f}%", *(points.get(percent) for points in by_percent)] for percent in percents]
    table = Table(["pruned", *columns], rows)
    marks = f"** differs from the unpruned model at p < {alpha:g} after Holm's correction, * only before it"
    return _with_note(table, f"BLEU, {value['signature']}; {marks} (paired bootstrap).")


def comparison(results: Path) -> str:
    """BLEU of every pruning method and number of heads, in the form of Li et al. 2021, Table 3b."""
    value = read_json(results / "compare.json")
    return _with_note(score_table(value["points"], value["alpha"]), score_note(value))


def comparison_costs(results: Path) -> str:
    """Cost, control and quality of every pruning method: Li et al. 2021, Table 1, measured."""
    value = read_json(results / "compare.json")
    return _with_note(cost_table(value["costs"], value["measure"]), COST_NOTE)


def bench_train(results: Path) -> str:
    """Training speed of every side, by device."""
    rows = []
    for value, side, found in _sides(results, "bench-train-*.json"):
        speed, words = shown(found["speed_to_stock"]), shown(found["words_per_second"], 0)
        rows.append([_device(value), side, shown(found["ms_per_update"], 1), words, speed])
    header = ["device", "model", "ms/update", "words/s", "speed (stock = 1)"]
    return _with_note(Table(header, rows, "llrrr"), f"Median (min-max) of {value['rounds']} interleaved rounds.")


def bench_score(results: Path) -> str:
    """Cost of scoring against a plain forward and backward pass, by device."""
    rows = []
    for path in sorted(results.glob("bench-score-*.json")):
        value = read_json(path)
        peaks, gates = value["peak_bytes"], value["gates"]
        extra = (peaks["score"] - peaks["plain"]) / 2**20 if peaks["score"] else None
        ratios = [shown(value["time_to_plain"]), shown(value["time_to_stock"])]
        memory = None if extra is None else f"{extra:+,.1f}"
        size = f"{gates['layers']} x {gates['bytes_per_layer'] / 1024:.1f} KiB"
        rows.append([_device(value), shown(value["seconds"]["score"], 2), *ratios, memory, size])
    if not rows:
        raise FileNotFoundError(f"{results}/bench-score-*.json")
    header = ["device", "seconds", "time / plain", "time / stock", "extra peak MiB", "gates"]
    return _with_note(Table(header, rows), f"Median (min-max) of {value['rounds']} interleaved rounds.")


def bench_bootstrap(results: Path) -> str:
    """The bootstrap of many systems, ours and compare-mt's."""
    value = read_json(results / "bench-bootstrap.json")
    cpus = f"{value['environment']['cpus']} CPUs"
    rows = [
        ["headprune compare, all systems", shown(value["ours_seconds_all_systems"])],
        ["compare-mt, one pair", shown(value["compare_mt_seconds_per_pair"])],
        ["compare-mt, all pairs (extrapolated)", f"{value['compare_mt_seconds_all_pairs_extrapolated']:,.0f}"],
        ["times faster (extrapolated)", f"{value['times_faster_extrapolated']:,.0f}"],
    ]
    what = f"{value['systems']} systems, {value['sentences']} sentences, {value['resamples']} resamples, {cpus}"
    return (
        f"{Table(['', 'seconds'], rows).render('markdown')}\n\n{what}; median (min-max) of {value['repeats']} repeats."
    )


TABLES: dict[str, Callable[[Path], str]] = {
    "training": training,
    "pruning": pruning,
    **{
        name: lambda results, make=make: _with_note(*make(results))
        for name, make in {
            "random": random_pruning,
            "random-samplings": random_samplings,
            "single-heads": single_heads,
            "one-head": one_head,
            "orders": orders,
            "epochs": epochs,
            "removal": removal,
            "speed": speed,
            "speed-by-heads": speed_by_heads,
            "bench-ablation": ablation_speed,
            "fine-tuned": fine_tuned,
            "classifier-orders": classifier_orders,
            "classifier-heads": classifier_heads,
            "classifier-pruners": classifier_pruners,
            "classifier-random": classifier_random,
            "bench-finetune": bench_finetune,
        }.items()
    },
    "comparison": comparison,
    "comparison-costs": comparison_costs,
    "bench-train": bench_train,
    "bench-score": bench_score,
    "bench-bootstrap": bench_bootstrap,
}


def _sides(results: Path, pattern: str) -> list[tuple[dict, str, dict]]:
    values = [read_json(path) for path in sorted(results.glob(pattern))]
    if not values:
        raise FileNotFoundError(f"{results}/{pattern}")
    return [(value, name, side) for value in values for name, side in value["sides"].items()]


def _device(value: dict) -> str:
    environment = value["environment"]
    machine = environment["gpu"] if value["device"] == "cuda" else f"{environment['threads']} CPU threads"
    return f"{machine}, {value['precision']}"


def _where(environment: dict) -> str:
    return f"{environment['gpu'] or 'CPU'}, torch {environment['torch']}, Python {environment['python']}"


def _point(point: dict, alpha: float) -> Marked:
    mark = "holm" if point["p_holm"] < alpha else "raw" if point["p"] < alpha else ""
    return Marked(f"{point['score']:.2f}", mark)


def _with_note(table: Table, note: str) -> str:
    escaped = note.replace("*", "\\*")
    return f"{table.render('markdown')}\n\n{escaped}"


def _table(name: str, example: str) -> str | None:
    try:
        return TABLES[name](_EXAMPLES / example / "results")
    except FileNotFoundError as error:
        print(f"{name} {example}: no results ({error})", file=sys.stderr)
        return None


def _replaced(lines: list[str], path: str) -> str:
    kept: list[str] = []
    inside: list[str] | None = None
    for line in lines:
        marker = _MARKER.fullmatch(line.strip())
        if marker:
            kept.append(line)
            table = _table(*marker.groups())
            inside = [] if table is None else ["", *table.split("\n"), ""]
            replace = table is not None
        elif inside is not None and line.strip() == "<!-- end -->":
            kept += [*inside, line]
            inside = None
        elif inside is None:
            kept.append(line)
        elif not replace:
            inside.append(line)
    if inside is not None:
        raise SystemExit(f"{path}: a table marker has no <!-- end --> after it")
    return "\n".join(kept) + "\n"


def main() -> None:
    """Print the tables or write them into a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", metavar="FILE", help="replace the tables in this Markdown file (default: print all)")
    args = parser.parse_args()
    if args.write:
        write_text(args.write, _replaced(read_lines(args.write), args.write))
        return
    for results in sorted(_EXAMPLES.glob("*/results")):
        for name in TABLES:
            table = _table(name, results.parent.name)
            if table is not None:
                print(f"<!-- table {name} {results.parent.name} -->\n\n{table}\n\n<!-- end -->\n")


if __name__ == "__main__":
    main()
