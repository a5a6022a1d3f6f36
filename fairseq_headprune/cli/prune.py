"""``headprune prune``: how many heads can be pruned, and where? Also ``ablate`` and ``keep-one``, of single heads."""

import argparse
from pathlib import Path
from typing import Any

from fairseq_headprune.cli.scale_flags import add_scale_flags, several
from fairseq_headprune.cli.study import Make, run_study
from fairseq_headprune.cli.study_flags import (
    add_comparison_flags,
    add_scoring_flags,
    add_study_flags,
    comparison_settings,
    scoring_settings,
)
from fairseq_headprune.files import sha256
from fairseq_headprune.parts.scores import Scores
from fairseq_headprune.studies.ablation import Ablation

_DESCRIPTION = """Prune heads step by step in order of importance, translate the split --gen-subset with all of
fairseq-generate's settings at each step, score BLEU (BERT: predict labels, GLUE's metric), and test each step against
the unpruned model by paired bootstrap (Michel et al. 2019, §4 and §5). Importance comes from --score-subset. Started
again, it resumes."""

_ABLATE = """Mask every head alone, translate the split --gen-subset with all of fairseq-generate's settings,
score BLEU (BERT: predict, GLUE's metric), and test each mask against the unpruned model by paired bootstrap (Michel et
al. 2019, §3.2). Heads that the checkpoint's mask prunes already are skipped. Started again, it resumes."""

_KEEP_ONE = """For each layer, mask all heads but one, the rest of the model staying whole. The head that does best
alone on --select-subset is reported on --gen-subset, tested against the unpruned model by paired bootstrap (Michel et
al. 2019, §3.3, Table 5; with the same split for both: Table 2). Started again, it resumes."""


def run(argv: list[str]) -> int:
    """Run the verb."""
    return run_study("prune", argv, _DESCRIPTION, _add_flags, _prepare)


def _prepare(args: argparse.Namespace) -> Make:
    make = prune_maker(args)
    if args.reestimate and several(args):
        raise ValueError("with --reestimate each step needs the one before; run it as one process")
    return make


def prune_maker(args: argparse.Namespace) -> Make:
    """Return a function that makes the pruning study of a loaded model.

    Raises:
        ValueError, FileNotFoundError: incompatible flags, or a ranking that cannot be read.
    """
    from fairseq_headprune.studies.prune import Prune

    settings, ranking = _settings(args), _given(args.order)
    return lambda session: Prune.of(session, args.gen_subset, settings, *ranking)


def _add_flags(parser: argparse.ArgumentParser) -> None:
    group = add_prune_flags(parser)
    group.add_argument(
        "--order-seeds",
        type=int,
        nargs="+",
        default=[],
        metavar="S",
        help="with --order random: several orders, one curve a seed, with mean and deviation (default: --score-seed)",
    )
    add_comparison_flags(parser)
    add_scale_flags(parser)


def add_prune_flags(parser: argparse.ArgumentParser) -> Any:
    """Add the flags that set what is pruned and in which order; return their group."""
    group = parser.add_argument_group("pruning")
    add = group.add_argument
    in_play = "heads in play: all jointly, each component by itself, or those of a comma-separated list"
    add_study_flags(group, "all|each|LIST", in_play)
    add("--step", default="10%", metavar="SHARE", help="share of the heads in play pruned at each step")
    add("--reestimate", action="store_true", help="estimate importance again after each step")
    add(
        "--order",
        default="scores",
        metavar="scores|random|FILE|oracle:STUDY",
        help="order of pruning: estimated importance, chance (--score-seed), a score file, or the differences of a "
        "study of headprune ablate (Michel et al. 2019, Figure 3, dashed)",
    )
    add_scoring_flags(parser)
    return group


def _settings(args: argparse.Namespace) -> Any:
    """Return the :class:`~fairseq_headprune.studies.prune.PruneSettings` that the flags describe.

    Raises:
        ValueError: a number out of range, or incompatible flags.
    """
    from fairseq_headprune.pruning import parse_step
    from fairseq_headprune.studies.prune import PruneSettings

    score, comparison = scoring_settings(args, "train"), comparison_settings(args)
    order = order_kind(args.order)
    seeds = getattr(args, "order_seeds", [])
    if seeds and order != "random":
        raise ValueError(f"--order-seeds {' '.join(map(str, seeds))}: only --order random has seeds, not {args.order}")
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"--order-seeds {' '.join(map(str, seeds))}: a seed is given twice")
    if order == "random":
        score = type(score)(estimator="random", normalize="none", seed=seeds[0] if seeds else score.seed, ffn=score.ffn)
    if args.reestimate and order != "scores":
        raise ValueError(f"--reestimate needs estimated importance, not --order {args.order}")
    return PruneSettings(
        components=args.components,
        step=parse_step(args.step),
        reestimate=args.reestimate,
        order=order,
        score=score,
        seeds=tuple(seeds),
        **vars(comparison),
    )


def order_kind(order: str) -> str:
    """Return what ``--order`` names: ``scores``, ``random``, ``oracle`` (a study of ablate) or ``file``."""
    if order in ("scores", "random"):
        return order
    return "oracle" if order.startswith("oracle:") or Path(order).is_dir() else "file"


def _given(order: str) -> tuple[Scores | None, str | None]:
    """Return the existing ranking that ``--order`` names, and the hash of a score file; None for other orders.

    Raises:
        FileNotFoundError, ValueError: the file or study does not exist or cannot be used.
    """
    kind = order_kind(order)
    if kind == "oracle":
        return Ablation(order.removeprefix("oracle:")).oracle(), None
    if kind != "file":
        return None, None
    if not Path(order).is_file():
        raise FileNotFoundError(f"--order {order}: neither scores, random, oracle:STUDY nor a file that is there")
    return Scores.load(order), sha256(order)


def ablate(argv: list[str]) -> int:
    """Run ``headprune ablate``: what does the model lose, or gain, without each single head?"""
    return run_study("ablate", argv, _ABLATE, _add_single_flags, _prepare_ablate)


def keep_one(argv: list[str]) -> int:
    """Run ``headprune keep-one``: is one head a layer enough, and which one?"""
    return run_study("keep-one", argv, _KEEP_ONE, _add_keep_one_flags, _prepare_keep_one)


def _add_single_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that the studies of single heads share."""
    of_which = "whose heads are studied: all, or a comma-separated list of enc_self, enc_dec, dec_self"
    add_study_flags(parser.add_argument_group("study"), "all|LIST", of_which)
    add_comparison_flags(parser)
    add_scale_flags(parser)


def _prepare_ablate(args: argparse.Namespace) -> Make:
    from fairseq_headprune.studies.ablate import Ablate

    how = comparison_settings(args)
    return lambda session: Ablate.of(session, args.gen_subset, args.components, how)


def _add_keep_one_flags(parser: argparse.ArgumentParser) -> None:
    _add_single_flags(parser)
    parser.add_argument_group("selection").add_argument(
        "--select-subset",
        metavar="SPLIT",
        default="valid",
        help="split that the best heads are chosen on; name --gen-subset's for Table 2",
    )


def _prepare_keep_one(args: argparse.Namespace) -> Make:
    from fairseq_headprune.studies.keep_one import KeepOne

    how = comparison_settings(args)
    return lambda session: KeepOne.of(session, args.gen_subset, args.components, how, args.select_subset)
