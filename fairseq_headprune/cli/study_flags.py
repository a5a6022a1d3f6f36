"""The flags of studies: how importance is estimated, what is compared, and the tests of significance."""

import argparse
from collections.abc import Callable
from typing import Any

from fairseq_headprune.cli.common import add_ffn_flag, add_output_flags, add_width_flag, check_alpha, check_least
from fairseq_headprune.evaluation.evaluator import MASKS_AT_ONCE
from fairseq_headprune.importance.settings import ESTIMATORS, LOSSES, METHODS, PRESETS, REDUCTIONS, ScoreSettings
from fairseq_headprune.parts import ffn_parts
from fairseq_headprune.report.marks import MARGIN


def add_scoring_flags(parser: argparse.ArgumentParser, preset: str | None = None) -> None:
    """Add the flags to a parser; ``preset`` is the default of ``--preset``, for a verb that is a paper's method."""
    default = ScoreSettings(**PRESETS.get(preset or "", {}))
    add = parser.add_argument_group("importance").add_argument
    _add_estimator_flags(add, preset, default)
    _add_sentence_flags(add, default)


def _add_estimator_flags(add: Callable[..., Any], preset: str | None, default: ScoreSettings) -> None:
    add(
        "--preset",
        choices=list(PRESETS),
        default=preset,
        help="a paper's --estimator, --reduction, --loss and --normalize; these flags override it",
    )
    add(
        "--estimator",
        choices=ESTIMATORS,
        help="what is estimated (default: gradient: Michel et al. 2019, eq. 2)",
    )
    add(
        "--reduction",
        choices=REDUCTIONS,
        help="how derivatives are averaged (default: sentence, the mean of each sentence's absolute derivative)",
    )
    add(
        "--loss",
        choices=LOSSES,
        help="a sentence's loss: sum or mean over its tokens, or label-smoothed (default: sum)",
    )
    add(
        "--score-label-smoothing",
        type=float,
        default=default.smoothing,
        metavar="E",
        help="for --loss label-smoothed",
    )
    add(
        "--normalize",
        choices=METHODS,
        help="how scores of modules are made comparable: none (as they are), layer (Michel et al. 2019: l2 norm of a "
        "module's kept heads), layer-rms (their root mean square), layer-frozen (the norm before pruning), minmax "
        f"(default: {default.normalize})",
    )
    add(
        "--norm-order",
        type=int,
        choices=(1, 2),
        default=default.norm_order,
        help="L1 or L2, for --estimator weight-norm",
    )


def _add_sentence_flags(add: Callable[..., Any], default: ScoreSettings) -> None:
    add("--score-subset", metavar="SPLIT", default=None, help="split that importance is estimated on (default: train)")
    add(
        "--score-sentences",
        type=int,
        default=default.sentences,
        metavar="N",
        help="how many of its sentences, drawn with --score-seed; 0 takes all",
    )
    add(
        "--score-seed",
        type=int,
        default=default.seed,
        metavar="S",
        help="seed of the subset, and of --estimator random",
    )


def scoring_settings(args: argparse.Namespace, subset: str) -> ScoreSettings:
    """Return the settings that the flags describe; ``subset`` is the default of ``--score-subset``.

    Raises:
        ValueError: a number out of range.
    """
    given = {name: getattr(args, name) for name in ("estimator", "reduction", "loss", "normalize")}
    chosen = PRESETS.get(args.preset or "", {}) | {name: value for name, value in given.items() if value is not None}
    return ScoreSettings(
        **chosen,
        smoothing=args.score_label_smoothing,
        subset=args.score_subset or subset,
        sentences=args.score_sentences,
        seed=args.score_seed,
        norm_order=args.norm_order,
        ffn=ffn_parts(getattr(args, "components", None), getattr(args, "ffn", None)),
    )


#: Default of ``--resamples``.
_RESAMPLES = "(default: what Holm's correction over the tests needs, more than 2 tests / alpha, and at least 1000)"


def add_study_flags(group: Any, choices: str, components: str) -> None:
    """Add ``--output``, ``--masks-at-once``, and ``--components`` with the verb's choices and help text."""
    group.add_argument("-o", "--output", metavar="DIR", required=True, help="study folder")
    group.add_argument("--components", default="all", metavar=choices, help=components)
    add_ffn_flag(group)
    group.add_argument(
        "--masks-at-once",
        metavar="N",
        type=_positive,
        default=0,
        help="masks that are translated in one batch, if they are known ahead; 1: one by one. A study that is killed "
        f"loses what it was at (default: {_default_masks()}, less if the study has less)",
    )


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 on, got {text}")
    return int(text)


def _default_masks() -> str:
    return ", ".join(f"{count} on {'a CPU' if device == 'cpu' else 'CUDA'}" for device, count in MASKS_AT_ONCE.items())


def add_comparison_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of scoring, significance and output."""
    group = parser.add_argument_group("comparison")
    add = group.add_argument
    add(
        "--bleu",
        choices=("sacrebleu", "tok"),
        default="sacrebleu",
        help="tok: tokenised BLEU, equal to multi-bleu.perl (default: sacrebleu with 13a)",
    )
    add(
        "--comet",
        metavar="MODEL",
        help="COMET beside BLEU, if unbabel-comet is installed: a name such as Unbabel/wmt22-comet-da, which is "
        "downloaded, or a checkpoint file from who you trust",
    )
    add_keep_marks_flag(group)
    add_test_flags(group)
    add_output_flags(group)
    add_width_flag(group)


def add_test_flags(group: Any, seed: str = "--bootstrap-seed") -> None:
    """Add the flags of the paired bootstrap; ``seed`` names that of its seed."""
    add = group.add_argument
    add("--resamples", type=int, metavar="N", help=f"resamples of the paired bootstrap {_RESAMPLES}")
    add(seed, type=int, default=12345, help="seed of the resamples; 0 is a seed too")
    add("--alpha", type=float, default=0.01, help="level of significance, of the marks ** (Holm) and * (raw p only)")


def add_margin_flag(group: Any) -> None:
    """Add ``--margin``."""
    text = "differences of methods within so many points count as none, tested by TOST over trainings"
    group.add_argument("--margin", type=float, metavar="M", default=MARGIN, help=text)


def check_margin(args: argparse.Namespace) -> None:
    """Check ``--margin``; raises ValueError if it is not above 0."""
    if not 0 < args.margin < float("inf"):
        raise ValueError(f"--margin {args.margin:g}: it must be above 0 and finite")


def add_keep_marks_flag(group: Any) -> None:
    """Add ``--keep-marks``."""
    text = "compare texts that have marks of subwords (@@ or ▁) as they are (default: refuse them)"
    group.add_argument("--keep-marks", action="store_true", help=text)


def comparison_settings(args: argparse.Namespace) -> Any:
    """Return the :class:`~fairseq_headprune.studies.mask_study.Comparison` that the flags describe.

    Raises:
        ValueError: a number out of range.
    """
    check_least(1, args, "resamples")
    check_least(0, args, "bootstrap-seed")
    check_alpha(args)
    from fairseq_headprune.evaluation.comet import check_installed
    from fairseq_headprune.studies.mask_study import Comparison
    from fairseq_headprune.tasks.seam import task_class

    for given, flag in ((args.comet is not None, "--comet"), (args.bleu == "tok", "--bleu tok")):
        if given and not task_class(args.task).translates:
            raise ValueError(f"{flag} is for translations; the task {args.task} has a metric of its own")
    if args.comet is not None:
        check_installed(args.comet)
    return Comparison("tok" if args.bleu == "tok" else "13a", args.resamples, args.bootstrap_seed, args.alpha)
