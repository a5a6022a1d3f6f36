"""``headprune compare``: are one system's translations or labels better than another's, or is it chance?"""

import argparse
import dataclasses
import sys
from collections.abc import Sequence

from tqdm import tqdm

from fairseq_headprune.cli import compare_predictions
from fairseq_headprune.cli.common import Parser, emit, named
from fairseq_headprune.cli.comparison_flags import add_bootstrap_flags, add_output_flags
from fairseq_headprune.evaluation.compare_mt import SAMPLE_FRACTION, compare_mt_bootstrap
from fairseq_headprune.evaluation.detokenised import looks_detokenised, warning
from fairseq_headprune.evaluation.hypotheses import Sentences, read_references, read_systems
from fairseq_headprune.evaluation.significance import SystemResult, bootstrap_statistics
from fairseq_headprune.evaluation.significance_table import significance_table, too_few_resamples
from fairseq_headprune.evaluation.statistics import METRICS, Metric, check_lengths, corpus_metric
from fairseq_headprune.evaluation.tokenisers import TOKENISED
from fairseq_headprune.files import sha256
from fairseq_headprune.glue.predictions import is_predictions

_DESCRIPTION = """Paired bootstrap resampling (Koehn 2004) of translation systems against the first one, the
baseline. Wins, losses and ties are the system's, as shares of the resamples. p is two-sided; p (Holm) is corrected
for the number of systems. Files have one sentence a line or are fairseq-generate's output (the best hypothesis of
each id, D- lines before H- lines). Predictions of headprune evaluate --predictions are compared without REF, by a
paired t-test, McNemar's exact test and the bootstrap: headprune compare BASE.json OTHER.json … With --glue-task
NAME files of one label a line are compared so: REF SYS1 SYS … (headprune compare --glue-task NAME --help)."""


def run(argv: list[str]) -> int:
    """Run the verb."""
    if any(word.split("=")[0] == "--glue-task" or is_predictions(word) for word in argv):
        return compare_predictions.run(argv)
    args = _parser().parse_args(argv)
    tokenize = _tokenize(args)
    reference = read_references(args.reference)
    systems = named([(path, read_systems(path)) for path in [args.first, *args.others]])
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
    parser.add_argument("--metric", choices=METRICS, default="bleu", help="what is compared")
    parser.add_argument("--tokenize", metavar="NAME", help="sacrebleu's tokeniser for BLEU (default: 13a)")
    parser.add_argument(
        "--bleu",
        choices=("sacrebleu", TOKENISED),
        default="sacrebleu",
        help="tok: BLEU of text that is tokenised already, equal to multi-bleu.perl",
    )
    add_bootstrap_flags(parser)
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


def _tokenize(args: argparse.Namespace) -> str:
    if not 0 < args.alpha < 1:
        raise ValueError(f"--alpha must be between 0 and 1, got {args.alpha}")
    if args.engine == "compare-mt" and args.metric != "bleu":
        raise ValueError(f"--engine compare-mt compares BLEU only, got --metric {args.metric}")
    if args.metric != "bleu" and (args.tokenize is not None or args.bleu == TOKENISED):
        raise ValueError(f"--metric {args.metric} has no tokeniser; leave --tokenize and --bleu away")
    if args.bleu == TOKENISED:
        if args.tokenize not in (None, TOKENISED):
            raise ValueError(f"--bleu tok does not tokenise; leave --tokenize {args.tokenize} away")
        return TOKENISED
    return args.tokenize or "13a"


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
    notes += too_few_resamples(results, args.alpha, args.resamples)
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
