"""The ways in which ``headprune mask`` chooses heads: the flags, and from each to a pure function of ``choosing``.

A way takes the arguments and the mask to start from, and returns the new mask and what its file says of how it was
chosen. The one whose flag is given is used.
"""

import argparse
from collections.abc import Callable
from typing import Any

from fairseq_headprune.choosing.budget import keep_within, parse_latency, parse_share, parse_speed
from fairseq_headprune.choosing.complement import complement
from fairseq_headprune.choosing.per_layer import (
    keep_per_layer,
    mirrored,
    picking_by_chance,
    picking_highest,
    prune_layers,
)
from fairseq_headprune.choosing.random_heads import keep_random, parse_amount, prune_random
from fairseq_headprune.choosing.scored import keep_highest
from fairseq_headprune.cli.mask_learned import heads_flag
from fairseq_headprune.cli.mask_time import in_time
from fairseq_headprune.files import PathLike, sha256
from fairseq_headprune.parts import FFN_PARTS, HEADS, Mask
from fairseq_headprune.parts.notation import named_heads, parse_config, parse_triple
from fairseq_headprune.parts.scores import Scores
from fairseq_headprune.pruning import chosen_components, curves

#: a mask, and what its source says of how it was chosen
Chosen = tuple[Mask, dict[str, Any]]
Way = Callable[[argparse.Namespace, Mask], Chosen]

#: seed of the draws where none is given
DEFAULT_SEED = 1


def by_scores(args: argparse.Namespace, start: Mask) -> Chosen:
    """``--heads K --scores FILE``."""
    scores, source = _read_scores(args.scores, start)
    return keep_highest(start, scores, args.heads), {"chosen": "the highest scores", **source}


def by_config(args: argparse.Namespace, start: Mask) -> Chosen:
    """``--config``: with ``--scores`` the highest heads of each layer, with ``--seed`` by chance, else the first."""
    config = parse_config(args.config)
    config = mirrored(config) if args.mirror else config
    how: dict[str, Any] = {"chosen": "the first heads of each layer"}
    pick = None
    if args.scores:
        scores, source = _read_scores(args.scores, start)
        pick = picking_highest(start, scores, config)
        how = {"chosen": "the highest scores of each layer", **source}
    elif args.seed is not None:
        pick = picking_by_chance(args.seed)
        how = {"chosen": "by chance in each layer", "drawn": {"seed": args.seed}}
    drawn = how.get("drawn", {}) | {"config": config, "mirrored": args.mirror}
    return keep_per_layer(start, config, pick), how | {"drawn": drawn}


def by_parameters(args: argparse.Namespace, start: Mask) -> Chosen:
    """``--for-params``."""
    from fairseq_headprune.checkpoints import read_state  # torch: not for masks of other ways
    from fairseq_headprune.removal.checkpoint import LEARNED, parameters_of_ffn, parameters_of_heads
    from fairseq_headprune.removal.surgery import compact, parameter_count

    share = parse_share(args.for_params)
    scores, source = _read_scores(args.scores, start)
    try:
        state = read_state(args.like)
    except ValueError as error:
        raise ValueError(f"--for-params needs a checkpoint as --like, whose parameters it counts ({error})") from error
    # Learned gates are gone once heads are removed.
    total = parameter_count(compact({n: t for n, t in state["model"].items() if not n.startswith(LEARNED)}))
    blocks = parameters_of_ffn(state, start)
    mask, left = keep_within(start, scores, total, parameters_of_heads(state), share, blocks)
    budget = {"share": args.for_params, "parameters": left, "of": total, "reached": round(left / total, 4)}
    return mask, {"chosen": "the highest scores within a number of parameters", "budget": budget, **source}


def by_speed(args: argparse.Namespace, start: Mask) -> Chosen:
    """``--for-speed``."""
    factor = parse_speed(args.for_speed)
    scores, source = _read_scores(args.scores, start)
    mask, budget = in_time(args, start, scores, lambda whole: whole / factor)
    return mask, {"chosen": "the highest scores within a predicted time", "budget": budget, **source}


def by_latency(args: argparse.Namespace, start: Mask) -> Chosen:
    """``--for-latency``."""
    limit = parse_latency(args.for_latency) / 1000
    scores, source = _read_scores(args.scores, start)
    mask, budget = in_time(args, start, scores, lambda whole: limit)
    return mask, {"chosen": "the highest scores within a predicted time", "budget": budget, **source}


def by_name(args: argparse.Namespace, start: Mask) -> Chosen:
    """``--drop``."""
    heads = {head for text in args.drop for head in named_heads(text, start.shape)}
    mask = start.without(heads)
    before = sorted(heads.intersection(start.dropped()))
    return mask, {"chosen": "all but those named", **({"pruned_before": list(map(str, before))} if before else {})}


def by_chance(args: argparse.Namespace, start: Mask) -> Chosen:
    """``--random``."""
    seed = DEFAULT_SEED if args.seed is None else args.seed
    groups = curves(args.components or "all", list(start.shape))
    mask = prune_random(start, parse_amount(args.random), groups.values(), seed, args.at_least_one)
    drawn = {"random": args.random, "components": args.components or "all"}
    return mask, _drawn("by chance", drawn, seed, args.at_least_one, start, mask)


def by_triple(args: argparse.Namespace, start: Mask) -> Chosen:
    """``--triple``."""
    seed = DEFAULT_SEED if args.seed is None else args.seed
    counts = parse_triple(args.triple)
    mask = keep_random(start, counts, seed, args.at_least_one)
    return mask, _drawn("by chance in each component", {"triple": counts}, seed, args.at_least_one, start, mask)


def by_layers(args: argparse.Namespace, start: Mask) -> Chosen:
    """``--layers``: of the encoder unless ``--components`` says more."""
    named = "all" if args.components == "each" else args.components  # a layer is in one component
    components = chosen_components(named or "enc_self", list(start.shape))
    mask, layers = prune_layers(start, args.layers, components)
    return mask, {"chosen": "all but whole layers", "drawn": {"layers": args.layers, "pruned_layers": layers}}


def by_complement(args: argparse.Namespace, start: Mask) -> Chosen:
    """``--complement MASK``."""
    other = Mask.load(args.complement)
    source = {"path": args.complement, "sha256": sha256(args.complement), "source": other.source}
    return complement(start, other), {"chosen": "what another mask prunes", "complement": source}


#: flag (as argparse names it) -> way
WAYS: dict[str, Way] = {
    "heads": by_scores,
    "for_params": by_parameters,
    "for_speed": by_speed,
    "for_latency": by_latency,
    "config": by_config,
    "drop": by_name,
    "random": by_chance,
    "triple": by_triple,
    "layers": by_layers,
    "complement": by_complement,
}

#: flag that changes how a way chooses -> the ways it goes with
_WITH = {
    "scores": ("heads", "config", "for_params", "for_speed", "for_latency"),
    "profile": ("for_speed", "for_latency"),
    "mirror": ("config",),
    "seed": ("random", "triple", "config"),
    "at_least_one": ("random", "triple"),
    "components": ("random", "layers"),
}


def chosen_way(args: argparse.Namespace) -> Way | None:
    """Return the way whose flag is given, None if none is.

    Raises:
        ValueError: a flag that does not go with it.
    """
    name = next((name for name in WAYS if getattr(args, name) is not None), None)
    for flag, ways in _WITH.items():
        if flag == "scores" and isinstance(args.ffn, int):
            continue
        if getattr(args, flag) not in (None, False) and name not in ways:
            names = [f"--{way.replace('_', '-')}" + (" K" if way == "heads" else "") for way in ways]
            needed = " or ".join(names)
            raise ValueError(f"--{flag.replace('_', '-')} needs {needed}")
    flag = f"--{(name or '').replace('_', '-')}"
    if name in ("heads", "for_params", "for_speed", "for_latency") and not args.scores:
        raise ValueError(f"{flag} keeps the highest-scored heads: say where the scores are with --scores FILE")
    if name in _WITH["profile"] and not args.profile:
        raise ValueError(f"{flag} needs times measured by headprune profile: say where they are with --profile FILE")
    if args.ffn in FFN_PARTS and not args.components:
        raise ValueError(f"--ffn {args.ffn} needs --components with ffn, enc_ffn or dec_ffn")
    if name in _WITH["profile"] and args.ffn is not None:
        raise ValueError(
            f"{flag} does not go with --ffn, as a profile has the times of heads: slim those parts first, and profile "
            "that model"
        )
    if args.scores and args.seed is not None:
        raise ValueError("--config keeps the highest --scores or draws with --seed, not both")
    return WAYS[name] if name else None


def add_ways(what: argparse._MutuallyExclusiveGroup, how: argparse._ArgumentGroup) -> None:
    """Add the flags of all ways (of which one may be given) and those that change how a way chooses."""
    _add_ranked(what.add_argument)
    _add_written(what.add_argument)
    _add_how(how.add_argument)


def _add_ranked(add: Callable[..., Any]) -> None:
    """The ways that keep the highest-scored heads."""
    add(
        "--heads",
        type=heads_flag,
        metavar="K",
        help="keep K heads over all components that are scored (default: all heads)",
    )
    add(
        "--for-params",
        metavar="0.8x",
        help="keep the highest-scored heads so that the slim model has at most this share of the parameters of the "
        "checkpoint --like (default: none)",
    )
    add(
        "--for-speed",
        metavar="1.3x",
        help="keep the highest-scored heads so that the slim model is predicted to be so many times as fast as the "
        "model of --profile (default: none)",
    )
    add(
        "--for-latency",
        metavar="MS",
        help="keep the highest-scored heads so that the slim model is predicted to take so many milliseconds a batch "
        "of --profile (default: none)",
    )


def _add_written(add: Callable[..., Any]) -> None:
    """The ways that say how many heads, or which."""
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
        help="heads to prune, counted from 1: E enc-enc, A enc-dec, D dec-dec; layer; heads. May be repeated "
        "(default: none)",
    )
    add(
        "--random",
        metavar="60%|K",
        help="prune this share of the heads (rounded, halves to the even number) or K heads by chance (default: none)",
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
        "commas (default: none)",
    )
    add("--complement", metavar="MASK", help="keep just the heads that this mask prunes (default: none)")


def _add_how(add: Callable[..., Any]) -> None:
    """What changes how a way chooses."""
    add(
        "--scores",
        metavar="FILE",
        help="score file: keep the highest-scored heads; of equal ones the lowest index (default: none)",
    )
    add("--profile", metavar="FILE", help="what headprune profile wrote (default: none)")
    add("--mirror", action="store_true", help="reverse each component's counts of --config (default: off)")
    add(
        "--seed",
        type=int,
        metavar="S",
        help=f"seed of --random and --triple (default: {DEFAULT_SEED}) and of --config (default: nothing is drawn)",
    )
    add(
        "--at-least-one",
        action="store_true",
        help="--random and --triple leave a head in each layer (default: off)",
    )
    add(
        "--components",
        metavar="all|each|LIST",
        help="--random draws over these jointly, or from each by itself (default: all); --layers are of these "
        "(default: enc_self)",
    )


def _drawn(
    chosen: str, drawn: dict[str, Any], seed: int, at_least_one: bool, start: Mask, mask: Mask
) -> dict[str, Any]:
    heads = len(start.kept())
    counts = {"seed": seed, "at_least_one": at_least_one, "pruned": heads - len(mask.kept()), "of": heads}
    return {"chosen": chosen, "drawn": drawn | counts}


def _read_scores(path: PathLike, mask: Mask) -> tuple[Scores, dict[str, Any]]:
    scores = Scores.load(path)
    try:
        scores.only(HEADS).check_shape(mask.shape, "--like")
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return scores, {"scores": {"path": str(path), "sha256": sha256(path), "estimator": scores.estimator}}
