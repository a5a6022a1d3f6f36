"""Common code of verbs whose study trains models: the training flags, and running the trainings."""

import argparse
import shlex
from collections.abc import Callable
from typing import Any

from fairseq_headprune.cli.common import Parser, check_least
from fairseq_headprune.cli.scale_flags import (
    add_dry_run_flag,
    add_launcher_flags,
    check_launcher_flags,
    rank,
    trainings_at_once,
)
from fairseq_headprune.cli.study import run_opened, show, show_outlooks, warn
from fairseq_headprune.jobs.processes import visible_gpus


def add_training_flags(group: Any) -> None:
    """Add the flags that set how each training is run, how many at once, and where."""
    add = group.add_argument
    add(
        "--train-flags",
        required=True,
        metavar="FLAGS",
        help="flags of fairseq-train as one word: --arch, --optimizer, --lr, --max-tokens, …",
    )
    add("--updates", type=int, metavar="N", help="updates of fine-tuning (this or --epochs is required)")
    add(
        "--epochs",
        type=int,
        metavar="N",
        help="epochs of fine-tuning; the paper's are 30 (this or --updates is required)",
    )
    add("--slim", action="store_true", help="remove the heads first, fine-tune the smaller model")
    add("--jobs", type=int, metavar="N", help="fine-tunings at the same time (default: one a GPU)")
    add_launcher_flags(group)
    add_dry_run_flag(group)


def check_training_flags(verb: str, args: argparse.Namespace) -> None:
    """Check the training flags.

    Raises:
        ValueError: numbers out of range, incompatible flags, or several torchrun processes.
    """
    _, processes = rank()
    if processes > 1:
        raise ValueError(f"torchrun has started {processes} processes; start {verb} once, with --jobs {processes}")
    if args.head_mask is not None:
        raise ValueError("--head-mask is not supported here: the study draws its own masks; slim the checkpoint first")
    if (args.updates is None) == (args.epochs is None):
        raise ValueError("say how long to fine-tune: --updates N or --epochs N, and not both")
    check_least(1, args, "updates", "epochs", "jobs")
    check_launcher_flags(args)


def fine_tuning(args: argparse.Namespace) -> Any:
    """Return the :class:`~fairseq_headprune.studies.fine_tuning.FineTuning` that the flags describe."""
    from fairseq_headprune.studies.fine_tuning import FineTuning

    limit = ["--max-update", str(args.updates)] if args.updates else ["--max-epoch", str(args.epochs)]
    how = FineTuning(shlex.split(args.train_flags), limit, args.slim)
    how.check()
    return how


def generation_flags(argv: list[str], add_flags: Callable[[argparse.ArgumentParser], Any]) -> list[str]:
    """Return the data folder and fairseq-generate's flags, without the verb's own."""
    own = Parser(add_help=False)
    add_flags(own)
    return own.parse_known_args(argv)[1]


def run_trainings(verb: str, argv: list[str], args: argparse.Namespace, study: Any, masks: Any = None) -> int:
    """Run a study that trains and print its document; ``masks`` makes what computes cells without a training."""
    from fairseq_headprune.studies.masked import TrainWork
    from fairseq_headprune.studies.outlook import of_trainings

    args.jobs = args.jobs or len(visible_gpus())
    at_once = trainings_at_once(args)
    if args.dry_run:
        study.check()
        warn(study)
        return show_outlooks([of_trainings(study, args.output, at_once)], args)

    def work(study: Any) -> TrainWork:
        return TrainWork(study, at_once, masks and masks(study))

    run_opened(verb, argv, args, study, work, trains=True)
    return 0 if args.worker else show(study, args)
