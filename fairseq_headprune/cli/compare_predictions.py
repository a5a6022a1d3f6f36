"""``headprune compare`` for classifiers: predictions of the same labelled examples."""

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from fairseq_headprune.cli.common import Parser, emit, named
from fairseq_headprune.cli.comparison_flags import add_bootstrap_flags, add_output_flags
from fairseq_headprune.evaluation.paired_tests import McNemarTest, TTest
from fairseq_headprune.evaluation.significance import SystemResult
from fairseq_headprune.evaluation.significance_table import bootstrap_p_values, too_few_resamples
from fairseq_headprune.files import sha256
from fairseq_headprune.glue.catalogue import GlueTask, glue_task
from fairseq_headprune.glue.comparison import Compared, compare, values_tested
from fairseq_headprune.glue.metrics import metric_of
from fairseq_headprune.glue.predictions import Predictions, check_same_examples, load_predictions, read_label_lines
from fairseq_headprune.report.tables import Marked, Table, mark_of, render_parts

_DESCRIPTION = """Test predictions of headprune evaluate --predictions against those of the first file, the baseline:
paired t-test of each example's correctness (scores: of its squared error), McNemar's exact test, and paired bootstrap
of the metric. All p are two-sided; p (Holm) is corrected for the number of systems, for each test by itself."""


def run(argv: list[str]) -> int:
    """Run the verb."""
    args = _parser().parse_args(argv)
    if not 0 < args.alpha < 1:
        raise ValueError(f"--alpha must be between 0 and 1, got {args.alpha}")
    paths = [args.first, *args.others]
    if args.glue_task is None:
        labels, systems = None, named([(path, load_predictions(path)) for path in paths])
    else:
        labels, systems = paths[0], _label_lines(glue_task(args.glue_task), *paths)
        paths = paths[1:]
    check_same_examples(systems)
    metric = _metric(args.metric, systems)
    base, found = systems[paths[0]], {name: system.predictions for name, system in systems.items()}
    results = compare(base.task, metric, base.labels, found, args.resamples, args.seed)
    value = _json(args, metric, base, results)
    value["systems"] = [_row(*row, args.alpha) for row in zip(paths, systems.values(), results, strict=True)]
    if labels is not None:
        value["labels"] = {"name": labels, "sha256": sha256(labels)}
    emit(value, args.json, _text(args, metric, base, results))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="headprune compare", description=_DESCRIPTION)
    parser.add_argument("first", metavar="BASE.json", help="predictions of the baseline")
    parser.add_argument("others", metavar="OTHER.json", nargs="+", help="predictions that are compared with it")
    text = "what the bootstrap compares: accuracy, f1, matthews; pearson, spearman; several joined by +"
    parser.add_argument("--metric", metavar="NAME", help=f"{text} (default: the one in the files)")
    text = "the files are texts of one label, or score, a line of this task: the labels, BASE, OTHER …"
    parser.add_argument("--glue-task", metavar="NAME", help=f"{text} (default: files of headprune evaluate)")
    add_bootstrap_flags(parser)
    add_output_flags(parser)
    return parser


def _label_lines(task: GlueTask, labels: str, *paths: str) -> dict[str, Predictions]:
    if len(paths) < 2:
        raise ValueError(f"--glue-task {task.name} needs the labels and two predictions at least: REF SYS1 SYS …")
    return named([(path, read_label_lines(labels, path, task)) for path in paths])


def _metric(asked: Optional[str], systems: Mapping[str, Predictions]) -> str:
    first, base = next(iter(systems.items()))
    for name, system in systems.items():
        if not asked and system.metric != base.metric:
            raise ValueError(f"the metric of {name} is {system.metric}, of {first} {base.metric}: choose with --metric")
    return metric_of(base.task, asked or base.metric)


def _json(args: argparse.Namespace, metric: str, base: Predictions, results: Sequence[Compared]) -> dict[str, Any]:
    return {
        "task": base.task.name,
        "split": base.split,
        "metric": metric,
        "signature": _signature(metric, base),
        "t_test_of": values_tested(base.task),
        "resamples": args.resamples,
        "seed": args.seed,
        "alpha": args.alpha,
        "examples": len(base.ids),
        "baseline": results[0].bootstrap.name,
    }


def _row(path: str, system: Predictions, result: Compared, alpha: float) -> dict[str, Any]:
    bootstrap = result.bootstrap
    row = dataclasses.asdict(bootstrap) | {"ci": list(bootstrap.ci), "significant": bootstrap.mark(alpha)}
    row |= {"t_test": _test(result.t_test, alpha), "mcnemar": _test(result.mcnemar, alpha), "sha256": sha256(path)}
    return row | {name: system.about.get(name) for name in ("checkpoint", "mask", "data")}


def _signature(metric: str, base: Predictions) -> str:
    split = f" {base.split}" if base.split else ""
    ranks = "; Spearman's ranks are those of the whole split" if "spearman" in metric else ""
    positive = f"; F1 of the label {base.task.positive or base.task.labels[-1]}" if "f1" in metric else ""
    return f"{metric} of {base.task.name}{split}, in percent{ranks}{positive}"


def _test(test: TTest | McNemarTest | None, alpha: float) -> Optional[dict[str, Any]]:
    if test is None:
        return None
    mark = {"holm": "**", "raw": "*", "": ""}[mark_of(test.p, test.p_holm, alpha)]
    return dataclasses.asdict(test) | {"significant": mark}


def _text(args: argparse.Namespace, metric: str, base: Predictions, results: Sequence[Compared]) -> str:
    classes = not base.task.is_regression
    header = ["system", metric, "95% interval", *(["lost", "gained"] if classes else []), "t-test"]
    header += ["McNemar"] * classes + ["bootstrap"]
    rows = [_cells(result, args, len(results) - 1, classes) for result in results]
    others = "1 system" if len(results) == 2 else f"{len(results) - 1} systems"
    values = values_tested(base.task)
    notes = [
        f"{_signature(metric, base)}; {len(base.ids)} examples; baseline {results[0].bootstrap.name}",
        f"p (p after Holm's correction for {others}), two-sided; t-test: paired, of each example's {values}",
        f"bootstrap: paired, of {metric}, {args.resamples} resamples, seed {args.seed}",
        _legend(args.alpha, args.format),
    ]
    if classes:
        notes.insert(2, "McNemar: exact, of what only the baseline (lost) or only the system (gained) has right")
    for result in results[1:]:
        said = {"t-test": result.t_test, "McNemar": result.mcnemar}
        notes += [f"{result.bootstrap.name}: {name}: {test.note}" for name, test in said.items() if test and test.note]
    notes += too_few_resamples([result.bootstrap for result in results], args.alpha, args.resamples)
    return render_parts([Table(header, rows), *([""] if args.format == "text" else []), *notes], args.format)


def _legend(alpha: float, form: str) -> str:
    holm, raw = ("bold and underlined:", "underlined only:") if form == "latex" else ("**", "*")
    return f"{holm} p (Holm) < {alpha:g}, {raw} only p < {alpha:g}"


def _cells(result: Compared, args: argparse.Namespace, comparisons: int, classes: bool) -> list[Any]:
    bootstrap = result.bootstrap
    row: list[Any] = [bootstrap.name, f"{bootstrap.score:.2f}", f"{bootstrap.ci[0]:.2f}-{bootstrap.ci[1]:.2f}"]
    if result.t_test is None:
        return row + [None] * (5 if classes else 2)
    row += [result.mcnemar.lost, result.mcnemar.gained] if result.mcnemar else []
    tests: list[TTest | McNemarTest | SystemResult] = [result.t_test, *([result.mcnemar] if result.mcnemar else [])]
    cells = [Marked(f"{_p(t.p)} ({_p(t.p_holm)})", mark_of(t.p, t.p_holm, args.alpha)) for t in tests]
    p, p_holm = bootstrap_p_values(bootstrap, args.resamples, comparisons)
    cells.append(Marked(f"{p} ({p_holm})", mark_of(bootstrap.p, bootstrap.p_holm, args.alpha)))
    return row + cells


def _p(p: float) -> str:
    return f"{p:.3f}" if p >= 0.0005 else f"{p:.0e}" if p > 0 else "0"
