"""The selection methods ("ways") of ``headprune mask``: each flag calls a pure function of ``choosing``.

A way takes the arguments and the initial mask, and returns the new mask and its source: the facts in the mask file
about how it was chosen. ``args.ranking`` is what the file ``--scores`` holds, None without one.
"""

import argparse
import math
from collections.abc import Callable
from typing import Any

from fairseq_headprune.choosing.per_layer import (
    keep_per_layer,
    mirrored,
    picking_by_chance,
    picking_highest,
    prune_layers,
)
from fairseq_headprune.choosing.random_heads import keep_random, parse_amount, prune_random
from fairseq_headprune.choosing.scored import (
    ROUNDING,
    best_uniform,
    fastest,
    keep_highest,
    keep_highest_ffn,
    keep_in_time,
    keep_within,
    parse_latency,
    parse_share,
    parse_speed,
)
from fairseq_headprune.cli.mask_flags import DEFAULT_SEED
from fairseq_headprune.errors import errors_of
from fairseq_headprune.files import PathLike, identified
from fairseq_headprune.parts import FFN, FFN_PARTS, HEADS, Mask, ffn_parts, has_ffn
from fairseq_headprune.parts.layout import Layout
from fairseq_headprune.parts.notation import named_heads, parse_config, parse_triple
from fairseq_headprune.parts.scores import Scores
from fairseq_headprune.pruning import chosen_components, curves
from fairseq_headprune.speed.profile import Profile

#: a mask, and the facts about how it was chosen (its source)
Chosen = tuple[Mask, dict[str, Any]]
Way = Callable[[argparse.Namespace, Mask], Chosen]


def by_scores(args: argparse.Namespace, start: Mask) -> Chosen:
    """``--heads K --scores FILE``."""
    scores, source = _scores(args, start)
    return keep_highest(start, scores, args.heads), {"chosen": "the highest scores", **source}


def by_config(args: argparse.Namespace, start: Mask) -> Chosen:
    """``--config``: with ``--scores`` the highest-scored heads of each layer, with ``--seed`` random, else first."""
    config = parse_config(args.config)
    config = mirrored(config) if args.mirror else config
    how: dict[str, Any] = {"chosen": "the first heads of each layer"}
    pick = None
    if args.scores:
        scores, source = _scores(args, start)
        pick = picking_highest(start, scores, config)
        how = {"chosen": "the highest scores of each layer", **source}
    elif args.seed is not None:
        pick = picking_by_chance(start, args.seed)
        how = {"chosen": "by chance in each layer", "drawn": {"seed": args.seed}}
    drawn = how.get("drawn", {}) | {"config": config, "mirrored": args.mirror}
    return keep_per_layer(start, config, pick), how | {"drawn": drawn}


def by_parameters(args: argparse.Namespace, start: Mask) -> Chosen:
    """``--for-params``."""
    from fairseq_headprune.checkpoints import read_state  # torch: not for masks of other ways
    from fairseq_headprune.removal.checkpoint import parameters_of_ffn, parameters_of_heads
    from fairseq_headprune.removal.surgery import compact, parameter_count

    share = parse_share(args.for_params)
    scores, source = _scores(args, start)
    try:
        state = read_state(args.like)
    except ValueError as error:
        raise ValueError(f"--for-params needs a checkpoint as --like, whose parameters it counts ({error})") from error
    total = parameter_count(compact(state["model"]))  # without learned gates, which are removed with the heads
    blocks = parameters_of_ffn(state, start)
    mask, left = keep_within(start, scores, total, parameters_of_heads(state), share, blocks)
    budget = {"share": args.for_params, "parameters": left, "of": total, "reached": round(left / total, 4)}
    return mask, {"chosen": "the highest scores within a number of parameters", "budget": budget, **source}


def by_time(args: argparse.Namespace, start: Mask) -> Chosen:
    """``--for-speed`` and ``--for-latency``: keep the slim model's predicted time within the limit."""
    factor = parse_speed(args.for_speed) if args.for_speed else None
    limit = 0.0 if factor else parse_latency(args.for_latency) / 1000
    scores, source = _scores(args, start)
    profile = _read_profile(args.profile, start)
    whole = profile.whole()
    limit = whole / factor if factor else limit
    if args.uniform:
        mask = best_uniform(start, scores, lambda found: profile.seconds(found) <= limit * (1 + ROUNDING))
        source |= {"uniform": True}
    else:
        mask = keep_in_time(start, scores, profile.seconds, limit)
    if mask is None:
        raise ValueError(_out_of_reach(args, fastest(start, scores, profile.seconds), whole))
    seconds = profile.seconds(mask)
    target = {"for_speed": args.for_speed} if factor else {"for_latency": args.for_latency}
    file: dict[str, Any] = identified(args.profile) | {"checkpoint": profile.checkpoint}
    file |= {"settings": profile.settings, "off_by": profile.worst_error()}
    predicted = {"milliseconds": 1000 * seconds, "of": 1000 * whole, "speed": whole / seconds}
    budget: dict[str, Any] = {**target, "predicted": predicted, "profile": file}
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
    """``--layers``: encoder layers unless ``--components`` is given."""
    named = "all" if args.components == "each" else args.components  # each layer belongs to one component
    components = chosen_components(named or "enc_self", list(start.shape))
    mask, layers = prune_layers(start, args.layers, components)
    return mask, {"chosen": "all but whole layers", "drawn": {"layers": args.layers, "pruned_layers": layers}}


def by_complement(args: argparse.Namespace, start: Mask) -> Chosen:
    """``--complement MASK``."""
    other = Mask.given(args.complement)
    return start.complement(other), {"chosen": "what another mask prunes", "complement": other.source}


#: flag (as argparse names it) -> way
WAYS: dict[str, Way] = {
    "heads": by_scores,
    "for_params": by_parameters,
    "for_speed": by_time,
    "for_latency": by_time,
    "config": by_config,
    "drop": by_name,
    "random": by_chance,
    "triple": by_triple,
    "layers": by_layers,
    "complement": by_complement,
}

#: modifying flag -> the ways it may be combined with
_WITH = {
    "scores": ("heads", "config", "for_params", "for_speed", "for_latency"),
    "profile": ("for_speed", "for_latency"),
    "uniform": ("for_speed", "for_latency"),
    "mirror": ("config",),
    "seed": ("random", "triple", "config"),
    "at_least_one": ("random", "triple"),
    "components": ("random", "layers"),
}


def chosen_way(args: argparse.Namespace) -> Way | None:
    """Return the way whose flag is given, None if none is.

    Raises:
        ValueError: another flag cannot be combined with it.
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


def _drawn(
    chosen: str, drawn: dict[str, Any], seed: int, at_least_one: bool, start: Mask, mask: Mask
) -> dict[str, Any]:
    heads = len(start.kept())
    counts = {"seed": seed, "at_least_one": at_least_one, "pruned": heads - len(mask.kept()), "of": heads}
    return {"chosen": chosen, "drawn": drawn | counts}


def _scores(args: argparse.Namespace, mask: Mask) -> tuple[Scores, dict[str, Any]]:
    """Return the scores, checked against the shape of the mask, and their source."""
    with errors_of(args.scores):
        args.ranking.only(HEADS).check_shape(mask.shape, "--like")
    return args.ranking, _origin(args)


def _origin(args: argparse.Namespace) -> dict[str, Any]:
    return {"scores": identified(args.scores) | {"estimator": args.ranking.estimator}}


def _read_profile(path: PathLike, mask: Mask) -> Profile:
    """Read a profile, and check that it is of a model of this shape and that its times are plausible."""
    profile = Profile.load(path)
    with errors_of(path):
        profile.seconds(mask)
    if profile.rest <= 0:
        raise ValueError(
            f"{path}: by its times nothing but attention takes time ({1000 * profile.rest:.2f} ms are left), "
            "so they are too noisy; run headprune profile again on an idle machine, with more --rounds"
        )
    return profile


def _out_of_reach(args: argparse.Namespace, seconds: float, whole: float) -> str:
    # Rounded towards the feasible side, so that the suggested value can be reached.
    if args.for_speed:
        best = math.floor(100 * whole / seconds) / 100
        return f"--for-speed {args.for_speed}: without any scored head it is {best:.2f}x; give no more"
    best = math.ceil(100_000 * seconds) / 100
    return f"--for-latency {args.for_latency}: without any scored head it is {best:.2f} ms a batch; give no less"


def parts_in_play(args: argparse.Namespace) -> bool:
    """Whether any flag concerns feed-forward parts."""
    return args.ffn is not None or ffn_parts(args.components, None) is not None


def with_ffn_parts(args: argparse.Namespace, start: Mask, layout: Layout | None) -> tuple[Mask, dict[str, Any]]:
    """Return the mask with an entry for each feed-forward part concerned, after applying ``--ffn K``, and a source.

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
    scores = args.ranking.only(FFN)
    shape = scores.shape
    kind = "units" if any(count > 1 for counts in shape.values() for count in counts) else "blocks"
    known = _layout(args, start, layout, shape)
    with errors_of(args.scores):
        scores.check_shape(known.original, "--like")
        chosen = keep_highest_ffn(known.spell_out(start, kind), scores, parts)
    return chosen & start, {**_origin(args), "ffn_parts_kept": parts}


def _layout(args: argparse.Namespace, start: Mask, layout: Layout | None, shape: dict[str, list[int]]) -> Layout:
    """Return the checkpoint's layout, or the layout of the model to which a mask file and scores belong."""
    if layout is not None:
        return layout
    shape = {**shape, **start.shape}
    if not has_ffn(shape):
        raise ValueError(
            f"{args.like} does not tell how many feed-forward blocks there are: give a checkpoint as --like"
        )
    return Layout.full(shape)
