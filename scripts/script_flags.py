"""How the benchmark scripts read their flags, and how they end where an input is wrong: as the verbs do."""

import argparse
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import benchmarks  # noqa: F401  (puts the repository's root on sys.path)

from fairseq_headprune.cli import said
from fairseq_headprune.cli.common import Help, Parser
from fairseq_headprune.files import check_output

# Must run before fairseq's models are imported, which set up logging at level DEBUG.
logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(name)s: %(message)s")


def run(main: Callable[[], Any]) -> None:
    """Run a script and exit; wrong input is one line on stderr and status 2 (HEADPRUNE_DEBUG=1 shows the traceback)."""
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)  # the program has said why
    except (ValueError, KeyError, OSError) as error:
        if os.environ.get("HEADPRUNE_DEBUG"):
            raise
        print(f"{Path(sys.argv[0]).name}: {' '.join(said(error).split())}", file=sys.stderr)
        sys.exit(2)


def new_parser(description: str | None, usage: str | None = None) -> Parser:
    """Return a parser that shows a script's docstring as it is written."""
    return Parser(description=description, usage=usage, formatter_class=_Help)


class _Help(Help, argparse.RawDescriptionHelpFormatter):
    """The verbs' help of flags, below a text that is shown as it is written."""


def add_run_flags(
    parser: argparse.ArgumentParser, rounds: int, what: str = "rounds; each measures every side once, in turning order"
) -> None:
    """Add ``--rounds`` with this default, and ``--output``."""
    parser.add_argument("--rounds", type=int, default=rounds, help=what)
    parser.add_argument("--output", help="write the result to this JSON file")


def some_of(known: Sequence[str]) -> Callable[[str], list[str]]:
    """Return argparse's type of a comma-separated list of known words."""

    def read(text: str) -> list[str]:
        words = text.split(",")
        for word in words:
            if word not in known:
                raise argparse.ArgumentTypeError(f"{word}: known are {', '.join(known)}")
        return words

    return read


def check(args: argparse.Namespace, *counts: str, **least: int) -> None:
    """Check numbers, by their names among the flags, and that ``--output`` can be written before anything is measured.

    Args:
        counts: flags whose numbers are at least 1.
        least: flag -> the least number, for the others.

    Raises:
        ValueError, OSError: a number is less than that, or the file cannot be written.
    """
    for name, limit in {**dict.fromkeys(counts, 1), **least}.items():
        if getattr(args, name) < limit:
            raise ValueError(f"--{name.replace('_', '-')} {getattr(args, name)}: it must be at least {limit}")
    if args.output:
        check_output(args.output)
