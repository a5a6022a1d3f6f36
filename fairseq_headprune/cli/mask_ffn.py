"""``headprune mask --ffn``: the feed-forward parts that a mask keeps."""

import argparse
from typing import Any

from fairseq_headprune.choosing.scored import keep_highest_ffn
from fairseq_headprune.files import sha256
from fairseq_headprune.parts import FFN, FFN_PARTS, Mask, ffn_parts, has_ffn
from fairseq_headprune.parts.layout import Layout
from fairseq_headprune.parts.scores import Scores


def add_ffn_flag(parser: argparse.ArgumentParser) -> None:
    """Add the flag."""
    parser.add_argument(
        "--ffn",
        type=_count_or_parts,
        metavar="K|blocks|units",
        help="keep the K highest-scored feed-forward blocks or units, whichever headprune score --ffn has scored; or "
        "say what is chosen from where --components names ffn (default: all are kept; blocks)",
    )


def _count_or_parts(text: str) -> int | str:
    if text in FFN_PARTS:
        return text
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: give a number of parts to keep, blocks or units") from None


def parts_in_play(args: argparse.Namespace) -> bool:
    """Whether the flags say anything about feed-forward parts."""
    return args.ffn is not None or ffn_parts(args.components, None) is not None


def with_ffn_parts(args: argparse.Namespace, start: Mask, layout: Layout | None) -> tuple[Mask, dict[str, Any]]:
    """Return the mask with an entry for each feed-forward part that is in play, ``--ffn K`` carried out, and a source.

    Args:
        start: the mask of ``--like``; ``layout``: its layout, None for a mask file.

    Raises:
        ValueError: no scores, scores without feed-forward parts, or a number out of range.
    """
    parts = args.ffn if isinstance(args.ffn, int) else ffn_parts(args.components, args.ffn)
    if parts is None:
        return start, {}
    if isinstance(parts, str):
        return _layout(args, start, layout, {}).spell_out(start, parts), {}
    if not args.scores:
        raise ValueError(
            "--ffn keeps the highest-scored feed-forward parts: say where the scores are with --scores FILE"
        )
    scores = Scores.load(args.scores)
    shape = scores.only(FFN).shape
    kind = "units" if any(count > 1 for counts in shape.values() for count in counts) else "blocks"
    known = _layout(args, start, layout, shape)
    try:
        scores.only(FFN).check_shape(known.original, "--like")
        chosen = keep_highest_ffn(known.spell_out(start, kind), scores, parts)
    except ValueError as error:
        raise ValueError(f"{args.scores}: {error}") from error
    source = {"path": str(args.scores), "sha256": sha256(args.scores), "estimator": scores.estimator}
    return chosen & start, {"scores": source, "ffn_parts_kept": parts}


def _layout(args: argparse.Namespace, start: Mask, layout: Layout | None, shape: dict[str, list[int]]) -> Layout:
    """Return the checkpoint's layout, or that of the model which a mask file and scores are of."""
    if layout is not None:
        return layout
    shape = {**shape, **start.shape}
    if not has_ffn(shape):
        raise ValueError(
            f"{args.like} does not tell how many feed-forward blocks there are: give a checkpoint as --like"
        )
    return Layout.full(shape)
