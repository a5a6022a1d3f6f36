"""The flags of ``headprune mask`` that set how heads and feed-forward parts are chosen."""

import argparse
from collections.abc import Callable
from typing import Any

from fairseq_headprune.parts import FFN_PARTS
from fairseq_headprune.parts.notation import parse_count

#: default seed of the draws
DEFAULT_SEED = 1


def add_ways(parser: argparse.ArgumentParser) -> None:
    """Add the mutually exclusive flags of all selection methods, and the flags that modify them."""
    what, how = parser.add_mutually_exclusive_group(), parser.add_argument_group("how heads are chosen")
    _add_ranked(what.add_argument)
    _add_written(what.add_argument)
    _add_how(how.add_argument)
    parser.add_argument(
        "--ffn",
        type=_count_or_parts,
        metavar="K|blocks|units",
        help="keep the K highest-scored feed-forward blocks or units, whichever headprune score --ffn has scored; or "
        "say what is chosen from where --components names ffn (default: all are kept; blocks)",
    )


def _add_ranked(add: Callable[..., Any]) -> None:
    """Methods that keep the highest-scored heads."""
    add(
        "--heads",
        type=_heads,
        metavar="K",
        help="keep K heads over all components that are scored (default: all heads)",
    )
    add(
        "--for-params",
        metavar="0.8x",
        help="keep the highest-scored heads so that the slim model has at most this share of the parameters of the "
        "checkpoint --like",
    )
    add(
        "--for-speed",
        metavar="1.3x",
        help="keep the highest-scored heads so that the slim model is predicted to be so many times as fast as the "
        "model of --profile",
    )
    add(
        "--for-latency",
        metavar="MS",
        help="keep the highest-scored heads so that the slim model is predicted to take so many milliseconds a batch "
        "of --profile",
    )


def _add_written(add: Callable[..., Any]) -> None:
    """Methods that are given how many heads to keep, or which."""
    add(
        "--config",
        nargs="+",
        action="extend",
        metavar="KEY=COUNTS",
        help="heads to keep in each layer, as in ES=888444 ED=444888 DS=888444; components not named stay as they are; "
        "the first ones of each layer unless --scores or --seed is given (default: all heads)",
    )
    add(
        "--drop",
        action="append",
        metavar="E:1:1,2",
        help="heads to prune, counted from 1: E enc-enc, A enc-dec, D dec-dec; layer; heads. May be repeated",
    )
    add(
        "--random",
        metavar="60%|K",
        help="prune this share of the heads (rounded, halves to the even number) or K heads by chance",
    )
    add(
        "--triple",
        metavar="ES,ED,DS",
        help="keep so many heads of each component, by chance, as in 14,31,30 (default: all heads)",
    )
    add(
        "--layers",
        metavar="SET",
        help="prune whole layers, counted from 1: top:N, bottom:N, middle:N, even, odd, numbers, or several joined by "
        "commas",
    )
    add("--complement", metavar="MASK", help="keep just the heads that this mask prunes")


def _add_how(add: Callable[..., Any]) -> None:
    """Flags that modify a selection method."""
    add("--scores", metavar="FILE", help="score file: keep the highest-scored heads; of equal ones the lowest index")
    add(
        "--uniform",
        action="store_true",
        help="with --for-speed or --for-latency: one number of heads in all layers of the encoder, one in those of the "
        "decoder for both attentions, so that export to CTranslate2 does not pad",
    )
    add("--profile", metavar="FILE", help="what headprune profile wrote")
    add("--mirror", action="store_true", help="reverse each component's counts of --config")
    add(
        "--seed",
        type=int,
        metavar="S",
        help=f"seed of --random and --triple (default: {DEFAULT_SEED}) and of --config (default: nothing is drawn)",
    )
    add("--at-least-one", action="store_true", help="--random and --triple leave a head in each layer")
    add(
        "--components",
        metavar="all|each|LIST",
        help="--random draws over these jointly, or from each by itself (default: all); --layers are of these "
        "(default: enc_self)",
    )


def _count_or_parts(text: str) -> int | str:
    if text in FFN_PARTS:
        return text
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: give a number of parts to keep, blocks or units") from None


def _heads(text: str) -> int | dict[str, int]:
    """Parse ``--heads``: K, or one number per component."""
    try:
        return parse_count("--heads", text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
