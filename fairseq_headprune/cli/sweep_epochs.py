"""``headprune sweep-epochs``: from which epoch on can heads be pruned, and when does their ranking settle?"""

import argparse
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from fairseq_headprune.cli.common import check_least, numbers
from fairseq_headprune.cli.model_flags import parse_model_flags
from fairseq_headprune.cli.prune import add_prune_flags, order_kind, prune_maker
from fairseq_headprune.cli.scale_flags import add_scale_flags, helpers, take_place
from fairseq_headprune.cli.study import outlook, show, show_outlooks, warn
from fairseq_headprune.cli.study_flags import add_comparison_flags
from fairseq_headprune.progress import Progress

_DESCRIPTION = """The study of headprune prune at every epoch checkpoint (checkpointN.pt) of a training run: BLEU
(--task glue: GLUE's metric), absolute and relative to that epoch's unpruned model, and how the ranking of the heads
evolves (Michel et al. 2019, §6, Figure 5). With --follow it waits for further checkpoints while training runs. Started
again, it resumes."""


def run(argv: list[str]) -> int:
    """Run the verb."""
    args = parse_model_flags("sweep-epochs", argv, _add_flags, _DESCRIPTION, one_model=False)
    from fairseq_headprune.provenance import environment
    from fairseq_headprune.studies.epochs import EpochCheckpoints, epoch_list, parse_epochs
    from fairseq_headprune.studies.study import run as run_cells
    from fairseq_headprune.studies.sweep import EpochWork, Sweep, first_session

    if order_kind(args.order) == "oracle":
        raise ValueError("--order oracle is the order of one checkpoint; a sweep has several: omit it")
    make, follow = prune_maker(args), _follow(args)
    check_least(1, args, "panel", "keep")
    take_place(args)
    checkpoints = EpochCheckpoints(args.checkpoints, parse_epochs(args.epochs) if args.epochs else None)
    first = make(first_session(args, checkpoints, None if args.dry_run else follow))
    first.check()
    _check_numbers(args, checkpoints, max(points[-1].pruned for points in first.steps.values()))
    sweep, here = Sweep.of(first, checkpoints, follow), environment(args.headprune_command)
    if args.dry_run:
        sweep.check_folder(args.output)
        return _dry_run(args, first, list(checkpoints.readable()))
    warn(first)
    sweep.keep, sweep.panel = args.keep, args.panel
    sweep.open(args.output, here)
    total = None if follow else first.planned() * len(checkpoints.readable())
    progress = Progress("sweep-epochs", total, args.quiet or args.worker)
    work = EpochWork(args, sweep, make, here, progress.cell)
    del first
    with helpers("sweep-epochs", argv, args, sweep.folder):
        for epoch in run_cells(sweep, work):
            progress.skip(epoch["cells"] if epoch["epoch"] not in work.computed else 0)
    progress.close()
    if args.worker:
        return 0
    done = [cell["epoch"] for cell in sweep.folder.cells().values()]
    late = [epoch for epoch in args.panel if epoch not in done]
    if late:
        print(f"headprune sweep-epochs: --panel: no result for epochs {epoch_list(late)}", file=sys.stderr)
    return show(sweep, args)


def _dry_run(args: argparse.Namespace, first: Any, epochs: list[int]) -> int:
    """Print what is left of a sweep whose first epoch has the study ``first``."""
    from fairseq_headprune.studies.sweep_result import epoch_path

    note = "further epochs will come" if args.follow else ""
    found = outlook(first, args, [epoch_path(Path(args.output), epoch) for epoch in epochs], note)
    return show_outlooks([replace(found, study="sweep-epochs")], args)


def _add_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("epochs")
    add = group.add_argument
    add("--checkpoints", metavar="DIR", required=True, help="folder with checkpoint1.pt, checkpoint2.pt, …")
    add("--epochs", metavar="LIST", help="only these, such as 1,2,5-10 (default: all that are there)")
    add("--follow", action="store_true", help="wait for further checkpoints until training ends")
    add(
        "--until", metavar="N", type=int, help="with --follow: end when epoch N is done (default: at training's limits)"
    )
    add(
        "--idle",
        metavar="SECONDS",
        type=float,
        default=3600.0,
        help="with --follow: end when no new checkpoint came for so long (default: 3600)",
    )
    add = partial(add, metavar="LIST", type=partial(numbers, may_be_empty=True), default=[])
    add("--panel", help="epochs of the figure's right panel (default: the first two and the last two)")
    add(
        "--keep",
        help="numbers of heads kept, for which the epoch is sought in which the final set is first reached "
        "(default: a quarter, half and three quarters of the heads in play)",
    )
    add_prune_flags(parser)
    add_comparison_flags(parser)
    add_scale_flags(parser)


def _follow(args: argparse.Namespace) -> Any:
    from fairseq_headprune.studies.sweep import Follow

    if not args.idle > 0:
        raise ValueError(f"--idle must be more than 0 seconds, got {args.idle:g}")
    if args.until is not None and not args.follow:
        raise ValueError("--until says how long to follow; it needs --follow")
    check_least(1, args, "until")
    return Follow(args.until, args.idle) if args.follow else None


def _check_numbers(args: argparse.Namespace, checkpoints: Any, largest: int) -> None:
    """Check head counts and epochs before anything is written.

    Raises:
        ValueError: a number of heads to keep that no curve can have, or an epoch of the panel that is not swept.
    """
    from fairseq_headprune.studies.epochs import epoch_list

    for count in args.keep:
        if count >= largest:
            raise ValueError(f"--keep {count}: the largest curve has {largest} heads in play; name 1 to {largest - 1}")
    # An epoch without a checkpoint may have been swept before, or its checkpoint may still be written.
    known = checkpoints.wanted or (set() if args.follow or Path(args.output).exists() else set(checkpoints.readable()))
    for epoch in args.panel:
        if known and epoch not in known:
            raise ValueError(f"--panel {epoch}: that epoch is not swept; name some of {epoch_list(known)}")
