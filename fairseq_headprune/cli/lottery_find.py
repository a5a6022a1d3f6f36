"""``headprune lottery find``: prune while the score holds."""

import argparse
from fractions import Fraction
from pathlib import Path
from typing import Any

from fairseq_headprune.choosing.lottery import MODES, SHARES_OF
from fairseq_headprune.cli.common import Parser, check_least
from fairseq_headprune.cli.model_flags import parse_model_flags
from fairseq_headprune.cli.scale_flags import add_dry_run_flag, rank, take_place
from fairseq_headprune.cli.study import outlook, run_opened, show, show_document, show_outlooks
from fairseq_headprune.cli.study_flags import (
    add_comparison_flags,
    add_scoring_flags,
    comparison_settings,
    scoring_settings,
)
from fairseq_headprune.importance.settings import MICHEL
from fairseq_headprune.parts.notation import parse_fraction
from fairseq_headprune.progress import Progress
from fairseq_headprune.pruning import parse_step
from fairseq_headprune.studies.folder import StudyFolder

_DESCRIPTION = """Search for a winning ticket: prune heads, feed-forward blocks or single weights, lowest importance or
magnitude first, for as long as the score on --select-on is at least --threshold of the full model's (Prasanna et al.
2020, §3). Every step that is tried is kept, accepted or not; importance is that of the last accepted mask, of heads
divided by their layer's l2 norm, as in the paper (--normalize). The ticket is reported on --gen-subset. Started again,
it resumes; --paths searches several models (seeds) side by side."""


def run(argv: list[str]) -> int:
    """Run the verb."""
    several, rest = _several().parse_known_args(argv)
    if several.paths and not {"-h", "--help", "--help-fairseq"} & set(argv):
        return _many(several, rest)
    args, modes = _parse(argv)
    if args.dry_run:
        return _outlook(args, modes, [Path(args.output)])
    from fairseq_headprune.session import Session
    from fairseq_headprune.studies.lottery import LotteryFind, searches_document
    from fairseq_headprune.studies.masked import WeightWork

    args.jobs = 1
    take_place(args)
    session, studies, folder = Session(args), [], Path(args.output)
    for mode, settings in modes.items():
        study = LotteryFind.of(session, args.gen_subset, settings)
        args.output = folder / mode if len(modes) > 1 else folder
        run_opened("lottery find", argv, args, study, WeightWork)
        studies.append(study)
    return show(studies[0], args) if len(studies) == 1 else show_document(searches_document(studies), args, None)


def _parse(argv: list[str]) -> tuple[argparse.Namespace, dict[str, Any]]:
    """Parse the flags of the searches of one model; return them and each mode's settings."""
    args = parse_model_flags("lottery find", argv, _add_flags, _DESCRIPTION)
    if rank()[1] > 1:
        raise ValueError("each step needs the one before; run it as one process, and one run a seed")
    if args.jobs is not None:
        raise ValueError(f"--jobs {args.jobs} is for --paths, several models; one search is one process")
    modes = args.mode.split(",")
    wrong = [mode for mode in modes if mode not in MODES]
    if wrong or len(set(modes)) < len(modes):
        raise ValueError(f"--mode {args.mode}: give one or more of {', '.join(MODES)}, joined by commas, each once")
    if args.magnitude_of and "magnitude" not in modes:
        raise ValueError(f"--magnitude-of is for --mode magnitude, not {args.mode}")
    args.ffn = "blocks" if {"blocks", "both"} & set(modes) else None
    return args, {mode: lottery_settings(args, mode) for mode in modes}


def _many(several: argparse.Namespace, rest: list[str]) -> int:
    """Search several models, each in a process of its own; what is done is not done again."""
    from fairseq_headprune.studies.lottery import LotteryFind, searches_document
    from fairseq_headprune.studies.lottery_seeds import Seeds

    check_least(1, several, "jobs")
    args, modes = _parse([*rest, "--path", several.paths[0], "-o", several.output])
    seeds = Seeds(Path(several.output), several.paths, rest)
    if args.dry_run:
        return _outlook(args, modes, seeds.folders)
    progress = Progress("lottery find", len(several.paths), args.quiet)
    for name in seeds.run(several.jobs):
        progress.cell({"id": name})
    progress.close()
    names = modes if len(modes) > 1 else [""]
    folders = [StudyFolder(folder / mode) for mode in names for folder in seeds.folders]
    studies = [LotteryFind(folder.settings, folder=folder) for folder in folders]
    return show_document(searches_document(studies), args, None)


def _outlook(args: argparse.Namespace, modes: dict[str, Any], folders: list[Path]) -> int:
    """Print what the searches are going to do, a folder a model; several models are taken to be one after the other."""
    from fairseq_headprune.session import Session
    from fairseq_headprune.studies.lottery import LotteryFind

    args.jobs, session = 1, Session(args)
    found = []
    for mode, how in modes.items():
        paths = [folder / mode if len(modes) > 1 else folder for folder in folders]
        found.append(outlook(LotteryFind.of(session, args.gen_subset, how), args, paths))
    return show_outlooks(found, args)


def _several() -> argparse.ArgumentParser:
    """The flags of the searches of several models."""
    parser = Parser(add_help=False)
    parser.add_argument("--paths", nargs="+")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("-o", "--output", default="")
    return parser


def _add_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("lottery").add_argument
    add("-o", "--output", metavar="DIR", required=True, help="study folder")
    add(
        "--paths",
        nargs="+",
        metavar="CHECKPOINT",
        help="instead of --path: several models, such as of several seeds, each in a process of its own and in "
        "DIR/model-1, DIR/model-2, …; another process may join in with the same command",
    )
    add_dry_run_flag(parser)
    add("--jobs", type=int, metavar="N", help="with --paths: processes at a time (default: one a model, and a core)")
    add(
        "--mode",
        default="both",
        metavar="MODE[,MODE…]",
        help="what is pruned: heads, blocks (of feed-forward layers), both (heads and one block a step and then either "
        "alone), or magnitude (single weights of the layers' matrices); several go to DIR/MODE each",
    )
    add(
        "--threshold",
        default="0.9",
        metavar="SHARE",
        help="share of the full model's score that has to be kept, as 0.9 or 90%%",
    )
    add(
        "--select-on",
        default="valid",
        metavar="SPLIT",
        help="split on which the score has to hold; for GLUE valid is the development set, as in the paper, or with "
        "--holdout a part of train",
    )
    add("--step", default="10%", metavar="SHARE", help="share of heads, or weights, that a step prunes")
    add(
        "--magnitude-of",
        choices=SHARES_OF,
        help="with --mode magnitude: what that share is taken of (default: original, as in the paper; its code takes a "
        "share of the remaining weights)",
    )
    add_scoring_flags(parser, preset=MICHEL)
    add_comparison_flags(parser)
    # Each step depends on the previous one: one process, and one mask at a time.
    parser.set_defaults(launcher="processes", partition=None, time=None, gpus=None, worker=False)
    parser.set_defaults(masks_at_once=0, ffn=None)


def lottery_settings(args: argparse.Namespace, mode: str) -> Any:
    """Return the :class:`~fairseq_headprune.studies.lottery.LotterySettings` of a mode that the flags describe.

    Raises:
        ValueError: a number out of range.
    """
    from fairseq_headprune.studies.lottery import LotterySettings

    return LotterySettings(
        mode=mode,
        threshold=_share(args.threshold),
        step=parse_step(args.step),
        select=args.select_on,
        magnitude_of=args.magnitude_of or "original",
        score=scoring_settings(args, args.select_on),
        **vars(comparison_settings(args)),
    )


def _share(text: str) -> Fraction:
    """Parse a share such as 0.9 or 90%.

    Raises:
        ValueError: it is not above 0 and at most 1 (above 1 the full model itself would miss it).
    """
    share = parse_fraction(text)
    if share is None or not 0 < share <= 1:
        raise ValueError(f"--threshold {text}: give a share above 0 and up to 1, which the full model itself keeps")
    return share
