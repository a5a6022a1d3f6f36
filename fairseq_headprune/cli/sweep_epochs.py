"""``headprune sweep-epochs``: from which epoch on can heads go, and when are the important ones settled?"""

import argparse
import sys
from pathlib import Path
from typing import Any

from tqdm import tqdm

from fairseq_headprune.cli.common import emit
from fairseq_headprune.cli.comparison_flags import add_comparison_flags, epoch_legend
from fairseq_headprune.cli.prune import (
    add_prune_flags,
    given_scores,
    order_file,
    prune_settings,
    warn_same_data,
)
from fairseq_headprune.cli.scale_flags import add_scale_flags, helpers, take_place
from fairseq_headprune.parts import PAPER_NAMES
from fairseq_headprune.report.epochs import epoch_figure
from fairseq_headprune.report.study_tables import epoch_found, epoch_parts, measure_of
from fairseq_headprune.report.tables import render_parts

_DESCRIPTION = """The study of headprune prune at every epoch checkpoint (checkpointN.pt) of a training run: BLEU
(--task glue: GLUE's metric), absolute and relative to that epoch's unpruned model, and how the ranking of the heads
evolves (Michel et al. 2019, §6, Figure 5). With --follow it goes on while training runs. Started again, it goes on."""


def run(argv: list[str]) -> int:
    """Run the verb."""
    from fairseq_headprune.session import parse_generation_args

    args = parse_generation_args("sweep-epochs", argv, _add_flags, _DESCRIPTION, one_model=False)
    settings, follow = prune_settings(args), _follow(args)
    if settings.order == "oracle":
        raise ValueError("--order oracle is the order of one checkpoint; it has no place in a sweep over epochs")
    chosen, keep = _numbers("--panel", args.panel), _numbers("--keep", args.keep)
    take_place(args)
    with tqdm(desc="sweep-epochs", unit="cell", file=sys.stderr, disable=args.quiet or args.worker or None) as bar:
        sweep = _start(args, settings, follow, bar, keep, chosen)
        with helpers("sweep-epochs", argv, args, sweep.folder):
            epochs = sweep.run(follow)
    if args.worker:
        return 0
    value = _value(sweep, epochs, settings, keep)
    value["figures"] = [str(path) for path in _figures(sweep.folder, value, chosen)]
    emit(value, args.json, _text(value, args.format))
    return 0


def _add_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("epochs")
    add = group.add_argument
    add("--checkpoints", metavar="DIR", required=True, help="folder with checkpoint1.pt, checkpoint2.pt, … (required)")
    add("--epochs", metavar="LIST", help="only these, such as 1,2,5-10 (default: all that are there)")
    add("--follow", action="store_true", help="wait for further checkpoints until training ends (default: off)")
    add(
        "--until", metavar="N", type=int, help="with --follow: end when epoch N is done (default: at training's limits)"
    )
    add(
        "--idle",
        metavar="SECONDS",
        type=float,
        default=3600.0,
        help="with --follow: end when no new checkpoint came for so long (default: 3600)",
    )
    add(
        "--panel",
        metavar="LIST",
        help="epochs of the figure's right panel (default: the first two and the last two)",
    )
    add(
        "--keep",
        metavar="LIST",
        help="numbers of heads kept, for which the epoch is sought in which the final set is first reached "
        "(default: a quarter, half and three quarters of the heads in play)",
    )
    add_prune_flags(parser)
    add_comparison_flags(parser)
    add_scale_flags(parser)


def _follow(args: argparse.Namespace) -> Any:
    from fairseq_headprune.studies.sweep import Follow

    if not args.idle > 0:
        raise ValueError(f"--idle must be more than 0 seconds, got {args.idle:g}")
    if args.until is not None and not args.follow:
        raise ValueError("--until says how long to follow; it needs --follow")
    if args.until is not None and args.until < 1:
        raise ValueError(f"--until must be at least 1, got {args.until}")
    return Follow(args.until, args.idle) if args.follow else None


def _numbers(flag: str, text: str | None) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")] if text else []
    except ValueError as error:
        raise ValueError(f"{flag} {text!r} is not a list of whole numbers such as 1,2,40") from error
    if any(number < 1 for number in numbers):
        raise ValueError(f"{flag} {text}: numbers count from 1")
    return numbers


def _start(args: argparse.Namespace, settings: Any, follow: Any, bar: Any, keep: list[int], chosen: list[int]) -> Any:
    """Load the first checkpoint, refuse what would stop the sweep later, and open its folder."""
    from fairseq_headprune.pruning import steps
    from fairseq_headprune.studies.epochs import EpochCheckpoints, parse_epochs
    from fairseq_headprune.studies.provenance import environment
    from fairseq_headprune.studies.prune import check_study
    from fairseq_headprune.studies.sweep import Sweep, first_session

    given = given_scores(args)
    checkpoints = EpochCheckpoints(args.checkpoints, parse_epochs(args.epochs) if args.epochs else None)
    first = first_session(args, checkpoints, follow)
    check_study(first, settings, args.gen_subset, given)
    sizes = _curve_sizes(first, settings)
    _check_numbers(args, checkpoints, max(sizes), keep, chosen)
    warn_same_data("sweep-epochs", args.gen_subset, settings, given)
    if not follow:
        cells = 1 + sum(len(steps(size, settings.step)) - 1 for size in sizes)
        bar.reset(total=cells * len(checkpoints.readable()))
    return Sweep(
        args, checkpoints, first, settings, given, order_file(args), environment(args.headprune_command), bar.update
    )


def _curve_sizes(session: Any, settings: Any) -> list[int]:
    """Heads in play of each curve."""
    from fairseq_headprune.pruning import curves

    start = session.gates.mask()
    return [len(start.kept(part)) for part in curves(settings.components, list(session.gates.shape)).values()]


def _check_numbers(
    args: argparse.Namespace, checkpoints: Any, largest: int, keep: list[int], chosen: list[int]
) -> None:
    """Refuse what names nothing, before anything is written.

    Raises:
        ValueError: a number of heads to keep that no curve can have, an epoch of the panel that is not swept.
    """
    from fairseq_headprune.studies.epochs import epoch_list

    for count in keep:
        if count >= largest:
            raise ValueError(f"--keep {count}: the largest curve has {largest} heads in play; name 1 to {largest - 1}")
    # A checkpoint that is gone may have been swept before, and one that is not there may come.
    known = checkpoints.wanted or (set() if args.follow or Path(args.output).exists() else set(checkpoints.readable()))
    for epoch in chosen:
        if known and epoch not in known:
            raise ValueError(f"--panel {epoch}: that epoch is not swept; name some of {epoch_list(known)}")


def _value(sweep: Any, epochs: list[dict], settings: Any, keep: list[int]) -> dict[str, Any]:
    """Collect the finished studies."""
    from fairseq_headprune.studies.curves import read_sweep

    found = read_sweep(sweep.folder, epochs, keep)
    return {
        **found,
        "skipped": [{"epoch": epoch, "reason": reason} for epoch, reason in sorted(sweep.checkpoints.skipped.items())],
        "missing": sweep.checkpoints.missing(epoch["epoch"] for epoch in epochs),
        "alpha": settings.alpha,
        "resamples": settings.resamples,
        "seed": settings.seed,
        "signature": found["epochs"][0]["baseline"]["signature"],
        "checkpoints": str(sweep.checkpoints.folder),
        "data": sweep.folder.settings["data"],
        "study": str(sweep.folder.path),
        "settings": sweep.folder.settings,
        "runs": sweep.folder.runs,
    }


def _figures(folder: Any, value: dict, chosen: list[int]) -> list:
    from fairseq_headprune.studies.epochs import epoch_list

    drawn = []
    numbers = [row["epoch"] for row in value["epochs"]]
    late = [epoch for epoch in chosen if epoch not in numbers]
    if late:
        print(f"headprune sweep-epochs: --panel: no result for epochs {epoch_list(late)}", file=sys.stderr)
    chosen = [epoch for epoch in chosen if epoch in numbers] or sorted({*numbers[:2], *numbers[-2:]})
    if not any(row["baseline"]["score"] for row in value["epochs"]):
        print("headprune sweep-epochs: no figure: the unpruned score is 0 in every epoch", file=sys.stderr)
        return []
    for label in value["ranking"]:
        epochs = {row["epoch"]: row["curves"][label] for row in value["epochs"]}
        title, measure = f"Heads pruned: {PAPER_NAMES.get(label, label)}", measure_of(value["settings"])
        drawn += epoch_figure(epochs, chosen, folder.figure_stem(f"epochs-{label}"), title, measure)
    return drawn


def _text(value: dict, form: str) -> str:
    from fairseq_headprune.studies.epochs import epoch_list

    parts: list[Any] = []
    for label in value["ranking"]:
        parts += epoch_parts(value, label, value["alpha"], measure_of(value["settings"]))
    how = (value["alpha"], value["resamples"], value["seed"], form)
    parts += [epoch_legend(value["epochs"], *how), value["signature"]]
    parts += [f"epoch {skip['epoch']} was skipped: {skip['reason']}" for skip in value["skipped"]]
    if value["missing"]:
        parts.append(f"no checkpoint of epochs {epoch_list(value['missing'])} in {value['checkpoints']}")
    parts += [f"figure {path}" for path in value["figures"]]
    return render_parts([*parts, f"study {value['study']}", *epoch_found(value["epochs"], value["kept_within"])], form)
