"""``headprune mask --ffn``: the feed-forward parts that a mask keeps."""

import argparse
from typing import Any

from fairseq_headprune.files import sha256
from fairseq_headprune.parts import Mask
from fairseq_headprune.parts.scores import Scores


def add_ffn_flag(parser: argparse.ArgumentParser) -> None:
    """Add the flag."""
    parser.add_argument(
        "--ffn",
        type=int,
        metavar="K",
        help="keep the K highest-scored feed-forward blocks or units, whichever headprune score --ffn has scored "
        "(default: all)",
    )


def ffn_entry(args: argparse.Namespace, start: Mask) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the mask's "ffn" entry, the highest-scored parts of what ``--like`` has, and where the scores are from.

    Raises:
        ValueError: no scores, scores without feed-forward parts, a mask file as ``--like``, or a number out of range.
    """
    from fairseq_headprune.checkpoints import read_state, saved_settings
    from fairseq_headprune.removal.ffn import ffn_layout
    from fairseq_headprune.removal.ffn_layout import keep_highest

    if not args.scores:
        raise ValueError(
            "--ffn keeps the highest-scored feed-forward parts: say where the scores are with --scores FILE"
        )
    scores = Scores.load(args.scores)
    if scores.ffn is None:
        raise ValueError(f"{args.scores} has no feed-forward scores; make them with headprune score --ffn")
    try:
        state = read_state(args.like)
    except ValueError as error:
        raise ValueError(
            f"--ffn needs a checkpoint as --like: a mask file does not tell how many units there are ({error})"
        ) from error
    layout = ffn_layout(state["model"], saved_settings(state)).under(start.ffn)
    wanted = keep_highest(layout, scores.ffn, args.ffn)
    entry = layout.under({side: wanted.get(side, rows) for side, rows in layout.blocks.items()}).blocks
    source = {"path": str(args.scores), "sha256": sha256(args.scores), "estimator": scores.estimator}
    return entry, {"scores": source, "ffn_parts_kept": args.ffn}
