"""The flags of verbs that time models, and their checks."""

import argparse
from typing import Any

from fairseq_headprune.cli.common import check_least


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
