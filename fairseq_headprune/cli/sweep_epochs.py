"""``headprune sweep-epochs``: from which epoch on can heads go, and when are the important ones settled?"""

import argparse
import sys
from typing import Any

from tqdm import tqdm

from fairseq_headprune.cli.common import emit
from fairseq_headprune.cli.comparison_flags import add_comparison_flags, legend
from fairseq_headprune.cli.prune import (
    add_prune_flags,
    given_scores,
    order_file,
    prune_settings,
    summary,
    warn_same_data,
)
from fairseq_headprune.cli.scale_flags import add_scale_flags, helpers, take_place
from fairseq_headprune.heads import PAPER_NAMES
from fairseq_headprune.importance.scores import HeadScores
from fairseq_headprune.report.epochs import epoch_figure
from fairseq_headprune.report.tables import Marked, Table, mark_of, render_parts

_DESCRIPTION = """The study of headprune prune at every epoch checkpoint (checkpointN.pt) of a training run: BLEU,
absolute and relative to that epoch's unpruned model, and how the ranking of the heads evolves (Michel et al. 2019,
§6, Figure 5). With --follow it goes on while training runs. Started again, it goes on."""

#: Share of the unpruned BLEU that counts as kept in the summary (Michel et al. 2019, §6, speak of 85 to 90%).
_KEPT = 0.9


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
        sweep = _start(args, settings, follow, bar)
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

    if args.idle <= 0:
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


def _start(args: argparse.Namespace, settings: Any, follow: Any, bar: Any) -> Any:
    """Load the first checkpoint, refuse what would stop the sweep later, and open its folder."""
    from fairseq_headprune.studies.epochs import EpochCheckpoints, parse_epochs
    from fairseq_headprune.studies.provenance import environment
    from fairseq_headprune.studies.prune import check_study
    from fairseq_headprune.studies.sweep import Sweep, first_session

    given = given_scores(args)
    checkpoints = EpochCheckpoints(args.checkpoints, parse_epochs(args.epochs) if args.epochs else None)
    first = first_session(args, checkpoints, follow)
    check_study(first, settings, args.gen_subset, given)
    warn_same_data("sweep-epochs", args.gen_subset, settings, given)
    if not follow:
        bar.reset(total=_cells_per_epoch(first, settings) * len(checkpoints.readable()))
    return Sweep(args, checkpoints, first, settings, given, order_file(args), environment(), bar.update)


def _cells_per_epoch(session: Any, settings: Any) -> int:
    from fairseq_headprune.pruning import curves, steps

    parts = curves(settings.components, list(session.gates.shape)).values()
    start = session.gates.mask()
    return 1 + sum(len(steps(len(start.kept(part)), settings.step)) - 1 for part in parts)


def _value(sweep: Any, epochs: list[dict], settings: Any, keep: list[int]) -> dict[str, Any]:
    """Collect the finished studies."""
    from fairseq_headprune.pruning import curves
    from fairseq_headprune.studies.rankings import evolution

    scores = {e["epoch"]: HeadScores.load(sweep.study(e["epoch"]).path / "scores.json") for e in epochs}
    parts = curves(settings.components, list(next(iter(scores.values())).shape))
    rows = [_epoch(sweep, epoch, list(parts), settings.alpha) for epoch in epochs]
    ranking = {}
    for label, components in parts.items():
        heads = len(next(iter(scores.values())).pruning_order(components))
        sizes = keep or sorted({max(1, round(heads * share)) for share in (0.25, 0.5, 0.75)})
        ranking[label] = evolution(scores, components, [size for size in sizes if size < heads])
    return {
        "epochs": rows,
        "ranking": ranking,
        "kept_within": {label: {str(row["epoch"]): _kept_within(row, label) for row in rows} for label in parts},
        "skipped": [{"epoch": epoch, "reason": reason} for epoch, reason in sorted(sweep.checkpoints.skipped.items())],
        "missing": sweep.checkpoints.missing(scores),
        "alpha": settings.alpha,
        "resamples": settings.resamples,
        "seed": settings.seed,
        "signature": rows[0]["baseline"]["signature"],
        "checkpoints": str(sweep.checkpoints.folder),
        "data": sweep.folder.settings["data"],
        "study": str(sweep.folder.path),
        "settings": sweep.folder.settings,
        "runs": sweep.folder.runs,
    }


def _epoch(sweep: Any, epoch: dict, labels: list[str], alpha: float) -> dict[str, Any]:
    folder = sweep.study(epoch["epoch"])
    cells = folder.cells()
    unpruned = cells.pop("unpruned")
    # A killed run lists the cells it did in the order of its curves; the steps are in order within each.
    found = summary([unpruned, *sorted(cells.values(), key=lambda cell: cell["step"])], dict.fromkeys(labels), alpha)
    for points in found["curves"].values():
        for point in points:
            point["relative"] = point["score"] / unpruned["score"] if unpruned["score"] else None
    return {
        "epoch": epoch["epoch"],
        "checkpoint": epoch["checkpoint"],
        "study": str(folder.path),
        "baseline": found["baseline"],
        "curves": found["curves"],
    }


def _kept_within(row: dict, label: str) -> float | None:
    """The largest share of heads, in percent, up to which every step keeps 90% of the unpruned BLEU."""
    best = None
    for point in row["curves"][label]:
        if point["relative"] is None or point["relative"] < _KEPT:
            break
        best = point["percent"]
    return best


def _figures(folder: Any, value: dict, chosen: list[int]) -> list:
    drawn = []
    numbers = [row["epoch"] for row in value["epochs"]]
    chosen = chosen or sorted({*numbers[:2], *numbers[-2:]})
    if not any(row["baseline"]["score"] for row in value["epochs"]):
        print("headprune sweep-epochs: no figure: the unpruned BLEU is 0 in every epoch", file=sys.stderr)
        return []
    for label in value["ranking"]:
        epochs = {row["epoch"]: row["curves"][label] for row in value["epochs"]}
        drawn += epoch_figure(epochs, chosen, folder.figure_stem(f"epochs-{label}"), f"Heads pruned: {_name(label)}")
    return drawn


def _name(label: str) -> str:
    return PAPER_NAMES.get(label, label)


def _text(value: dict, form: str) -> str:
    from fairseq_headprune.studies.epochs import epoch_list

    parts: list[Any] = []
    for label in value["ranking"]:
        parts += [f"BLEU by epoch and share of heads pruned ({_name(label)})", _bleu_table(value, label)]
        parts += ["Spearman's correlation of the ranking with the last epoch's, and heads shared with its best K"]
        parts += [_ranking_table(value["ranking"][label])]
        parts += [_reached(found) for found in value["ranking"][label]["sets"]]
    parts += [legend(value["alpha"], value["resamples"], value["seed"], form), value["signature"]]
    parts += [f"epoch {skip['epoch']} was skipped: {skip['reason']}" for skip in value["skipped"]]
    if value["missing"]:
        parts.append(f"no checkpoint of epochs {epoch_list(value['missing'])} in {value['checkpoints']}")
    parts += [f"figure {path}" for path in value["figures"]]
    return render_parts([*parts, f"study {value['study']}", *_found(value)], form)


def _bleu_table(value: dict, label: str) -> Table:
    first = value["epochs"][0]["curves"][label]
    rows = []
    for row in value["epochs"]:
        points = row["curves"][label]
        texts = [f"{p['score']:.2f}" + ("" if p["relative"] is None else f" ({p['relative']:.0%})") for p in points]
        marks = [mark_of(p["p"], p["p_holm"], value["alpha"]) for p in points]
        rows.append([str(row["epoch"]), texts[0].split()[0], *map(Marked, texts[1:], marks[1:])])
    return Table(["Epoch", *(f"{point['percent']:.0f}%" for point in first)], rows)


def _ranking_table(ranking: dict) -> Table:
    rows = []
    for place, epoch in enumerate(ranking["epochs"]):
        rho = ranking["spearman"][place][-1]
        shared = [str(found["shared"][place]) for found in ranking["sets"]]
        rows.append([str(epoch), "not defined" if rho is None else f"{rho:.3f}", *shared])
    return Table(["Epoch", "Spearman", *(f"K = {found['keep']}" for found in ranking["sets"])], rows)


def _reached(found: dict) -> str:
    return (
        f"the final {found['keep']} heads are first reached at epoch {found['first']} and stay from epoch "
        f"{found['stays_from']} on"
    )


def _found(value: dict) -> list[str]:
    lines = []
    for label, shares in value["kept_within"].items():
        first, last = (value["epochs"][place]["epoch"] for place in (0, -1))
        texts = {epoch: _share(shares[str(epoch)]) for epoch in (first, last)}
        lines.append(
            f"{_name(label)}: within 90% of the unpruned BLEU, {texts[last]} can go at epoch {last}"
            + (f", {texts[first]} at epoch {first}" if first != last else "")
        )
    return lines


def _share(percent: float | None) -> str:
    return "no known share (its BLEU is 0)" if percent is None else f"{percent:.0f}% of the heads"
