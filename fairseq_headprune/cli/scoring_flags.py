"""The flags that set how importance is estimated, shared by ``score`` and ``prune``."""

import argparse

from fairseq_headprune.importance.settings import ESTIMATORS, LOSSES, METHODS, REDUCTIONS, ScoreSettings
from fairseq_headprune.parts import ffn_parts


def add_scoring_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags to a parser."""
    default = ScoreSettings()
    group = parser.add_argument_group("importance")
    add = group.add_argument
    add(
        "--estimator",
        choices=ESTIMATORS,
        default=default.estimator,
        help="what is estimated (default: gradient: Michel et al. 2019, eq. 2)",
    )
    add(
        "--reduction",
        choices=REDUCTIONS,
        default=default.reduction,
        help="how derivatives are averaged (default: sentence, the mean of each sentence's absolute derivative)",
    )
    add(
        "--loss",
        choices=LOSSES,
        default=default.loss,
        help="a sentence's loss: sum or mean over its tokens, or label-smoothed (default: sum)",
    )
    add(
        "--score-label-smoothing",
        type=float,
        default=default.smoothing,
        metavar="E",
        help="for --loss label-smoothed (default: 0.1)",
    )
    add(
        "--normalize",
        choices=METHODS,
        default=default.normalize,
        help="over what scores are normalised (default: layer: l2 norm of each attention module)",
    )
    add(
        "--norm-order",
        type=int,
        choices=(1, 2),
        default=default.norm_order,
        help="L1 or L2, for --estimator weight-norm (default: 2)",
    )
    add("--score-subset", metavar="SPLIT", default=None, help="split that importance is estimated on (default: train)")
    add(
        "--score-sentences",
        type=int,
        default=default.sentences,
        metavar="N",
        help="how many of its sentences, drawn with --score-seed; 0 takes all (default: 2000)",
    )
    add(
        "--score-seed",
        type=int,
        default=default.seed,
        metavar="S",
        help="seed of the subset, and of --estimator random (default: 1)",
    )


def scoring_settings(args: argparse.Namespace, subset: str) -> ScoreSettings:
    """Return the settings that the flags describe; ``subset`` is the default of ``--score-subset``.

    Raises:
        ValueError: a number out of range.
    """
    return ScoreSettings(
        estimator=args.estimator,
        reduction=args.reduction,
        loss=args.loss,
        smoothing=args.score_label_smoothing,
        normalize=args.normalize,
        subset=args.score_subset or subset,
        sentences=args.score_sentences,
        seed=args.score_seed,
        norm_order=args.norm_order,
        ffn=ffn_parts(getattr(args, "components", None), getattr(args, "ffn", None)),
    )
