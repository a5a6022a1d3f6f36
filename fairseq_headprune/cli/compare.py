"""``headprune compare``: is one system's translation better than another's, or is it chance?"""

import argparse
import dataclasses
import math
import sys
from collections.abc import Sequence

from tqdm import tqdm

from fairseq_headprune.cli.common import Parser, emit
from fairseq_headprune.evaluation.compare_mt import SAMPLE_FRACTION, compare_mt_bootstrap
from fairseq_headprune.evaluation.detokenised import looks_detokenised, warning
from fairseq_headprune.evaluation.hypotheses import Sentences, read_references, read_systems
from fairseq_headprune.evaluation.significance import SystemResult, bootstrap_statistics
from fairseq_headprune.evaluation.significance_table import FORMATS, significance_table
from fairseq_headprune.evaluation.statistics import METRICS, Metric, check_lengths, corpus_metric
from fairseq_headprune.evaluation.tokenisers import TOKENISED
from fairseq_headprune.files import read_lines, sha256

_DESCRIPTION = """Paired bootstrap resampling (Koehn 2004) of translation systems against the first one, the
baseline. Wins, losses and ties are the system's, as shares of the resamples. p is two-sided; p (Holm) is corrected
for the number of systems. Files have one sentence a line or are fairseq-generate's output (the best hypothesis of
each id, D- lines before H- lines)."""


def run(argv: list[str]) -> int:
    """Run the verb."""
    args = _parser().parse_args(argv)
    if args.glue_task is not None:
        return _compare_labels(args)
    tokenize = _tokenize(args)
    reference = read_references(args.reference)
    systems = _named([(path, read_systems(path)) for path in [args.first, *args.others]])
    for name, sentences in systems.items():
        try:
            check_lengths(len(sentences.lines), len(reference.lines))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    detokenised = {name: looks_detokenised(sentences.lines) for name, sentences in systems.items()}
    tokenises = args.metric == "chrf" or tokenize not in (TOKENISED, "none")
    reference_detokenised = looks_detokenised(reference.lines)
    notice = warning(reference_detokenised, detokenised, tokenises)
    if notice:
        print(f"headprune compare: warning: {notice}", file=sys.stderr)
    metric = corpus_metric(args.metric, reference.lines, tokenize)
    bar = tqdm(systems.items(), desc="statistics", unit="system", file=sys.stderr, disable=None)
    statistics = {name: metric.extract(sentences.lines) for name, sentences in bar}
    fraction = 1.0 if args.sample_fraction is None else args.sample_fraction
    results = bootstrap_statistics(metric.score, statistics, args.resamples, args.seed, sample_fraction=fraction)
    value = _json(args, metric, reference, systems, results)
    value["sample_fraction"] = fraction
    value["detokenised"] = {"reference": reference_detokenised, "systems": all(detokenised.values())}
    text = _text(args, metric, results)
    if args.engine == "compare-mt":
        text += "\n" + _add_compare_mt(args, metric, reference, systems, value)
    emit(value, args.json, text)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="headprune compare", description=_DESCRIPTION)
    parser.add_argument("reference", metavar="REF", help="the references")
    parser.add_argument("first", metavar="SYS1", help="translations of the baseline")
    parser.add_argument("others", metavar="SYS", nargs="+", help="translations that are compared with it")
    parser.add_argument(
        "--metric",
        metavar="NAME",
        help=f"what is compared: {' or '.join(METRICS)} (default: bleu), or one of GLUE's (default: the task's own)",
    )
    parser.add_argument(
        "--glue-task",
        metavar="NAME",
        help="the files hold labels, or scores, of this task of GLUE, one a line, as evaluate --predictions writes "
        "them: the paired t-test and McNemar's exact test stand beside the bootstrap (default: none)",
    )
    parser.add_argument("--tokenize", metavar="NAME", help="sacrebleu's tokeniser for BLEU (default: 13a)")
    parser.add_argument(
        "--bleu",
        choices=("sacrebleu", TOKENISED),
        default="sacrebleu",
        help="tok: BLEU of text that is tokenised already, equal to multi-bleu.perl",
    )
    parser.add_argument("--resamples", type=int, default=1000, help="how often the test set is drawn")
    parser.add_argument("--seed", type=int, default=12345, help="seed of the draws; 0 is a seed too")
    parser.add_argument("--alpha", type=float, default=0.01, help="level of the marks ** (Holm) and * (raw p only)")
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
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print one JSON document (default: off)")
    output.add_argument("--format", choices=FORMATS, default="text", help="form of the table")
    return parser


def _check_alpha(args: argparse.Namespace) -> None:
    if not 0 < args.alpha < 1:
        raise ValueError(f"--alpha must be between 0 and 1, got {args.alpha}")


def _compare_labels(args: argparse.Namespace) -> int:
    """Compare predictions for a task of GLUE."""
    from fairseq_headprune.glue.catalogue import glue_task
    from fairseq_headprune.glue.metrics import metric_of
    from fairseq_headprune.glue.paired import paired_tests
    from fairseq_headprune.glue.statistics import LabelMetric

    _check_alpha(args)
    if args.engine == "compare-mt" or args.tokenize is not None or args.bleu == TOKENISED:
        raise ValueError("--engine compare-mt, --tokenize and --bleu are for translations; leave them away")
    task = glue_task(args.glue_task)
    lines = [Sentences(read_lines(path), "text") for path in (args.reference, args.first, *args.others)]
    reference, systems = lines[0], _named(list(zip([args.first, *args.others], lines[1:], strict=True)))
    metric = LabelMetric(task, metric_of(task, args.metric), reference.lines)
    statistics = {}
    for name, sentences in systems.items():
        try:
            statistics[name] = metric.extract(sentences.lines)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    fraction = 1.0 if args.sample_fraction is None else args.sample_fraction
    results = bootstrap_statistics(metric.score, statistics, args.resamples, args.seed, sample_fraction=fraction)
    value = {**_json(args, metric, reference, systems, results), "task": task.name, "sample_fraction": fraction}
    text, baseline = [_text(args, metric, results)], systems[results[0].name].lines
    for row in value["systems"][1:]:
        tests = row["paired"] = paired_tests(task, reference.lines, baseline, systems[row["name"]].lines)
        shown = {"paired t-test": tests["t_test"], "McNemar's exact test": tests["mcnemar"]}
        said = ", ".join(f"{name}: p = {p:.3g}" for name, p in shown.items() if p is not None)
        text.append(
            ("% " if args.format == "latex" else "") + f"{row['name']}: {said or 'no test is defined'} (not corrected)"
        )
    emit(value, args.json, "\n".join(text))
    return 0


def _tokenize(args: argparse.Namespace) -> str:
    _check_alpha(args)
    args.metric = args.metric or "bleu"
    if args.metric not in METRICS:
        raise ValueError(f"--metric: unknown metric {args.metric!r}; known are {', '.join(METRICS)}")
    if args.engine == "compare-mt" and args.metric != "bleu":
        raise ValueError(f"--engine compare-mt compares BLEU only, got --metric {args.metric}")
    if args.metric != "bleu" and (args.tokenize is not None or args.bleu == TOKENISED):
        raise ValueError(f"--metric {args.metric} has no tokeniser; leave --tokenize and --bleu away")
    if args.bleu == TOKENISED:
        if args.tokenize not in (None, TOKENISED):
            raise ValueError(f"--bleu tok does not tokenise; leave --tokenize {args.tokenize} away")
        return TOKENISED
    return args.tokenize or "13a"


def _named(systems: Sequence[tuple[str, Sentences]]) -> dict[str, Sentences]:
    # A file may be given twice (a system against itself); the second gets a name of its own.
    named: dict[str, Sentences] = {}
    for path, sentences in systems:
        name, again = path, 2
        while name in named:
            name, again = f"{path} ({again})", again + 1
        named[name] = sentences
    return named


def _json(
    args: argparse.Namespace,
    metric: Metric,
    reference: Sentences,
    systems: dict[str, Sentences],
    results: Sequence[SystemResult],
) -> dict:
    rows = []
    for path, result in zip([args.first, *args.others], results, strict=True):
        row = dataclasses.asdict(result) | {"ci": list(result.ci), "significant": result.mark(args.alpha)}
        rows.append(row | {"lines": systems[result.name].form, "sha256": sha256(path)})
    return {
        "metric": metric.name,
        "signature": metric.signature,
        "resamples": args.resamples,
        "seed": args.seed,
        "alpha": args.alpha,
        "sentences": len(reference.lines),
        "reference": {
            "name": args.reference,
            "lines": reference.form,
            "sha256": sha256(args.reference),
        },
        "baseline": results[0].name,
        "systems": rows,
    }


def _text(args: argparse.Namespace, metric: Metric, results: Sequence[SystemResult]) -> str:
    table = significance_table(results, args.alpha, args.resamples, args.format)
    comment = "% " if args.format == "latex" else ""
    notes = [
        f"{metric.name} {metric.signature}",
        f"{args.resamples} resamples, seed {args.seed}; wins are the system's against {results[0].name}; "
        f"** p (Holm) < {args.alpha}, * only p < {args.alpha}",
    ]
    notes += [
        f"{result.name}: no difference to the baseline in any resample" for result in results[1:] if result.ties == 1
    ]
    others = len(results) - 1
    if 2 * others / args.resamples > args.alpha and any(result.p_holm == 0 for result in results):
        notes.append(
            f"p = 0 means below {2 / args.resamples:.2g}; for {others} systems that is below --alpha after Holm's "
            f"correction only with --resamples {math.ceil(2 * others / args.alpha)} or more"
        )
    return "\n".join([table, "", *(comment + note for note in notes)])


def _add_compare_mt(
    args: argparse.Namespace, metric: Metric, reference: Sentences, systems: dict[str, Sentences], value: dict
) -> str:
    # Adds compare-mt's result to every system but the baseline in the JSON value, and returns it as text.
    fraction = SAMPLE_FRACTION if args.sample_fraction is None else args.sample_fraction
    tokens = {name: list(map(metric.tokens, sentences.lines)) for name, sentences in systems.items()}
    expected = list(map(metric.tokens, reference.lines))
    lines = [f"compare-mt, resamples of {fraction:g} of the sentences (its ties include the system's losses):"]
    baseline = value["baseline"]
    for row in tqdm(value["systems"][1:], desc="compare-mt", unit="system", file=sys.stderr, disable=None):
        theirs = compare_mt_bootstrap(
            expected, tokens[baseline], tokens[row["name"]], args.resamples, args.seed, fraction
        )
        row["compare_mt"] = dataclasses.asdict(theirs) | {"ci": list(theirs.ci), "sample_fraction": fraction}
        lines.append(
            f"{row['name']}: BLEU {theirs.score:.2f} [{theirs.ci[0]:.2f}, {theirs.ci[1]:.2f}], "
            f"wins {theirs.wins:.3f}, losses {theirs.losses:.3f}, ties {theirs.ties:.3f} "
            f"(corrected {theirs.ties_corrected:.3f}), p {theirs.p:.3f}"
        )
    comment = "% " if args.format == "latex" else ""
    return "\n".join(["", *(comment + line for line in lines)])
