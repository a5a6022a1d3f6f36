"""``headprune bench-heads``: speed and size of a classifier by the heads it keeps."""

import argparse
import os
from collections.abc import Mapping
from typing import Any

from fairseq_headprune.cli.bench import add_timing_flags, check_timing, use_threads
from fairseq_headprune.cli.common import (
    add_figure_flag,
    add_output_flags,
    as_for_paper,
    check_once,
    check_outputs,
    emit,
    numbers,
)
from fairseq_headprune.cli.model_flags import parse_model_flags
from fairseq_headprune.report.tables import render_parts

_DESCRIPTION = """Speed and size of a BERT classifier by the number of heads it keeps (Michel et al. 2019, Table 4; Li
et al. 2021, Figures 4 and 5): random masks of each number, and masks that pruners chose. Pruned heads are removed for
real; every mask is timed in turn with the unpruned model. fairseq-generate's flags hold; --seed is that of the first
mask of each number, the next ones follow."""


def run(argv: list[str]) -> int:
    """Run the verb."""
    args = parse_model_flags("bench-heads", argv, _add_flags, _DESCRIPTION)
    _check(args)
    from fairseq_headprune.session import Session
    from fairseq_headprune.speed.by_heads import named_masks, read_points

    named, points = named_masks(args.mask_files), read_points(args.points, args.study) if args.points else []
    use_threads(args)
    value = _measure(args, Session(args), named, points)
    from fairseq_headprune.files import write_json

    write_json(args.output, value)
    if args.figure:
        with as_for_paper(args):
            _draw(args, value)
    emit(value, args.json, _text(value, args.format))
    return 0


def _add_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("masks")
    add = group.add_argument
    add(
        "--heads", type=numbers, default=[72, 64, 48, 36, 24, 12, 6], metavar="K,K…",
        help="numbers of heads kept (default: 72,64,48,36,24,12,6)",
    )  # fmt: skip
    add("--masks", type=int, default=10, metavar="N", help="random masks of each number")
    add("--mask-files", nargs="+", default=[], metavar="NAME=FILE", help="masks to time beside them")
    add(
        "--points",
        metavar="FILE",
        help='JSON list of {"method", "heads", "mask": file or null, "score"} to time and join, or a result of '
        "compare_pruners.py with --study",
    )
    add("--study", metavar="FOLDER", help="study folder (--work) of the comparison that --points is")
    group = parser.add_argument_group("measurement")
    add = group.add_argument
    add(
        "--batch-sizes", type=numbers, default=[1, 4, 8, 16, 64], metavar="N,N…",
        help="examples a batch (default: 1,4,8,16,64)",
    )  # fmt: skip
    add("--examples", type=int, default=64, metavar="N", help="first examples of the split")
    add(
        "--seconds", type=float, default=0.05, metavar="S",
        help="the examples are repeated until the unpruned model takes so long",
    )  # fmt: skip
    add_timing_flags(group, 2)
    group = parser.add_argument_group("results")
    group.add_argument("-o", "--output", metavar="FILE", required=True, help="JSON file to write")
    add_figure_flag(group)
    group.add_argument("--figure-batch", type=int, default=8, metavar="N", help="batch size of STEM-accuracy")
    add_output_flags(parser)


def _check(args: argparse.Namespace) -> None:
    """Check the flags before anything is loaded.

    Raises:
        ValueError: a number out of range or given twice, or a model that is not a classifier.
        FileNotFoundError: a folder of results does not exist.
    """
    from fairseq_headprune.tasks.seam import task_class

    if task_class(args.task).translates:
        raise ValueError("bench-heads is for classifiers; for translation: headprune bench, profile")
    check_timing(args, "masks", "examples", "heads", "batch-sizes")
    check_once(args, "heads", "batch-sizes")
    if not args.seconds >= 0:
        raise ValueError(f"--seconds {args.seconds}: must not be below 0")
    if args.figure and args.points and args.figure_batch not in args.batch_sizes:
        raise ValueError(f"--figure-batch {args.figure_batch}: not one of --batch-sizes")
    if args.study and not args.points:
        raise ValueError(f"--study {args.study}: give the comparison's result, too, with --points")
    check_outputs(args.output, args.figure)


def _measure(args: argparse.Namespace, session: Any, named: Mapping, points: list) -> dict[str, Any]:
    """Draw and time all masks, and build the document."""
    from fairseq_headprune.speed.by_heads import UNPRUNED, Timing, draw_masks, level, measure_masks

    full = session.gates.full()
    drawn = {heads: draw_masks(full, heads, args.masks, args.seed) for heads in args.heads}
    # Ordered by seed, so that masks of all sizes are timed in the same group.
    seeds = range(args.seed, args.seed + args.masks)
    random = {f"{k} {seed}": drawn[k][seed] for seed in seeds for k in args.heads if seed in drawn[k]}
    others = {f"name {name}": mask for name, (mask, _) in named.items()}
    others |= {f"point {i}": full if mask is None else mask for i, (mask, _) in enumerate(points)}
    timing = Timing(args.gen_subset, args.examples, args.batch_sizes, args.rounds, args.seconds)
    found = measure_masks(session, {**random, **others}, timing)
    return {
        "benchmark": "speed-by-heads",
        **_settings(args, session),
        "unpruned": {**found[UNPRUNED], "checkpoint_bytes": os.path.getsize(args.path)},
        "levels": [level([found[f"{k} {seed}"] for seed in masks]) for k, masks in drawn.items()],
        "masks": [{"seed": seed, **found[f"{k} {seed}"]} for k, masks in drawn.items() for seed in masks],
        "named": [{**about, **found[f"name {name}"]} for name, (_, about) in named.items()],
        "points": [{**about, **found[f"point {i}"]} for i, (_, about) in enumerate(points)],
    }


def _settings(args: argparse.Namespace, session: Any) -> dict[str, Any]:
    from fairseq_headprune.provenance import environment
    from fairseq_headprune.speed.measure import conditions

    names = ("heads", "masks", "seed", "batch_sizes", "examples", "seconds", "rounds")
    return {
        **conditions(session),
        "settings": {name: getattr(args, name) for name in names},
        "checkpoint": {**session.checkpoint, "path": os.path.basename(args.path)},
        "data": session.data(args.gen_subset),
        "metric": session.task.metric,
        "environment": environment(args.headprune_command),
    }


def _draw(args: argparse.Namespace, value: dict[str, Any]) -> None:
    from fairseq_headprune.report.speed import accuracy_figure, speed_figure

    speed_figure(value, args.figure)
    if value["points"]:
        accuracy_figure(value["points"], args.figure_batch, value["metric"], f"{args.figure}-accuracy")


def _text(value: dict[str, Any], form: str) -> str:
    from fairseq_headprune.report.speed import levels_table, masks_table

    table = levels_table(value)
    parts: list[Any] = [table, ""]
    if value["named"] or value["points"]:
        parts += [masks_table([*value["named"], *value["points"]]), ""]
    parts += [f"{value['device']}, {value['precision']}, {value['threads']} threads", *table.notes]
    return render_parts(parts, form)
