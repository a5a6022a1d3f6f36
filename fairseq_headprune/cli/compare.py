"""``headprune compare``: are one system's translations or labels better than another's, or is it chance?"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from fairseq_headprune.cli.common import Parser, add_output_flags, check_alpha, emit
from fairseq_headprune.cli.compared_files import are_predictions, predictions, translations
from fairseq_headprune.cli.study_flags import add_keep_marks_flag, add_test_flags
from fairseq_headprune.evaluation.compare_mt import SAMPLE_FRACTION, compare_mt_bootstrap
from fairseq_headprune.evaluation.p_values import LEAST, enough_resamples, p_text
from fairseq_headprune.evaluation.paired_tests import Compared, Subject, compare
from fairseq_headprune.evaluation.recorded import packed
from fairseq_headprune.evaluation.significance import SystemResult
from fairseq_headprune.evaluation.statistics import METRICS, TOKENISED
from fairseq_headprune.progress import Bar
from fairseq_headprune.report.document import Document
from fairseq_headprune.report.marks import SENTENCES, Family, resamples_notice, small
from fairseq_headprune.report.tables import MARKS, Marked, Table, mark_of

_DESCRIPTION = """Paired bootstrap resampling (Koehn 2004) of translation systems against the first one, the
baseline. Wins, losses and ties are the system's, as shares of the resamples. p is two-sided; p (Holm) is corrected
for the number of systems. Files have one sentence a line or are fairseq-generate's output (the best hypothesis of
each id, D- lines before H- lines). Where a reference is empty, BLEU counts the words of its translation as wrong and
chrF leaves the sentence out. Predictions of headprune evaluate --predictions are compared without REF, by a paired
t-test of each example's correctness (scores: of its squared error), McNemar's exact test and the bootstrap of the
metric, each with a correction of its own: headprune compare BASE.json OTHER.json … With --glue-task NAME files of one
label a line are compared so: REF SYS1 SYS …"""


def run(argv: list[str]) -> int:
    """Run the verb."""
    parser = _parser()
    args = parser.parse_args(argv)
    check_alpha(args)
    labelled = are_predictions(args)
    if args.glue_task is not None and len(args.files) < 3:
        raise ValueError(f"--glue-task {args.glue_task} needs the labels and two predictions at least: REF SYS1 SYS …")
    if len(args.files) < (2 if labelled else 3):
        parser.error(f"the following arguments are required: {'OTHER.json' if labelled else 'SYS'}")
    subject = (predictions if labelled else translations)(args)
    count = len(subject.answers) - 1
    if args.resamples is None:
        args.resamples = enough_resamples(count, args.alpha)
        if args.resamples > LEAST:
            print(f"headprune compare: {resamples_notice(args.resamples, count, args.alpha)}", file=sys.stderr)
    fraction = subject.facts.get("sample_fraction", 1.0)
    results = compare(subject, args.resamples, args.seed, fraction)
    document = _document(Family(args.alpha, args.resamples, args.seed, count), subject, results)
    if args.json:
        statistics = {name: subject.metric.extract(answers) for name, answers in subject.answers.items()}
        against = dict.fromkeys(list(statistics)[1:], next(iter(statistics)))
        record = packed(subject.metric, statistics, against, args.resamples, args.seed, fraction)
        document.data["statistics"] = [record]
    if args.engine == "compare-mt":
        document.notes += _add_compare_mt(args, subject, document.data)
    emit(document.data, args.json, document.render(args.format))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="headprune compare", description=_DESCRIPTION)
    text = "the references, the baseline's translations, and others; or predictions, the baseline's first"
    parser.add_argument("files", metavar="FILE", nargs="+", help=text)
    text = f"what the bootstrap compares: {' or '.join(METRICS)}, or of classifiers accuracy, f1, matthews, pearson, "
    text += "spearman, several joined by + (default: bleu; the one in the files of predictions)"
    parser.add_argument("--metric", metavar="NAME", help=text)
    parser.add_argument("--tokenize", metavar="NAME", help="sacrebleu's tokeniser for BLEU (default: 13a)")
    parser.add_argument(
        "--bleu",
        choices=("sacrebleu", TOKENISED),
        default="sacrebleu",
        help="tok: BLEU of text that is tokenised already, equal to multi-bleu.perl",
    )
    add_keep_marks_flag(parser)
    text = "the files are texts of one label, or score, a line of this task: the labels, BASE, OTHER …"
    parser.add_argument("--glue-task", metavar="NAME", help=text)
    add_test_flags(parser, "--seed")
    parser.add_argument(
        "--sample-fraction",
        type=float,
        metavar="F",
        help="size of a draw as a share of the test set (default: 1.0; compare-mt's own is 0.5)",
    )
    parser.add_argument(
        "--engine",
        choices=("headprune", "compare-mt"),
        default="headprune",
        help="compare-mt: run compare-mt's bootstrap too and report it beside ours",
    )
    add_output_flags(parser)
    return parser


def _json(tests: Family, subject: Subject, results: Sequence[Compared]) -> dict[str, Any]:
    rows = []
    for result, facts in zip(results, subject.rows, strict=True):
        bootstrap = result.bootstrap
        row = asdict(bootstrap) | {"ci": list(bootstrap.ci), "significant": MARKS[_mark(tests, bootstrap)]}
        row |= {key: _test(test, tests.alpha) for key, test in result.tests.items()}
        rows.append({**({"mcnemar": None} if subject.tests else {}), **row, **facts})
    return {
        "metric": subject.metric.name,
        "signature": subject.metric.signature,
        "resamples": tests.resamples,
        "seed": tests.seed,
        "alpha": tests.alpha,
        "baseline": results[0].bootstrap.name,
        **subject.facts,
        "systems": rows,
    }


def _test(test: Any, alpha: float) -> dict[str, Any] | None:
    if test is None:
        return None
    return asdict(test) | {"significant": MARKS[mark_of(test.p, test.p_holm, alpha)]}


def _document(tests: Family, subject: Subject, results: Sequence[Compared]) -> Document:
    """Return the document; ``tests`` are the bootstraps, one for each system except the baseline."""
    systems = [result.bootstrap for result in results]
    table = _test_table(tests, subject, results) if subject.tests else _bootstrap_table(tests, systems)
    notes, baseline = list(subject.notes), systems[0].name
    if subject.tests:
        notes.append(
            f"bootstrap: paired, of {subject.metric.name}, {tests.resamples} resamples, seed {tests.seed}; all tests: "
            "this model against that model, not one method against another; "
            f"{{holm}} p (Holm) < {tests.alpha:g}, {{raw}} only p < {tests.alpha:g}"
        )
    else:
        marks = f"{{raw}} {'only ' if tests.fine else ''}p < {tests.alpha:g}"
        marks = f"{{holm}} p (Holm) < {tests.alpha:g}, {marks}" if tests.fine else f"{marks} before Holm's correction"
        how = f"{SENTENCES}; {tests.resamples} resamples, seed {tests.seed}"
        notes.append(f"{how}; wins are the system's against {baseline}; {marks}")
        notes += [f"{r.name}: no difference to the baseline in any resample" for r in systems[1:] if r.ties == 1]
    labels = {test.key: test.label for test in subject.tests}
    for result in results[1:]:
        said = {labels[key]: test for key, test in result.tests.items()}
        notes += [f"{result.bootstrap.name}: {name}: {test.note}" for name, test in said.items() if test and test.note]
    notes += [f"bootstrap: {tests.limit}"] if tests.limit else []
    title = f"{subject.metric.name} of systems against {baseline}"
    return Document(title, [replace(table, notes=[""])], notes=notes, data=_json(tests, subject, results))


def _mark(tests: Family, result: SystemResult) -> str:
    return tests.mark({"p": result.p, "p_holm": result.p_holm})


def _bootstrap_table(tests: Family, systems: Sequence[SystemResult]) -> Table:
    rows: list[list[Any]] = []
    for result in systems:
        row: list[Any] = [result.name, f"{result.score:.2f}", f"{result.ci[0]:.2f}-{result.ci[1]:.2f}"]
        rows.append(row)
        if len(rows) == 1:
            row += [*[None] * 5, ""]  # the baseline is not tested
            continue
        row += [f"{100 * share:.1f}%" for share in (result.wins, result.losses, result.ties)]
        row += [*_p_values(tests, result), MARKS[_mark(tests, result)]]
    header = ["system", "score", "95% interval", "wins", "losses", "ties", "p", "p (Holm)", ""]
    return Table(header, rows, align="lrrrrrrrl")


def _test_table(tests: Family, subject: Subject, results: Sequence[Compared]) -> Table:
    counts = any(test.key == "mcnemar" for test in subject.tests)
    labels = [*(["lost", "gained"] if counts else []), *(test.label for test in subject.tests), "bootstrap"]
    rows: list[list[Any]] = []
    for result in results:
        bootstrap = result.bootstrap
        row: list[Any] = [bootstrap.name, f"{bootstrap.score:.2f}", f"{bootstrap.ci[0]:.2f}-{bootstrap.ci[1]:.2f}"]
        rows.append(row)
        if result is results[0]:
            row += [None] * len(labels)
            continue
        mcnemar: Any = result.tests.get("mcnemar")
        row += [mcnemar.lost, mcnemar.gained] if counts else []
        for test in result.tests.values():
            assert test is not None
            text = None if test.p is None else f"{small(test.p)} ({small(test.p_holm)})"
            row.append(text and Marked(text, mark_of(test.p, test.p_holm, tests.alpha)))
        p, p_holm = _p_values(tests, bootstrap)
        row.append(Marked(f"{p} ({p_holm})", _mark(tests, bootstrap)))
    return Table(["system", subject.metric.name, "95% interval", *labels], rows)


def _p_values(tests: Family, result: SystemResult) -> list[str]:
    return [p_text(result.p, tests.resamples), p_text(result.p, tests.resamples, result.p_holm, tests.count)]


def _add_compare_mt(args: argparse.Namespace, subject: Subject, value: dict[str, Any]) -> list[str]:
    """Add compare-mt's result to the JSON value of every system except the baseline, and return it as lines."""
    from fairseq_headprune.evaluation.hypotheses import read_references

    metric: Any = subject.metric
    fraction = SAMPLE_FRACTION if args.sample_fraction is None else args.sample_fraction
    tokens = {name: list(map(metric.tokens, lines)) for name, lines in subject.answers.items()}
    expected = list(map(metric.tokens, read_references(args.files[0]).lines))
    lines = [f"compare-mt, resamples of {fraction:g} of the sentences (its ties include the system's losses):"]
    baseline = value["baseline"]
    for row in (bar := Bar("compare-mt", "system", value["systems"][1:])):
        bar.part(row["name"])
        systems = expected, tokens[baseline], tokens[row["name"]]
        theirs = compare_mt_bootstrap(*systems, args.resamples, args.seed, fraction)
        row["compare_mt"] = asdict(theirs) | {"ci": list(theirs.ci), "sample_fraction": fraction}
        # Without a resample against the difference only a bound is known.
        none = theirs.p <= 0
        row["compare_mt"] |= {"p": 1 / args.resamples if none else theirs.p, "p_is_bound": none}
        p = f"<{1 / args.resamples:.2g}" if none else small(theirs.p)
        lines.append(
            f"{row['name']}: BLEU {theirs.score:.2f} [{theirs.ci[0]:.2f}, {theirs.ci[1]:.2f}], "
            f"wins {theirs.wins:.3f}, losses {theirs.losses:.3f}, ties {theirs.ties:.3f} "
            f"(corrected {theirs.ties_corrected:.3f}), p {p}"
        )
    return ["", *lines]
