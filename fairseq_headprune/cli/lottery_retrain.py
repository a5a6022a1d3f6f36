"""``headprune lottery retrain``: are tickets winning?"""

import argparse
import shlex
from pathlib import Path
from typing import Any

from fairseq_headprune.cli.model_flags import parse_model_flags
from fairseq_headprune.cli.study import (
    add_training_flags,
    check_training_flags,
    fine_tuning,
    generation_flags,
    run_training_study,
)
from fairseq_headprune.cli.study_flags import add_comparison_flags, comparison_settings
from fairseq_headprune.files import sha256
from fairseq_headprune.parts import FFN, Mask

_DESCRIPTION = """Score tickets of heads, feed-forward blocks or single weights of the checkpoint --path as they are,
and after training each alone from the weights that the checkpoint began with: those that --train-flags and the seed
give (BERT: the pretrained ones of --bert and a task layer from that seed, with the embeddings of --path); and the whole
model trained again (Prasanna et al. 2020, §4.2). --rewind and --fresh-seed add trainings from other weights. All are
tested against --path by paired bootstrap. Started again, it resumes."""


def run(argv: list[str]) -> int:
    """Run the verb."""
    args = parse_model_flags("lottery retrain", argv, _add_flags, _DESCRIPTION)
    from fairseq_headprune.session import Session
    from fairseq_headprune.studies.lottery_retrain import LotteryRetrain, Retraining
    from fairseq_headprune.studies.masked import WeightWork

    check_training_flags("lottery retrain", args)
    comparison, tuning, fresh = comparison_settings(args), fine_tuning(args), _fresh(args)
    tickets = read_tickets(args.tickets)
    masks = [ticket for ticket in tickets.values() if isinstance(ticket, Mask)]
    args.ffn = "blocks" if any(set(FFN) & set(mask.rows) for mask in masks) else None
    rewind = rewind_point(args.rewind, Path(args.path))
    session = Session(args)
    if args.reset_embeddings and session.task.translates:
        raise ValueError("--reset-embeddings is for BERT: a translation model always starts from its first embeddings")
    seed = args.training_seed if args.training_seed is not None else session.saved_cfg.common.seed
    kept = not args.reset_embeddings and not session.task.translates
    how = Retraining(tuning, seed, rewind, fresh, kept)
    study = LotteryRetrain.of(session, args.gen_subset, tickets, how, comparison)
    study.generate = generation_flags(argv, _add_flags)
    return run_training_study("lottery retrain", argv, args, study, WeightWork)


def _add_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("lottery")
    add = group.add_argument
    add("-o", "--output", metavar="DIR", required=True, help="study folder")
    add(
        "--tickets",
        nargs="+",
        required=True,
        metavar="FILE|DIR",
        help="mask files or tickets of weights (.pt), or folders of them such as headprune lottery tickets writes for "
        "each search",
    )
    add(
        "--rewind",
        metavar="UPDATE|CHECKPOINT",
        help="train each ticket from the model's weights after so many updates, too (Frankle et al. 2020): those of "
        "checkpoint_*_UPDATE.pt beside --path (--save-interval-updates), or, if there is none, of a training up to "
        "that update; the optimizer and its schedule begin anew (default: not)",
    )
    add(
        "--reset-embeddings",
        action="store_true",
        help="for BERT: reset the embeddings to the pretrained ones as well (default: they stay those of --path, as "
        'the paper says: "re-initialized … except embeddings")',
    )
    add("--training-seed", type=int, metavar="S", help="seed of the trainings (default: that of --path)")
    add(
        "--fresh-seed",
        type=int,
        metavar="S",
        help="train each ticket from random weights of this seed, too; BERT with --random-weights (default: not)",
    )
    add_training_flags(group)
    add_comparison_flags(parser)
    parser.set_defaults(masks_at_once=0)


def _fresh(args: argparse.Namespace) -> dict[str, Any] | None:
    """Return seed and flags of the trainings from random weights."""
    if args.fresh_seed is None:
        return None
    flags = shlex.split(args.train_flags)
    pretrained = "--bert" in (flag.partition("=")[0] for flag in flags)
    return {"seed": args.fresh_seed, "flags": [*flags, *(["--random-weights"] if pretrained else [])]}


def read_tickets(paths: list[str]) -> dict[str, Any]:
    """Read tickets; return by name a ``Mask`` each, or a ``WeightTicket``.

    Raises:
        ValueError, FileNotFoundError: not a ticket, or two tickets of one name.
    """
    found: dict[str, Any] = {}
    for path in map(Path, paths):
        files = sorted([*path.glob("*.json"), *path.glob("*.pt")]) if path.is_dir() else [path]
        if path.is_dir() and not files:
            raise ValueError(f"{path} has no tickets: neither mask files nor tickets of weights (.pt)")
        for file in files:
            if file.stem in found or file.stem == "full":
                raise ValueError(f"{file}: there is a ticket {file.stem} already; rename the file")
            found[file.stem] = _weights(file) if file.suffix == ".pt" else Mask.load(file)
    return found


def _weights(file: Path) -> Any:
    from fairseq_headprune.choosing.magnitude import load_weights
    from fairseq_headprune.studies.lottery_retrain import WeightTicket

    kept, source = load_weights(file)
    return WeightTicket(str(file), sha256(file), sum(int(mask.sum()) for mask in kept.values()), source)


def rewind_point(given: str | None, model: Path) -> str | int | None:
    """Return the checkpoint of ``--rewind``; the update itself if no checkpoint of it is beside the model's.

    Raises:
        ValueError, FileNotFoundError: an update below 1, a missing file, or a checkpoint of another update.
    """
    if given is None:
        return None
    if not given.lstrip("-").isdigit():
        if not Path(given).is_file():
            raise FileNotFoundError(f"--rewind {given}: give an update, or a checkpoint of the model's training")
        return given
    update = int(given)
    if update < 1:
        raise ValueError(f"--rewind {given}: give an update from 1 on; update 0 is the start of training")
    found = sorted(model.parent.glob(f"checkpoint_*_{update}.pt"))
    if not found:
        return update
    from fairseq_headprune.checkpoints import read_state, updates_of

    if (made := updates_of(read_state(found[0]))) != update:
        raise ValueError(f"--rewind {given}: {found[0]} is of update {made}")
    return str(found[0])
