"""``headprune lottery retrain``: are tickets winning?"""

import argparse
import shlex
from pathlib import Path
from typing import Any

from fairseq_headprune.cli.comparison_flags import add_comparison_flags, comparison_settings
from fairseq_headprune.cli.model_flags import parse_model_flags
from fairseq_headprune.cli.training_study import (
    add_training_flags,
    check_training_flags,
    fine_tuning,
    generation_flags,
    run_trainings,
)
from fairseq_headprune.parts import FFN, Mask

_DESCRIPTION = """Score tickets of heads and feed-forward blocks of the checkpoint --path as they are, and after
training each alone from the weights that the checkpoint began with: those that --train-flags and the seed give (BERT:
the pretrained ones of --bert and a fresh task layer), or --rewind CHECKPOINT; and the whole model trained again
(Prasanna et al. 2020, §4.2). All are tested against --path by paired bootstrap. Started again, it resumes."""


def run(argv: list[str]) -> int:
    """Run the verb."""
    args = parse_model_flags("lottery retrain", argv, _add_flags, _DESCRIPTION)
    from fairseq_headprune.session import open_session
    from fairseq_headprune.studies.lottery_retrain import LotteryRetrain
    from fairseq_headprune.studies.mask_study import Comparison

    check_training_flags("lottery retrain", args)
    comparison, how, fresh = Comparison(**comparison_settings(args)), fine_tuning(args), _fresh(args)
    if how.slim and not args.rewind:
        raise ValueError("--slim needs --rewind, the checkpoint that parts are removed from before training")
    tickets = read_tickets(args.tickets)
    args.ffn = "blocks" if any(set(FFN) & set(mask.rows) for mask in tickets.values()) else None
    session = open_session(args)
    seed = args.training_seed if args.training_seed is not None else session.saved_cfg.common.seed
    study = LotteryRetrain.of(session, args.gen_subset, tickets, how, seed, args.rewind, fresh, comparison)
    study.generate = generation_flags(argv, _add_flags)
    return run_trainings("lottery retrain", argv, args, study)


def _add_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("lottery")
    add = group.add_argument
    add("-o", "--output", metavar="DIR", required=True, help="study folder (required)")
    add(
        "--tickets",
        nargs="+",
        required=True,
        metavar="FILE|DIR",
        help="mask files, or folders of them such as headprune lottery tickets writes for each search (required)",
    )
    add(
        "--rewind",
        metavar="CHECKPOINT",
        help="train from these weights, with an optimizer that begins anew: a checkpoint of the model's own training "
        "after some updates (Frankle et al. 2020) (default: from what --train-flags and the seed give)",
    )
    add("--training-seed", type=int, metavar="S", help="seed of the trainings (default: that of --path)")
    add(
        "--fresh-seed",
        type=int,
        metavar="S",
        help="train each ticket from random weights of this seed, too (default: not)",
    )
    add(
        "--fresh-flags",
        metavar="FLAGS",
        help="flags of fairseq-train for that, where --train-flags load weights: for BERT an --arch with --vocabulary "
        "in place of --bert (default: --train-flags)",
    )
    add_training_flags(group)
    add_comparison_flags(parser)
    parser.set_defaults(masks_at_once=0)


def _fresh(args: argparse.Namespace) -> dict[str, Any] | None:
    """Return seed and flags of the trainings from random weights."""
    if args.fresh_seed is None:
        if args.fresh_flags is not None:
            raise ValueError("--fresh-flags needs --fresh-seed")
        return None
    flags = shlex.split(args.fresh_flags or args.train_flags)
    if "--bert" in (flag.partition("=")[0] for flag in flags):
        raise ValueError("--fresh-seed: --bert loads pretrained weights; give --fresh-flags without it")
    return {"seed": args.fresh_seed, "flags": flags}


def read_tickets(paths: list[str]) -> dict[str, Mask]:
    """Read tickets; return them by name.

    Raises:
        ValueError, FileNotFoundError: not a mask file, a ticket of single weights, or two tickets of one name.
    """
    found: dict[str, Mask] = {}
    for path in map(Path, paths):
        files = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if path.is_dir() and not files:
            weights = " (tickets of weights cannot be trained yet)" if any(path.glob("*.pt")) else ""
            raise ValueError(f"{path} has no mask files{weights}")
        for file in files:
            if file.stem in found or file.stem == "full":
                raise ValueError(f"{file}: there is a ticket {file.stem} already; rename the file")
            found[file.stem] = Mask.load(file)
    return found
