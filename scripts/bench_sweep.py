"""Time the pruning curves of several epochs: headprune sweep-epochs against headprune prune on each checkpoint.

Both sides run in this process with the same flags, from loading the models to the finished study. The sweep should
take at most 10% longer than the separate curves.
"""

import argparse
import contextlib
import io
import tempfile
from collections.abc import Sequence
from pathlib import Path

import benchmarks
import script_flags
import shown

from fairseq_headprune.cli import prune, sweep_epochs
from fairseq_headprune.files import sha256


def main() -> None:
    """Run the benchmark and print its result."""
    args, flags = _arguments()
    paths = [Path(args.checkpoints, f"checkpoint{epoch}.pt") for epoch in args.epochs.split(",")]
    sides = {
        "sweep": lambda: _sweep(args.checkpoints, args.epochs, flags),
        "curves": lambda: [_curve(path, flags) for path in paths],
    }
    for path in paths[:1]:  # warm-up: imports, and what torch sets up once
        _curve(path, flags)
    times, _ = benchmarks.interleave(sides, args.rounds, not args.cpu)
    result = benchmarks.write_document(
        args,
        "sweep",
        checkpoints={path.name: sha256(path) for path in paths},
        seconds={name: benchmarks.spread(values) for name, values in times.items()},
        sweep_to_curves=benchmarks.paired_ratios(times["sweep"], to=times["curves"]),
    )
    shown.tell(shown.SWEEP, result)


def _arguments() -> tuple[argparse.Namespace, list[str]]:
    """Return this script's flags, and the remaining ones, which are those of both verbs."""
    usage = "%(prog)s DATA --checkpoints DIR --epochs LIST [flags of headprune prune] [flags below]"
    parser = script_flags.new_parser(__doc__, usage)
    add = parser.add_argument
    add("--checkpoints", required=True, help="folder with checkpoint1.pt, checkpoint2.pt, …")
    add("--epochs", required=True, help="such as 1,2,3")
    add("--cpu", action="store_true", help="on the CPU")
    script_flags.add_run_flags(parser, rounds=3)
    args, flags = parser.parse_known_args()
    script_flags.check(args, "rounds")
    return args, [*flags, *(["--cpu"] if args.cpu else [])]


def _curve(checkpoint: Path, flags: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        prune.run([*flags, "--path", str(checkpoint), "--quiet", "-o", folder + "/study"])


def _sweep(folder: str, epochs: str, flags: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as output, contextlib.redirect_stdout(io.StringIO()):
        words = ["--checkpoints", folder, "--epochs", epochs]
        sweep_epochs.run([*flags, *words, "--quiet", "-o", output + "/study"])


if __name__ == "__main__":
    script_flags.run(main)
