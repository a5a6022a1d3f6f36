"""``headprune bench``: speed and size of models side by side; and the flags of all verbs that time models."""

import argparse
import copy
import os
from typing import Any

from fairseq_headprune.cli.common import add_output_flags, check_least, emit, numbers
from fairseq_headprune.cli.model_flags import parse_model_flags
from fairseq_headprune.report.tables import render_parts


def add_timing_flags(group: Any, rounds: int) -> None:
    """Add ``--rounds`` and ``--threads``.

    Args:
        rounds: the default.
    """
    add = group.add_argument
    add("--rounds", type=int, default=rounds, metavar="N", help="timed rounds, after one to warm up")
    add("--threads", type=int, default=0, metavar="N", help="CPU threads of torch (default: torch's own choice)")


def add_length_flag(group: Any, default: int | None = 20) -> None:
    """Add ``--length``."""
    group.add_argument(
        "--length", type=int, default=default, metavar="T", help="tokens of every translation (default: 20)"
    )


def check_timing(args: argparse.Namespace, *flags: str) -> None:
    """Check the flags of timing, and that the other numbers named are at least 1.

    Raises:
        ValueError: a number out of range.
    """
    check_least(1, args, *flags, "rounds")
    check_least(0, args, "threads")
    length = getattr(args, "length", None)
    if length is not None and length < 2:
        raise ValueError(f"--length {length}: a translation has at least 2 tokens, the last one ends it")


def use_threads(args: argparse.Namespace) -> None:
    """Let torch use as many CPU threads as the flags say."""
    if args.threads:
        import torch

        torch.set_num_threads(args.threads)


_DESCRIPTION = """Speed and size of models, each against the first one (--path), measured in one run: the same
sentences, in turning order after a round to warm up; translations have the same number of tokens each (--length).
fairseq-generate's flags hold, except those of the length."""


def run(argv: list[str]) -> int:
    """Run the verb."""
    args = parse_model_flags("bench", argv, _add_flags, _DESCRIPTION)
    _check(args)
    from fairseq_headprune.session import Session
    from fairseq_headprune.speed.measure import measure

    use_threads(args)
    paths = [args.path, *args.models]
    names = _names(paths)
    sides = {}
    for name, path in zip(names, paths, strict=True):
        mine = copy.copy(args)
        mine.path = path
        sides[name] = _side(Session(mine), args)
    rows = measure(sides, args.sentences, args.batch_sizes, args.beams, args.rounds)
    for row in rows:
        side = sides[row["model"]]
        first = side.batches(args.sentences, row["batch_size"])[0]
        row["operations"] = side.operations(first, row["beam"])
    value = _value(args, sides, dict(zip(names, paths, strict=True)), rows)
    emit(value, args.json, _text(value, args.format))
    return 0


def _side(session: Any, args: argparse.Namespace) -> Any:
    if not session.task.translates:
        from fairseq_headprune.speed.measure import ClassifierSide

        return ClassifierSide(session, args.gen_subset)
    from fairseq_headprune.speed.measure import Side

    return Side(session, args.gen_subset, args.length, args.beams)


def _add_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("models")
    group.add_argument("--models", nargs="+", default=[], metavar="CKPT", help="compared with --path CHECKPOINT")
    group = parser.add_argument_group("measurement")
    add = group.add_argument
    add(
        "--batch-sizes",
        type=numbers,
        metavar="N,N…",
        help="sentences a batch; 0: by --max-tokens (default: that of --batch-size, else 1,4,16,64)",
    )
    add("--beams", type=numbers, metavar="N,N…", help="beam sizes of translations (default: that of --beam, else 1,5)")
    parser.set_defaults(beam=None)
    add("--sentences", type=int, default=64, metavar="N", help="first sentences of the split")
    add_length_flag(group, None)
    add_timing_flags(group, 5)
    add_output_flags(parser)


def _check(args: argparse.Namespace) -> None:
    """Check the numbers, and set defaults for translation models.

    Raises:
        ValueError: a number is out of range or not supported.
    """
    from fairseq_headprune.tasks.seam import task_class

    if not task_class(args.task).translates:
        for flag in ("beams", "length"):
            if getattr(args, flag) is not None:
                raise ValueError(f"--{flag}: a classifier translates nothing; leave it out")
        args.beams = [None]
    else:
        args.beams = args.beams or ([1, 5] if args.beam is None else [args.beam])
        args.length = 20 if args.length is None else args.length
    args.batch_sizes = args.batch_sizes or ([1, 4, 16, 64] if args.batch_size is None else [args.batch_size])
    args.beam = args.beams[-1] or 1
    check_timing(args, "sentences", "beams")
    check_least(0, args, "batch-sizes")


def _names(paths: list[str]) -> list[str]:
    """Name models by file name, or by path if file names coincide."""
    files = [os.path.basename(path) for path in paths]
    if len(set(paths)) < len(paths):
        raise ValueError("--models: a model is given twice")
    return files if len(set(files)) == len(files) else list(paths)


def _value(args: argparse.Namespace, sides: dict, paths: dict[str, str], rows: list[dict]) -> dict[str, Any]:
    from fairseq_headprune.provenance import environment
    from fairseq_headprune.speed.measure import conditions

    first = next(iter(sides.values()))
    facts = {name: side.facts(paths[name]) for name, side in sides.items()}
    base = next(iter(facts.values()))["multiply_adds"]
    return {
        **conditions(first.session),
        "length": args.length,
        "data": first.session.data(args.gen_subset),
        "models": {name: {**fact, "floor_speed": base / fact["multiply_adds"]} for name, fact in facts.items()},
        "rows": rows,
        "environment": environment(args.headprune_command),
    }


def _text(value: dict[str, Any], form: str) -> str:
    from fairseq_headprune.report.speed import MODELS, TIMES

    if value["length"] is not None:
        about = f"{value['length']} tokens a sentence; floor: speed to the first by multiply-adds of a sentence, "
        about += "source as long as target, beam 1"
    else:
        about = "sentences: examples; floor: speed to the first by multiply-adds of an example of mean length"
    where = f"{value['device']}, {value['precision']}, {value['threads']} threads; {about}"
    return render_parts([MODELS.table({"": value}), "", TIMES.table({"": value}), "", where], form)
