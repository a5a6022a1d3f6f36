"""Verbs that read checkpoint files alone: ``slim`` removes pruned heads, ``average``, and ``weight-change``."""

import argparse
from typing import Any

from fairseq_headprune.cli.common import Parser, add_figure_flag, add_output_flags, emit, refuse_overwriting
from fairseq_headprune.cli.study import show_document
from fairseq_headprune.files import identified
from fairseq_headprune.parts import HEADS, Mask
from fairseq_headprune.parts.mask import SoftGates
from fairseq_headprune.parts.notation import format_config

_SLIM = """Remove the heads that a mask prunes from the weights of a fairseq transformer checkpoint, gated or
stock. The result is smaller, translates as the masked model does, and is loaded by fairseq's commands with
--user-dir fairseq_headprune. Heads keep their original numbers, so a second slimming may follow."""

_AVERAGE = """Average the weights of checkpoints that have the same structure, heads and precision, slim ones too.
Optimizer state is dropped, and learned gates are left out (the masks they chose stay)."""

_WEIGHT_CHANGE = """Compare each head's q, k and v weights in two checkpoints of one model, before and after fine-tuning
(Budhraja et al. 2020, Figure 2), and test each component for differences among its layers (Kruskal-Wallis). Heads that
were pruned or removed are left out; AFTER may be slim."""


def slim(argv: list[str]) -> int:
    """Run ``headprune slim``: remove pruned heads from a checkpoint's weights."""
    args = _slim_parser().parse_args(argv)
    from fairseq_headprune.removal.checkpoint import slim_checkpoint  # torch: not for --help

    refuse_overwriting(args.output, args.mask, args.gates)
    mask = Mask.given(args.mask) if args.mask else None
    gates = SoftGates.given(args.gates) if args.gates else None
    value = slim_checkpoint(args.checkpoint, args.output, mask, args.bake, args.ffn, args.keep_optimizer, gates)
    value = _described(value)
    emit(value, args.json, _slim_text(value))
    return 0


def _slim_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="headprune slim", description=_SLIM)
    parser.add_argument("checkpoint", metavar="CKPT", help="fairseq checkpoint (.pt)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--mask", metavar="FILE", help="mask file (default: the mask that the checkpoint holds)")
    which.add_argument(
        "--gates", metavar="FILE", help="gate file: heads with gate 0 are removed, the others scaled by theirs"
    )
    parser.add_argument("-o", "--output", metavar="CKPT", required=True, help="the checkpoint to write")
    parser.add_argument(
        "--bake",
        action="store_true",
        help="keep the size and put zeros in the place of pruned heads, for fairseq without this plugin",
    )
    parser.add_argument(
        "--ffn", action="store_true", help="remove the feed-forward units and blocks that the mask prunes, too"
    )
    parser.add_argument(
        "--keep-optimizer",
        action="store_true",
        help="cut the optimizer's state as the weights are, to train on with --restore-file (default: it is dropped)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser


def _described(value: dict[str, Any]) -> dict[str, Any]:
    from fairseq_headprune.parts.layout import Layout

    mask = Layout.from_dict(value["layout"]).mask()
    return value | {"components": mask.only(HEADS).counts(), "config": format_config(mask), "notes": _notes(value)}


def _notes(value: dict[str, Any]) -> list[str]:
    notes = []
    if not value["removed"]:
        note = "no head was removed: every head that is there is kept"
        if not value["parameters"]["by_formula"]:
            note += "; the model written is equal" + (" but for scaled heads" if value.get("folded") else "")
        notes.append(note)
    if value.get("folded"):
        notes.append(f"gates of {value['folded']} heads are folded into the columns of out_proj")
    if value["mode"] == "bake":
        notes.append("--bake saves nothing: the heads are zeros in weights of full size, for stock fairseq")
    if value["optimizer"] == "kept":
        return [*notes, "optimizer state is cut to match: train on with --restore-file"]
    return [*notes, "optimizer state is dropped: train on with --finetune-from-model, or --reset-optimizer"]


def _ffn_lines(value: dict[str, Any]) -> list[str]:
    counts = value.get("ffn", {}).get("counts", {})
    parts = [f"{s} {n['units']}/{n['of_units']} in {n['blocks']}/{n['of_blocks']} blocks" for s, n in counts.items()]
    return [f"ffn units    {', '.join(parts)}"] if parts else []


def _slim_text(value: dict[str, Any]) -> str:
    config = " ".join(f"{key}={counts}" for key, counts in value["config"].items())
    counts = ", ".join(f"{c} {n['kept']}/{n['total']}" for c, n in value["components"].items())
    parameters, files = value["parameters"], (value["checkpoint"], value["output"])
    before, after = parameters["before"], parameters["after"]
    gone = f", {value['removed_before']} were gone before" if value["removed_before"] else ""
    verb = "zeroed" if value["mode"] == "bake" else "removed"
    lines = [
        f"heads kept   {config} ({counts}); {value['removed']} {verb}{gone}",
        f"parameters   {before:,} before, {after:,} after ({after / before - 1:+.1%}); "
        f"in the {'parts' if 'ffn' in value else 'heads'} {verb}: {parameters['by_formula']:,}",
        *(
            f"{label}  {f['bytes']:,} bytes, sha256 {f['sha256']}"
            for label, f in zip(("file before", "file after "), files, strict=True)
        ),
        *_ffn_lines(value),
        *value["notes"],
        f"written: {value['output']['path']}",
    ]
    return "\n".join(lines)


def average(argv: list[str]) -> int:
    """Run ``headprune average``: the mean of checkpoints with the same heads."""
    parser = Parser(prog="headprune average", description=_AVERAGE)
    parser.add_argument("checkpoints", metavar="CKPT", nargs="+", help="fairseq checkpoints (.pt), at least two")
    parser.add_argument("-o", "--output", metavar="CKPT", required=True, help="the checkpoint to write")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    args = parser.parse_args(argv)
    from fairseq_headprune.removal.average import average_checkpoints  # torch: not for --help

    value = average_checkpoints(args.checkpoints, args.output)
    output = value["output"]
    text = f"mean of {len(args.checkpoints)} checkpoints: {output['path']}, sha256 {output['sha256']}\n"
    text += f"weights in {value['precision']}, as in the checkpoints; averaged in float64"
    emit(value, args.json, text)
    return 0


def weight_change(argv: list[str]) -> int:
    """Run ``headprune weight-change``: which heads changed in fine-tuning, and do layers differ?"""
    args = _weight_change_parser().parse_args(argv)
    from fairseq_headprune.checkpoints import read_state, updates_of  # torch: not for --help
    from fairseq_headprune.studies.weight_change import document

    before, after = read_state(args.before), read_state(args.after)
    sides = {"before": (args.before, before), "after": (args.after, after)}
    files = {side: identified(path) | {"updates": updates_of(state)} for side, (path, state) in sides.items()}
    found = document(before, after, files, args.quantity)
    return show_document(found, args, (lambda _: args.figure) if args.figure else None)


def _weight_change_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="headprune weight-change", description=_WEIGHT_CHANGE)
    add = parser.add_argument
    add("before", metavar="BEFORE", help="checkpoint that fine-tuning began with")
    add("after", metavar="AFTER", help="checkpoint after it")
    add(
        "--quantity",
        choices=("change", "relative", "magnitude"),
        default="relative",
        help="what the table and the figure show; JSON has all: mean absolute change, relative to the mean absolute "
        "weight before, or change of the mean absolute weight",
    )
    add_figure_flag(parser)
    add_output_flags(parser)
    return parser
