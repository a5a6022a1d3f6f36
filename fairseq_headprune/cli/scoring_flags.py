"""The flags that set how importance is estimated, shared by ``score`` and ``prune``."""

import argparse

from fairseq_headprune.importance.settings import ESTIMATORS, LOSSES, METHODS, PRESETS, REDUCTIONS, ScoreSettings
from fairseq_headprune.parts import ffn_parts


def add_scoring_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags to a parser."""
    default = ScoreSettings()
    group = parser.add_argument_group("importance")
    add = group.add_argument
    add(
        "--preset",
        choices=list(PRESETS),
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
        help="for --loss label-smoothed (default: 0.1)",
    )
    add(
        "--normalize",
        choices=METHODS,
        help="how scores of modules are made comparable: layer (Michel et al. 2019: l2 norm of a module's kept heads), "
        "layer-rms (their root mean square), layer-frozen (the norm before pruning), none, minmax (default: layer)",
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
