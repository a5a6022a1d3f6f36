"""The input files of ``headprune compare``: translations, classifier predictions, or one label per line."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from fairseq_headprune.cli.common import named
from fairseq_headprune.errors import errors_of
from fairseq_headprune.evaluation.hypotheses import (
    empty_references,
    looks_detokenised,
    read_references,
    read_systems,
    refuse_marks,
    warning,
)
from fairseq_headprune.evaluation.paired_tests import Subject
from fairseq_headprune.evaluation.statistics import METRICS, TOKENISED, check_lengths, corpus_metric
from fairseq_headprune.files import sha256
from fairseq_headprune.glue.catalogue import glue_task
from fairseq_headprune.glue.metrics import label_subject, metric_of, signature, values_tested
from fairseq_headprune.glue.predictions import (
    Predictions,
    check_same_examples,
    is_predictions,
    load_predictions,
    read_label_lines,
)


def are_predictions(args: argparse.Namespace) -> bool:
    """Whether the inputs are predictions of classifiers."""
    return args.glue_task is not None or any(map(is_predictions, args.files))


def translations(args: argparse.Namespace) -> Subject:
    """Read ``REF SYS1 SYS2 …``; warn if they are different kinds of text, or not what the tokeniser expects.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: different numbers of sentences, leftover subword markers, or incompatible settings.
    """
    tokenize, (reference_path, *paths) = _tokenize(args), args.files
    reference = read_references(reference_path)
    systems = named([(path, read_systems(path)) for path in paths])
    for name, sentences in systems.items():
        with errors_of(name):
            check_lengths(len(sentences.lines), len(reference.lines))
    if not args.keep_marks:
        for name, sentences in {reference_path: reference, **systems}.items():
            refuse_marks(name, sentences.lines)
    metric = corpus_metric(args.metric or "bleu", reference.lines, tokenize)
    looks = {name: looks_detokenised(sentences.lines) for name, sentences in systems.items()}
    facts: dict[str, Any] = {
        "sentences": len(reference.lines),
        "reference": {"name": reference_path, "lines": reference.form, "sha256": sha256(reference_path)},
        "sample_fraction": 1.0 if args.sample_fraction is None else args.sample_fraction,
        "detokenised": {"reference": looks_detokenised(reference.lines), "systems": all(looks.values())},
    }
    notice = warning(facts["detokenised"]["reference"], looks, tokenises=tokenize not in (TOKENISED, "none"))
    if notice:
        print(f"headprune compare: warning: {notice}", file=sys.stderr)
    empty = empty_references(reference.lines)
    rows = [
        {"lines": system.form, "sha256": sha256(path)} for path, system in zip(paths, systems.values(), strict=True)
    ]
    answers = {name: system.lines for name, system in systems.items()}
    notes = [f"{metric.name} {metric.signature}", *([empty] if empty else [])]
    return Subject(metric, answers, facts=facts, rows=rows, notes=notes)


def _tokenize(args: argparse.Namespace) -> str:
    metric = args.metric or "bleu"
    if metric not in METRICS:
        raise ValueError(f"--metric {metric!r}: translations are compared by {' or '.join(METRICS)}")
    if args.engine == "compare-mt" and metric != "bleu":
        raise ValueError(f"--engine compare-mt compares BLEU only, got --metric {metric}")
    if metric != "bleu" and (args.tokenize is not None or args.bleu == TOKENISED):
        raise ValueError(f"--metric {metric} has no tokeniser; omit --tokenize and --bleu")
    if args.bleu == TOKENISED:
        if args.tokenize not in (None, TOKENISED):
            raise ValueError(f"--bleu tok does not tokenise; omit --tokenize {args.tokenize}")
        return TOKENISED
    return args.tokenize or "13a"


def predictions(args: argparse.Namespace) -> Subject:
    """Read ``BASE.json OTHER.json …``, or with ``--glue-task`` ``REF SYS1 SYS2 …`` with one label per line.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: predictions of different examples, or settings that are only for translations.
    """
    for name, plain in (("tokenize", None), ("bleu", "sacrebleu"), ("engine", "headprune"), ("sample_fraction", None)):
        if getattr(args, name) != plain:
            raise ValueError(f"--{name.replace('_', '-')} is for translations, not for predictions")
    paths: Sequence[str] = args.files
    facts: dict[str, Any] = {}
    if args.glue_task is None:
        systems = named([(path, load_predictions(path)) for path in paths])
    else:
        labels, *paths = paths
        systems = named([(path, read_label_lines(labels, path, glue_task(args.glue_task))) for path in paths])
        facts["labels"] = {"name": labels, "sha256": sha256(labels)}
    check_same_examples(systems)
    base, metric = systems[paths[0]], _metric(args.metric, systems)
    of_metric, values = signature(base.task, base.split, metric), values_tested(base.task)
    facts |= {"task": base.task.name, "split": base.split, "signature": of_metric, "t_test_of": values}
    rows = [
        {"sha256": sha256(path), **{name: system.about.get(name) for name in ("checkpoint", "mask", "data")}}
        for path, system in zip(paths, systems.values(), strict=True)
    ]
    others = "1 system" if len(systems) == 2 else f"{len(systems) - 1} systems"
    notes = [
        f"{of_metric}; {len(base.ids)} examples; baseline {paths[0]}",
        f"p (p after Holm's correction for {others}), two-sided; t-test: paired, of each example's {values}",
    ]
    if not base.task.is_regression:
        notes.append("McNemar: exact, of what only the baseline (lost) or only the system (gained) has right")
    answers = {name: system.predictions for name, system in systems.items()}
    more = {"facts": {**facts, "examples": len(base.ids)}, "rows": rows, "notes": notes}
    return label_subject(base.task, metric, base.labels, answers, **more)


def _metric(asked: Optional[str], systems: Mapping[str, Predictions]) -> str:
    first, base = next(iter(systems.items()))
    for name, system in systems.items():
        if not asked and system.metric != base.metric:
            raise ValueError(f"the metric of {name} is {system.metric}, of {first} {base.metric}: choose with --metric")
    return metric_of(base.task, asked or base.metric)
