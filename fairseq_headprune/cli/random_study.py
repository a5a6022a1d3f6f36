"""``headprune random-study``: random pruning with fine-tuning, the baseline that any pruning criterion must beat."""

import argparse
from functools import partial
from typing import Any

from fairseq_headprune.cli.common import add_ffn_flag, check_least
from fairseq_headprune.cli.model_flags import parse_model_flags
from fairseq_headprune.cli.study import (
    add_training_flags,
    check_training_flags,
    fine_tuning,
    generation_flags,
    run_training_study,
)
from fairseq_headprune.cli.study_flags import (
    add_comparison_flags,
    add_margin_flag,
    check_margin,
    comparison_settings,
)

_DESCRIPTION = """Draw masks by chance, fine-tune the checkpoint under each, translate the split --gen-subset with all
of fairseq-generate's settings, score BLEU (BERT: predict, GLUE's metric) and test against the unpruned model: mean and
standard deviation of several samplings (Budhraja et al. 2020, Tables 1 to 6, Figure 1). Started again, it resumes; a
fine-tuning that dies is started again from its last epoch, as long as it gets further."""


def run(argv: list[str]) -> int:
    """Run the verb."""
    args = parse(argv)
    from fairseq_headprune.session import Session
    from fairseq_headprune.studies.random_study import RandomStudy
    from fairseq_headprune.studies.samplings import items

    comparison, how = comparison_settings(args), fine_tuning(args)
    chosen = items(args.random, args.config, args.triple, args.layers, args.mirror, args.control)
    study = RandomStudy.of(Session(args), args.gen_subset, chosen, args.seeds, how, comparison, args.components)
    study.generate, study.base, study.margin = generation_flags(argv, _add_flags), args.baseline, args.margin
    return run_training_study("random-study", argv, args, study)


def parse(argv: list[str]) -> argparse.Namespace:
    """Parse the verb's flags and fairseq-generate's.

    Raises:
        ValueError: numbers out of range, or unsupported flags.
    """
    args = parse_model_flags("random-study", argv, _add_flags, _DESCRIPTION)
    check_training_flags("random-study", args)
    check_margin(args)
    if args.baseline == "control" and not args.control:
        raise ValueError("--baseline control needs --control, which fine-tunes it")
    if args.components and (args.config or args.triple):
        raise ValueError(
            "--components goes with --random and --layers: --config and --triple name components themselves"
        )
    if args.mirror and not args.config:
        raise ValueError("--mirror needs --config, whose configurations it mirrors")
    check_least(0, args, "seeds")
    return args


def _add_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("random pruning")
    add: Any = partial(group.add_argument, default=[])
    add(
        "--random",
        nargs="+",
        action="extend",
        metavar="60%|K[:at-least-one]",
        help="shares or numbers of heads to prune, over all heads; every layer keeps a head with :at-least-one",
    )
    add(
        "--config",
        action="append",
        metavar="CONFIG",
        help='one configuration, as in "ES=777322 ED=233777 DS=777332"; may be repeated',
    )
    add("--triple", nargs="+", action="extend", metavar="ES,ED,DS", help="heads kept in each component")
    add(
        "--layers",
        nargs="+",
        action="extend",
        metavar="LAYERS",
        help="layers that lose all heads, in every component: top:3, bottom:3, middle:4, even, odd, 1,2 or "
        "top:1,bottom:1; the first is 1",
    )
    add = group.add_argument
    add(
        "--components",
        metavar="all|LIST",
        help="--random and --layers prune the parts of these, also of enc_ffn, dec_ffn or both, ffn (default: all, "
        "which is all heads)",
    )
    add_ffn_flag(group)
    add("-o", "--output", metavar="DIR", required=True, help="study folder")
    add("--mirror", action="store_true", help="also the mirror of every configuration")
    add("--control", action="store_true", help="also fine-tune with no head pruned")
    add(
        "--baseline",
        choices=("unpruned", "control"),
        default="unpruned",
        help="what differences and tests are against: the checkpoint as it is, or the control of the same seeds, where "
        "the checkpoint has not been trained for the task",
    )
    add("--seeds", type=int, nargs="+", default=[1, 2, 3], metavar="S", help="a sampling each (default: 1 2 3)")
    add_training_flags(group)
    add_comparison_flags(parser)
    add_margin_flag(parser)
