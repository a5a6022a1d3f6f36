"""``headprune mask``: make a mask file, which says of every head whether it is kept."""

import argparse
import shlex
from pathlib import Path
from typing import Any

from fairseq_headprune.cli.common import Parser, emit
from fairseq_headprune.files import PathLike, sha256
from fairseq_headprune.heads import PAPER_NAMES, Head, HeadMask, all_heads
from fairseq_headprune.importance.scores import HeadScores
from fairseq_headprune.notation import check_config, format_config, format_descriptor, parse_config, parse_descriptor

_DESCRIPTION = """Make a mask file for a model: all its heads are kept unless something more is said. Heads that the
checkpoint or mask of --like has pruned stay pruned."""


def run(argv: list[str]) -> int:
    """Run the verb."""
    args = _parser().parse_args(argv)
    if args.scores and args.heads is None and args.config is None and args.ffn is None:
        raise ValueError("--scores needs --heads K (over all layers), --config (a number for each layer) or --ffn K")
    if args.ffn is not None and not args.scores:
        raise ValueError(
            "--ffn keeps the highest-scored feed-forward parts: say where the scores are with --scores FILE"
        )
    if args.heads is not None and not args.scores:
        raise ValueError("--heads keeps the highest-scored heads: say where the scores are with --scores FILE")
    start, source = _like(args.like)
    scores = _read_scores(args.scores, start, source) if args.scores else None
    if args.heads is not None:
        mask = keep_highest(start, scores, args.heads)
    elif args.config is not None:
        mask = keep_per_layer(start, parse_config(args.config), scores)
    else:
        mask = start.without(head for text in args.drop or [] for head in parse_descriptor(text))
    if args.ffn is not None:
        mask.ffn = _ffn(args, start, scores)
    mask.source = {"command": shlex.join(["headprune", "mask", *argv]), "chosen": _chosen(args)} | source
    mask.save(args.output)
    emit(_value(mask, args.output), args.json, _text(mask, args.output))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="headprune mask", description=_DESCRIPTION)
    parser.add_argument(
        "--like", metavar="CKPT|MASK", required=True, help="fairseq checkpoint or mask file whose shape the mask gets"
    )
    parser.add_argument("-o", "--output", metavar="MASK", required=True, help="the mask file to write")
    parser.add_argument(
        "--scores",
        metavar="FILE",
        help="score file: keep the highest-scored heads; of equal ones the lowest index (default: none)",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--heads", type=int, metavar="K", help="keep K heads over all components that are scored (default: all heads)"
    )
    what.add_argument(
        "--config",
        nargs="+",
        metavar="KEY=COUNTS",
        help="heads to keep in each layer, as in ES=888444 ED=444888 DS=888444; components not named stay as they are. "
        "Without --scores the first ones are kept (default: all heads)",
    )
    what.add_argument(
        "--drop",
        action="append",
        metavar="E:1:1,2",
        help="heads to prune, counted from 1: E enc-enc, A enc-dec, D dec-dec; layer; heads. May be repeated "
        "(default: none)",
    )
    parser.add_argument(
        "--ffn",
        type=int,
        metavar="K",
        help="keep the K highest-scored feed-forward blocks or units, whichever headprune score --ffn has scored "
        "(default: all)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document (default: off)")
    return parser


def keep_highest(mask: HeadMask, scores: HeadScores, count: int) -> HeadMask:
    """Keep the highest-scored heads among those the mask keeps in the scored components.

    Of equal scores the lowest index, in the order component, layer, head, is kept. Heads without a score were pruned
    when the scores were made; they are not kept.

    Raises:
        ValueError: fewer than 0, or more than there are.
    """
    ranked = _ranked(mask, scores)
    if not 0 <= count <= len(ranked):
        raise ValueError(
            f"--heads {count}: there are {len(ranked)} kept heads with a score, so give 0 to {len(ranked)}"
        )
    chosen = set(ranked[:count])
    return mask.without(head for head in all_heads(scores.shape) if head not in chosen)


def keep_per_layer(mask: HeadMask, config: dict[str, list[int]], scores: HeadScores | None = None) -> HeadMask:
    """Keep the given number of heads in each layer: the highest-scored, or without scores the first ones.

    Raises:
        ValueError: another number of layers, or more heads than a layer has left.
    """
    check_config(config, mask.shape)
    result = mask
    for component, counts in config.items():
        if scores is not None and component not in scores.scores:
            raise ValueError(f"the score file has no scores of {component}, which --config names")
        candidates = mask.kept([component]) if scores is None else _ranked(mask, scores)
        for layer, count in enumerate(counts):
            here = [head for head in candidates if (head.component, head.layer) == (component, layer)]
            if count > len(here):
                raise ValueError(
                    f"{component} layer {layer}: cannot keep {count} heads, {len(here)} are not pruned yet"
                )
            chosen = set(here[:count])
            row = [Head(component, layer, head) for head in range(mask.shape[component][layer])]
            result = result.without(head for head in row if head not in chosen)
    return result


def _ranked(mask: HeadMask, scores: HeadScores) -> list[Head]:
    """List the kept heads that have a score, the best first."""
    kept = set(mask.kept())
    return [head for head in reversed(scores.pruning_order()) if head in kept]


def _like(path: PathLike) -> tuple[HeadMask, dict[str, Any]]:
    """Return the mask to start from and its source: the mask file's, or the checkpoint's own (all heads if none)."""
    if not Path(path).exists():
        raise FileNotFoundError(f"--like {path}: there is no such file")
    if _is_text(path):
        mask = HeadMask.load(path)
        return mask, {"like": {"path": str(path), "sha256": sha256(path), "source": mask.source}}
    from fairseq_headprune.checkpoints import head_shape, read_state, stored_mask  # torch: not for mask files

    state = read_state(path)
    try:
        mask = stored_mask(state) or HeadMask.full(head_shape(state))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return mask, {"checkpoint": {"path": str(path), "sha256": sha256(path)}}


def _is_text(path: PathLike) -> bool:
    # A checkpoint is a zip file or a pickle; neither can begin like a JSON object.
    if Path(path).is_dir():
        return False
    with open(path, "rb") as stream:
        return str(path).endswith(".json") or stream.read(64).lstrip().startswith(b"{")


def _read_scores(path: PathLike, mask: HeadMask, source: dict[str, Any]) -> HeadScores:
    scores = HeadScores.load(path)
    for component, layers in scores.shape.items():
        mine = mask.shape.get(component, [])
        if layers != mine:
            raise ValueError(f"{path}: scores of {component} are for layers of {layers} heads, --like has {mine}")
    source["scores"] = {"path": str(path), "sha256": sha256(path), "estimator": scores.estimator}
    return scores


def _ffn(args: argparse.Namespace, start: HeadMask, scores: HeadScores) -> dict:
    """Return the mask's "ffn" entry: the highest-scored parts of what --like has."""
    from fairseq_headprune.removal.ffn_layout import keep_highest

    if scores.ffn is None:
        raise ValueError(f"{args.scores} has no feed-forward scores; make them with headprune score --ffn")
    if _is_text(args.like):
        raise ValueError("--ffn needs a checkpoint as --like: a mask file does not tell how many units there are")
    from fairseq_headprune.checkpoints import read_state, saved_settings
    from fairseq_headprune.removal.ffn import ffn_layout

    state = read_state(args.like)
    layout = ffn_layout(state["model"], saved_settings(state)).under(start.ffn)
    wanted = keep_highest(layout, scores.ffn, args.ffn)
    return layout.under({side: wanted.get(side, rows) for side, rows in layout.blocks.items()}).blocks


def _chosen(args: argparse.Namespace) -> str:
    """Say how the kept heads were chosen, for the mask's source."""
    if args.heads is not None or (args.ffn is not None and args.config is None):
        return "the highest scores"
    if args.config is not None:
        return "the highest scores of each layer" if args.scores else "the first heads of each layer"
    return "all but those named" if args.drop else "all heads"


def _value(mask: HeadMask, path: PathLike) -> dict[str, Any]:
    counts = mask.counts()
    return {
        "mask": str(path),
        "kept": sum(n["kept"] for n in counts.values()),
        "total": sum(n["total"] for n in counts.values()),
        "components": counts,
        "config": format_config(mask),
        "dropped": format_descriptor(mask.dropped()),
        **({} if mask.ffn is None else {"ffn": mask.ffn}),
        "source": mask.source,
    }


def _text(mask: HeadMask, path: PathLike) -> str:
    rows = [("component", "", "kept", "of", "kept in each layer")]
    for (component, n), config in zip(mask.counts().items(), format_config(mask).values(), strict=True):
        rows.append((component, PAPER_NAMES[component], str(n["kept"]), str(n["total"]), config))
    value = _value(mask, path)
    rows.append(("all", "", str(value["kept"]), str(value["total"]), ""))
    lines = [
        f"{name:<10} {paper:<8} {kept:>5} {total:>5}  {config}".rstrip() for name, paper, kept, total, config in rows
    ]
    for side, rows in (mask.ffn or {}).items():
        kept = [f"{sum(row)}/{len(row)}" if isinstance(row, list) else ("none", "all")[row] for row in rows]
        lines.append(f"feed-forward units ({side}), layer 1 first: {' '.join(kept)}")
    return "\n".join([*lines, "", f"written: {path}"])
