"""``headprune mask``: make a mask file, which records for every head whether it is kept, or a file of learned gates."""

import argparse
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairseq_headprune.cli.common import Parser, emit, refuse_overwriting
from fairseq_headprune.cli.mask_flags import add_ways
from fairseq_headprune.cli.mask_ways import chosen_way, parts_in_play, with_ffn_parts
from fairseq_headprune.errors import errors_of
from fairseq_headprune.files import PathLike, identified
from fairseq_headprune.importance.normalize import concerns
from fairseq_headprune.parts import FFN, HEADS, PAPER_NAMES, Mask, Part
from fairseq_headprune.parts.mask import SoftGates
from fairseq_headprune.parts.notation import format_config, format_descriptor
from fairseq_headprune.parts.scores import Scores
from fairseq_headprune.report.tables import Table

if TYPE_CHECKING:
    from fairseq_headprune.gates.saved import SavedGates
    from fairseq_headprune.parts.layout import Layout


_DESCRIPTION = """Make a mask file for a model: all its heads are kept unless something more is said. Heads that the
checkpoint or mask of --like has pruned stay pruned."""


def run(argv: list[str]) -> int:
    """Run the verb."""
    args = _parser().parse_args(argv)
    # The mask file of --like may be overwritten by the mask made from it.
    like = None if args.like is None or (Path(args.like).exists() and _is_text(args.like)) else args.like
    refuse_overwriting(args.output, like, args.from_checkpoint, args.scores, args.profile, args.complement)
    command = shlex.join(["headprune", "mask", *argv])
    if args.soft:
        return _write_gates(args, command)
    if args.from_checkpoint is not None:
        mask, source = learned_mask(args)
        mask.source = {"command": command, "chosen": "learned gates"} | source
        _save(mask, args, f"\n{correction_text(source)}")
        return 0
    if isinstance(args.heads, dict):
        raise ValueError("--heads with a number for each component needs --from-checkpoint; with --scores give K")
    way = chosen_way(args)
    whole, layout, source = _like(args.like)
    args.ranking = Scores.load(args.scores) if args.scores else None
    # First, since parameter counts include feed-forward parts.
    start, ffn_source = with_ffn_parts(args, whole, layout)
    mask, how = way(args, start) if way else (start, {"chosen": "all heads"})
    for text in concerns(args.ranking) if args.ranking else ():
        print(f"headprune mask: warning: {args.scores}: {text}", file=sys.stderr)
    mask = mask & whole if parts_in_play(args) else mask
    mask.source = {"command": command, **how, **source, **ffn_source}
    _save(mask, args)
    return 0


def _save(mask: Mask, args: argparse.Namespace, note: str = "") -> None:
    """Write the mask, and print it; the text ends with a note."""
    mask.save(args.output)
    value = _value(mask, args.output)
    emit(value, args.json, _text(value) + note)


def _write_gates(args: argparse.Namespace, command: str) -> int:
    if args.from_checkpoint is None:
        raise ValueError("--soft needs --from-checkpoint: gates are learned in a training")
    gates, source = learned_gates(args)
    gates.source = {"command": command} | source
    gates.save(args.output)
    value = _value(gates.mask(), args.output)
    text, soft = _text(value), len(gates.soft())
    value = {"gates": value.pop("mask"), "soft": soft, **value}
    emit(value, args.json, f"{text}\ngates: {soft} of the {value['kept']} heads kept have one other than 1")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="headprune mask", description=_DESCRIPTION)
    shape = parser.add_mutually_exclusive_group(required=True)
    shape.add_argument("--like", metavar="CKPT|MASK", help="fairseq checkpoint or mask file whose shape the mask gets")
    shape.add_argument(
        "--from-checkpoint",
        metavar="CKPT",
        help="a training with learned gates: keep the heads it chose, or with --heads exactly K (or one number a "
        "component: enc_self=8,enc_dec=8,dec_self=8), including the highest of the dropped again or excluding the "
        "lowest of the kept",
    )
    parser.add_argument(
        "--soft",
        action="store_true",
        help="with --from-checkpoint of L0: write a gate file for headprune slim --gates, with the real-valued gates "
        "of evaluation (default: a mask)",
    )
    parser.add_argument("-o", "--output", metavar="MASK", required=True, help="the mask file to write")
    add_ways(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser


def _like(path: PathLike) -> tuple[Mask, "Layout | None", dict[str, Any]]:
    """Return the initial mask (all parts if a checkpoint has none), the checkpoint's layout if any, and the source."""
    if not Path(path).exists():
        raise FileNotFoundError(f"--like {path}: there is no such file")
    if _is_text(path):
        mask = Mask.given(path)
        return mask, None, {"like": mask.source}
    from fairseq_headprune.checkpoints import read_state, stored_layout, stored_mask  # torch: not for mask files

    state = read_state(path)
    with errors_of(path):
        layout = stored_layout(state)
        mask = stored_mask(state) or layout.mask()
    return mask, layout, {"checkpoint": identified(path)}


def gone_lines(counts: dict[str, dict[str, int]]) -> list[str]:
    """Name components that keep no head, which is easily missed if a budget or chance chose the heads."""
    gone = [component for component, n in counts.items() if n["total"] and not n["kept"]]
    return [f"no head of {' and '.join(gone)} is kept: their layers add a constant"] if gone else []


def _is_text(path: PathLike) -> bool:
    # A checkpoint is a zip file or a pickle; neither starts like a JSON object.
    if Path(path).is_dir():
        return False
    with open(path, "rb") as stream:
        return str(path).endswith(".json") or stream.read(64).lstrip().startswith(b"{")


def _value(mask: Mask, path: PathLike) -> dict[str, Any]:
    counts = mask.only(HEADS).counts()
    ffn = mask.only(FFN).rows
    return {
        "mask": str(path),
        "kept": sum(n["kept"] for n in counts.values()),
        "total": sum(n["total"] for n in counts.values()),
        "components": counts,
        "config": format_config(mask),
        "dropped": format_descriptor(mask.dropped()),
        **({"ffn": ffn} if ffn else {}),
        "source": mask.source,
    }


def _text(value: dict[str, Any]) -> str:
    rows = [
        [component, PAPER_NAMES[component], n["kept"], n["total"], config]
        for (component, n), config in zip(value["components"].items(), value["config"].values(), strict=True)
    ]
    rows.append(["all", "", value["kept"], value["total"], ""])
    lines = [Table(["component", "", "kept", "of", "kept in each layer"], rows, "llrrl").render()]
    for component, layers in value.get("ffn", {}).items():
        kept = [f"{sum(row)}/{len(row)}" if len(row) > 1 else ("none", "all")[row[0]] for row in layers]
        lines.append(f"feed-forward units ({component}), layer 1 first: {' '.join(kept)}")
    lines += [*_time_lines(value["source"]), *gone_lines(value["components"])]
    if before := value["source"].get("pruned_before"):
        lines.append(f"pruned already: {', '.join(before)}")
    return "\n".join([*lines, "", f"written: {value['mask']}"])


def _time_lines(source: dict[str, Any]) -> list[str]:
    """Describe the predicted time of a mask that was chosen for its time."""
    found = source.get("budget", {}).get("predicted")
    if not found:
        return []
    off = source["budget"]["profile"].get("off_by")
    return [
        f"predicted: {found['milliseconds']:.2f} of {found['of']:.2f} ms a batch, {found['speed']:.2f} times as fast"
        + ("" if off is None else f" (the profile's own predictions were off by up to {off:.0%})")
    ]


#: the flags of ``headprune mask`` that may be combined with --from-checkpoint
_FLAGS = {"from_checkpoint", "heads", "soft", "output", "json"}


def learned_mask(args: argparse.Namespace) -> tuple[Mask, dict[str, Any]]:
    """Return the mask of the learned set (with exactly ``--heads`` heads if given) and its source.

    Raises:
        ValueError: a checkpoint without learned gates, a number of heads out of range, or a flag that cannot be
            combined with ``--from-checkpoint``.
    """
    from fairseq_headprune.gates.saved import choose  # imports torch, which other masks do not need

    with _read(args) as (full, gates):
        choice = choose(gates, args.heads)
        mask = full.without(choice.dropped)
    numbers = {"target": gates.description.get("heads_kept"), "expected": round(gates.expected(), 2)}
    correction = {"learned": choice.learned, **numbers, "changed": len(choice.included) + len(choice.excluded)}
    correction |= {"included": _plain(choice.included), "excluded": _plain(choice.excluded)}
    return mask, _source(args, gates) | {"correction": correction}


def learned_gates(args: argparse.Namespace) -> tuple[SoftGates, dict[str, Any]]:
    """Return the gates used in evaluation (``--soft``; 1 for heads without a gate) and their source.

    Raises:
        ValueError: as for :func:`learned_mask`, or gates that are 0 or 1 by design.
    """
    if args.heads is not None:
        raise ValueError("--heads is not supported with --soft: heads that it includes again have a gate of 0")
    with _read(args) as (full, gates):
        if gates.description["kind"] != "l0":
            raise ValueError(f"gates of {gates.description['kind']} are 0 or 1: make a mask, without --soft")
        values = {c: [list(map(float, row)) for row in rows] for c, rows in full.only(HEADS).rows.items()}
        for (component, layer, head), gate in zip(gates.heads, gates.evaluated().tolist(), strict=True):
            values[component][layer][head] *= gate
    return SoftGates(values), _source(args, gates)


@contextmanager
def _read(args: argparse.Namespace) -> Iterator[tuple[Mask, "SavedGates"]]:
    """Yield the mask of existing heads and the checkpoint's gates; errors in the block name the checkpoint."""
    for name, value in vars(args).items():
        if name not in _FLAGS and value not in (None, False):
            flag = "--" + name.replace("_", "-")
            raise ValueError(
                f"{flag} is not supported with --from-checkpoint: make the mask, then start from it with --like"
            )
    # These import torch, which other masks do not need.
    from fairseq_headprune.checkpoints import read_state, stored_layout
    from fairseq_headprune.gates.saved import saved_gates

    state = read_state(args.from_checkpoint)
    with errors_of(args.from_checkpoint):
        gates = saved_gates(state)
        if gates is None:
            raise ValueError(
                "the checkpoint holds no learned gates; train with label_smoothed_cross_entropy_dsp or _l0, "
                "or take the mask it holds with --like"
            )
        yield stored_layout(state).mask(), gates


def _source(args: argparse.Namespace, gates: "SavedGates") -> dict[str, Any]:
    checkpoint = identified(args.from_checkpoint)
    return {"gates": gates.description, "updates": gates.updates, "checkpoint": checkpoint}


def correction_text(source: dict[str, Any]) -> str:
    """Describe in one line what the correction changed."""
    found = source["correction"]
    line = f"the learned set has {found['learned']} heads ({counts_text(found)}); {found['changed']} changed"
    for name, verb in (("included", "included again"), ("excluded", "excluded")):
        if found[name]:
            line += f"; {verb}: " + ", ".join(str(Part(*place)) for place in found[name])
    return line


def counts_text(found: dict[str, Any]) -> str:
    """Describe the target number of heads (none with a fixed penalty) and the expected number of open gates."""
    target = found["target"]
    if isinstance(target, dict):
        target = ", ".join(f"{component} {count}" for component, count in target.items())
    return f"target {'none' if target is None else target}, expected to be open {found['expected']:.1f}"


def _plain(heads: list[Part]) -> list[list]:
    return [list(head) for head in heads]
