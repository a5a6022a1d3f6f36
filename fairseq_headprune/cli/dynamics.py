"""``headprune dynamics``: how gates were learned, from training logs."""

import argparse
from pathlib import Path

from fairseq_headprune.cli.common import Parser, add_output_flags, add_width_flag
from fairseq_headprune.cli.study import show_document
from fairseq_headprune.gates.log import read_run
from fairseq_headprune.studies.gate_runs import SCORES, gates_document, gates_value

_DESCRIPTION = """How the set of kept heads came about while gates were learned (Li et al. 2021, §5.2, §5.5, §5.6), from
the log gates.jsonl of trainings. The final set is the one of the last logged update, so a training may still be
running. One training is drawn by update (Figures 7 and 8); of several, heads against lambda (Figure 2, L0 penalties)
and the distribution of the kept heads over layers (Figure 6, one figure a method)."""


def run(argv: list[str]) -> int:
    """Run the verb."""
    args = _parser().parse_args(argv)
    document = gates_document(gates_value([read_run(path, args.until) for path in args.runs], args.score, args.at))
    if args.output is None:
        return show_document(document, args, None)
    folder = Path(args.output)
    folder.mkdir(parents=True, exist_ok=True)
    return show_document(document, args, lambda name: folder / name)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="headprune dynamics", description=_DESCRIPTION)
    parser.add_argument("runs", metavar="RUN", nargs="+", help="--save-dir of a training, or its gates.jsonl")
    parser.add_argument(
        "-o", "--output", metavar="FOLDER", help="draw figures into this folder, as PNG and SVG (default: no figures)"
    )
    parser.add_argument(
        "--until",
        metavar="N",
        type=int,
        help="read the logs up to this update, as where runs are compared that have come to different ones (default: "
        "all of them)",
    )
    parser.add_argument(
        "--at",
        metavar="N,N…",
        type=_updates,
        help="updates at which to tell how much of the set is in the final one (default: 25%%, 50%%, 75%% of each run)",
    )
    parser.add_argument(
        "--score",
        metavar="NAME",
        help="result of the validations to show, by its name in the log (default: the first there is of "
        + ", ".join(SCORES)
        + ")",
    )
    add_output_flags(parser)
    add_width_flag(parser)
    return parser


def _updates(text: str) -> list[int]:
    try:
        updates = [int(part) for part in text.split(",")]
    except ValueError:
        updates = [-1]
    if min(updates) < 0:
        raise argparse.ArgumentTypeError(f"{text!r}: give updates as in 1000,16000")
    return updates
