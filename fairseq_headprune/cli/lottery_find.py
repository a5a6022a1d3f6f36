"""``headprune lottery find``: prune while the score holds."""

import argparse
from fractions import Fraction
from typing import Any

from fairseq_headprune.choosing.lottery import SHARES_OF
from fairseq_headprune.cli.comparison_flags import add_comparison_flags, comparison_settings
from fairseq_headprune.cli.scale_flags import rank
from fairseq_headprune.cli.scoring_flags import add_scoring_flags, scoring_settings
from fairseq_headprune.cli.study import Make, run_study
from fairseq_headprune.pruning import parse_step

_DESCRIPTION = """Search for a winning ticket: prune heads, feed-forward blocks or single weights, lowest importance or
magnitude first, for as long as the score on --select-on is at least --threshold of the full model's (Prasanna et al.
2020, §3). Every step that is tried is kept, accepted or not; importance is that of the last accepted mask. The ticket
is reported on --gen-subset. Started again, it resumes; several models (seeds) are as many runs, a folder each."""


def run(argv: list[str]) -> int:
    """Run the verb."""
    return run_study("lottery find", argv, _DESCRIPTION, _add_flags, _prepare, _work)


def _work(study: Any) -> Any:
    from fairseq_headprune.studies.lottery import LotteryWork

    return LotteryWork(study)


def _add_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("lottery").add_argument
    add("-o", "--output", metavar="DIR", required=True, help="study folder (required)")
    add(
        "--mode",
        choices=("heads", "blocks", "both", "magnitude"),
        default="both",
        help="what is pruned: heads, feed-forward blocks, heads and one block a step and then either alone, or single "
        "weights of the layers' matrices (default: both)",
    )
    add(
        "--threshold",
        default="0.9",
        metavar="SHARE",
        help="share of the full model's score that has to be kept, as 0.9 or 90%% (default: 0.9)",
    )
    add(
        "--select-on",
        default="valid",
        metavar="SPLIT",
        help="split on which the score has to hold; for GLUE valid is the development set, as in the paper, or with "
        "--holdout a part of train (default: valid)",
    )
    add("--step", default="10%", metavar="SHARE", help="share of heads, or weights, that a step prunes (default: 10%%)")
    add(
        "--magnitude-of",
        choices=SHARES_OF,
        help="with --mode magnitude: what that share is taken of (default: original, as in the paper; its code takes a "
        "share of the remaining weights)",
    )
    add_scoring_flags(parser)
    add_comparison_flags(parser)
    # Each step depends on the previous one: one process, and one mask at a time.
    parser.set_defaults(jobs=1, launcher="processes", partition=None, time=None, gpus=None, worker=False)
    parser.set_defaults(masks_at_once=0, ffn=None)


def _prepare(args: argparse.Namespace) -> Make:
    settings = lottery_settings(args)
    if rank()[1] > 1:
        raise ValueError("each step needs the one before; run it as one process, and one run a seed")

    def make(session: Any) -> Any:
        from fairseq_headprune.studies.lottery import LotteryFind

        return LotteryFind.of(session, args.gen_subset, settings)

    return make


def lottery_settings(args: argparse.Namespace) -> Any:
    """Return the :class:`~fairseq_headprune.studies.lottery.LotterySettings` that the flags describe.

    Raises:
        ValueError: a number out of range, or incompatible flags.
    """
    from fairseq_headprune.studies.lottery import LotterySettings

    if args.magnitude_of and args.mode != "magnitude":
        raise ValueError(f"--magnitude-of is for --mode magnitude, not {args.mode}")
    args.ffn = "blocks" if args.mode in ("blocks", "both") else None
    return LotterySettings(
        mode=args.mode,
        threshold=_share(args.threshold),
        step=parse_step(args.step),
        select=args.select_on,
        magnitude_of=args.magnitude_of or "original",
        score=scoring_settings(args, args.select_on),
        **comparison_settings(args),
    )


def _share(text: str) -> Fraction:
    """Parse a share such as 0.9 or 90%.

    Raises:
        ValueError: it is not above 0 and at most 1 (above 1 the full model itself would miss it).
    """
    try:
        share = Fraction(text[:-1]) / 100 if text.endswith("%") else Fraction(text)
    except (ValueError, ZeroDivisionError):
        share = Fraction(-1)
    if not 0 < share <= 1:
        raise ValueError(f"--threshold {text}: give a share above 0 and up to 1, which the full model itself keeps")
    return share
