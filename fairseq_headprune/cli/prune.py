"""``headprune prune``: how many heads can go, and from where?"""

import argparse
import sys
from pathlib import Path
from typing import Any

from fairseq_headprune.cli.common import emit
from fairseq_headprune.cli.comparison_flags import (
    add_comparison_flags,
    add_study_flags,
    comparison_settings,
    legend,
    progress,
)
from fairseq_headprune.cli.scale_flags import add_scale_flags, helpers, several, take_place
from fairseq_headprune.cli.scoring_flags import add_scoring_flags, scoring_settings
from fairseq_headprune.files import sha256
from fairseq_headprune.parts.scores import Scores
from fairseq_headprune.report.figures import head_map, pruning_curve
from fairseq_headprune.report.study_tables import (
    curve_caption,
    curve_found,
    curve_table,
    measure_of,
    pruned_points,
)
from fairseq_headprune.report.tables import render_parts
from fairseq_headprune.studies.curves import summary
from fairseq_headprune.studies.results import Ablation

_DESCRIPTION = """Prune heads step by step in order of importance, translate the split --gen-subset with all of
fairseq-generate's settings at each step, score BLEU (BERT: predict labels, GLUE's metric), and test each step against
the unpruned model by paired bootstrap (Michel et al. 2019, §4 and §5). Importance comes from --score-subset. Started
again, it goes on."""


def run(argv: list[str]) -> int:
    """Run the verb."""
    from fairseq_headprune.session import open_session, parse_generation_args
    from fairseq_headprune.studies.folder import StudyFolder
    from fairseq_headprune.studies.provenance import environment
    from fairseq_headprune.studies.prune import PruneStudy, check_study, study_settings

    args = parse_generation_args("prune", argv, _add_flags, _DESCRIPTION)
    settings = prune_settings(args)
    given = given_scores(args)
    if settings.reestimate and several(args):
        raise ValueError("with --reestimate each step needs the one before; run it as one process")
    take_place(args)
    session = open_session(args)
    check_study(session, settings, args.gen_subset, given)
    warn_same_data("prune", args.gen_subset, settings, given)
    folder = StudyFolder.open(
        args.output,
        study_settings(session, settings, args.gen_subset, given, order_file(args)),
        environment(args.headprune_command),
    )
    study = PruneStudy(session, folder, settings, args.gen_subset, given)
    with helpers("prune", argv, args, folder):
        cells = list(progress(study.run(), len(study), "prune", args.quiet or args.worker))
    if args.worker:
        return 0
    value = summary(cells, study.plan, settings.alpha)
    value |= {
        "study": str(folder.path),
        "data": session.data(args.gen_subset),
        "score_data": _used(folder),
        "checkpoint": session.checkpoint,
        "settings": folder.settings,
        "runs": folder.runs,
    }
    value["figures"] = [str(path) for path in _figures(folder, value, settings.alpha)]
    emit(value, args.json, _text(value, settings, args.format))
    return 0


def _add_flags(parser: argparse.ArgumentParser) -> None:
    group = add_prune_flags(parser)
    group.add_argument(
        "--order-seeds",
        type=int,
        nargs="+",
        default=[],
        metavar="S",
        help="with --order random: several orders, one curve a seed, with mean and deviation (default: --score-seed)",
    )
    add_comparison_flags(parser)
    add_scale_flags(parser)


def add_prune_flags(parser: argparse.ArgumentParser) -> Any:
    """Add the flags that say what is pruned in which order; return their group."""
    group = parser.add_argument_group("pruning")
    add = group.add_argument
    in_play = "heads in play: all jointly, each component by itself, or those of a comma-separated list"
    add_study_flags(group, "all|each|LIST", in_play)
    add("--step", default="10%", metavar="SHARE", help="share of the heads in play pruned at each step (default: 10%%)")
    add("--reestimate", action="store_true", help="estimate importance again after each step (default: off)")
    add(
        "--order",
        default="scores",
        metavar="scores|random|FILE|oracle:STUDY",
        help="order of pruning: estimated importance, chance (--score-seed), a score file, or the differences "
        "of a study of headprune ablate (Michel et al. 2019, Figure 3, dashed) (default: scores)",
    )
    add_scoring_flags(parser)
    return group


def prune_settings(args: argparse.Namespace) -> Any:
    """Return the :class:`~fairseq_headprune.studies.prune.PruneSettings` that the flags describe.

    Raises:
        ValueError: a number out of range, or flags that do not go together.
    """
    from fairseq_headprune.pruning import parse_step
    from fairseq_headprune.studies.prune import PruneSettings

    score, comparison = scoring_settings(args, "train"), comparison_settings(args)
    order = args.order if args.order in ("scores", "random") else "oracle" if _oracle_study(args) else "file"
    seeds = getattr(args, "order_seeds", [])
    if seeds and order != "random":
        raise ValueError(f"--order-seeds {' '.join(map(str, seeds))}: only --order random has seeds, not {args.order}")
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"--order-seeds {' '.join(map(str, seeds))}: a seed is given twice")
    if order == "random":
        score = type(score)(estimator="random", normalize="none", seed=seeds[0] if seeds else score.seed, ffn=score.ffn)
    if args.reestimate and order != "scores":
        raise ValueError(f"--reestimate needs estimated importance, not --order {args.order}")
    return PruneSettings(
        components=args.components,
        step=parse_step(args.step),
        reestimate=args.reestimate,
        order=order,
        score=score,
        seeds=tuple(seeds),
        **comparison,
    )


def given_scores(args: argparse.Namespace) -> Scores | None:
    """Return the ready ranking that ``--order`` names, if it does.

    Raises:
        FileNotFoundError, ValueError: there is no such file or study, or it cannot be used.
    """
    if args.order in ("scores", "random"):
        return None
    study = _oracle_study(args)
    if study:
        return Ablation(study).oracle()
    if not Path(args.order).is_file():
        raise FileNotFoundError(f"--order {args.order}: neither scores, random, oracle:STUDY nor a file that is there")
    return Scores.load(args.order)


def _oracle_study(args: argparse.Namespace) -> str | None:
    """The ablation study that ``--order`` names: ``oracle:STUDY``, or just its folder."""
    if args.order.startswith("oracle:"):
        return args.order.removeprefix("oracle:")
    return args.order if Path(args.order).is_dir() else None


def order_file(args: argparse.Namespace) -> str | None:
    """Return the hash of the score file that ``--order`` names, if it does."""
    ready = args.order in ("scores", "random") or _oracle_study(args)
    return None if ready else sha256(args.order)


def _score_data(settings: Any, given: Scores | None) -> dict:
    """Where the ranking comes from."""
    if given is not None:
        return given.data
    return {"split": settings.score.subset, "sentences": settings.score.sentences} if settings.estimates else {}


def warn_same_data(verb: str, split: str, settings: Any, given: Scores | None) -> None:
    """Warn where heads are ranked on the split that results come from."""
    if _score_data(settings, given).get("split") == split:
        way_out = "ablate on another --gen-subset" if settings.order == "oracle" else "choose another --score-subset"
        print(
            f"headprune {verb}: warning: importance and results both come from {split}; "
            f"the curve is optimistic ({way_out})",
            file=sys.stderr,
        )


def _figures(folder: Any, value: dict, alpha: float) -> list:
    drawn = pruning_curve(
        value.get("means", value["curves"]),
        measure_of(folder.settings),
        value["baseline"]["score"],
        folder.figure_stem("pruning"),
        alpha,
    )
    if folder.settings.get("seeds"):
        return drawn  # each curve has an order of its own
    scores = Scores.load(folder.path / "scores.json")
    return drawn + head_map(scores.rows, f"Importance of heads ({scores.estimator})", folder.figure_stem("scores"))


def _text(value: dict, settings: Any, form: str) -> str:
    curves = value["curves"] | value.get("means", {})
    how, measure = settings.to_dict(), measure_of(value["settings"])
    parts = [
        curve_caption(measure),
        curve_table(curves, value["alpha"]),
        legend(value["alpha"], how["resamples"], how["seed"], form, tested=pruned_points(value["curves"])),
        f"{value['signature']}; order: {how['order']}; importance from {_source_text(value['score_data'])}",
        *(f"figure {path}" for path in value["figures"]),
        f"study {value['study']}",
        *(curve_found(label, points, value["alpha"], measure) for label, points in value["curves"].items()),
    ]
    return render_parts(parts, form)


def _used(folder: Any) -> dict:
    """Say what data the ranking was estimated on, and how many of its sentences; empty where it needs none."""
    scores = Scores.load(folder.path / "scores.json")
    data = {name: scores.data[name] for name in ("split", "of") if name in scores.data}
    return {**data, "sentences": scores.sentences} if data.get("split") else {}


def _source_text(data: dict) -> str:
    if not data.get("split"):
        return "no data"
    count, total = data["sentences"] or "all", data.get("of")
    return f"{data['split']} ({count}{f' of {total}' if total else ''} sentences)"
