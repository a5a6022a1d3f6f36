"""``headprune prune``: how many heads can go, and from where?"""

import argparse
import sys
from typing import Any

from tqdm import tqdm

from fairseq_headprune.cli.common import emit
from fairseq_headprune.cli.scoring_flags import add_scoring_flags, scoring_settings
from fairseq_headprune.evaluation.holm import holm
from fairseq_headprune.files import sha256
from fairseq_headprune.heads import PAPER_NAMES
from fairseq_headprune.importance.scores import HeadScores
from fairseq_headprune.report.figures import head_map, pruning_curve
from fairseq_headprune.report.tables import Marked, Table

_DESCRIPTION = """Prune heads step by step in order of importance, translate the split --gen-subset with all of
fairseq-generate's settings at each step, score BLEU, and test each step against the unpruned model by paired
bootstrap (Michel et al. 2019, §4 and §5). Importance comes from --score-subset. Started again, it goes on."""


def run(argv: list[str]) -> int:
    """Run the verb."""
    from fairseq_headprune.session import Session, parse_generation_args
    from fairseq_headprune.studies.folder import StudyFolder
    from fairseq_headprune.studies.provenance import environment
    from fairseq_headprune.studies.prune import PruneStudy, check_study

    args = parse_generation_args("prune", argv, _add_flags, _DESCRIPTION)
    settings = _settings(args)
    given = _given_scores(args)
    session = Session(args)
    check_study(session, settings, args.gen_subset, given)
    _warn_same_data(args, settings, given)
    folder = StudyFolder.open(args.output, _study_settings(session, args, settings), environment())
    study = PruneStudy(session, folder, settings, args.gen_subset, given)
    bar = tqdm(study.run(), total=len(study), desc="prune", unit="cell", file=sys.stderr, disable=args.quiet or None)
    cells = list(bar)
    value = summary(cells, study.plan, settings.alpha)
    value |= {
        "study": str(folder.path),
        "data": session.data(args.gen_subset),
        "score_data": _score_data(settings, given),
    }
    value["figures"] = [str(path) for path in _figures(folder, value, settings.alpha)]
    emit(value, args.json, _text(value, settings))
    return 0


def _add_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("pruning")
    add = group.add_argument
    add("-o", "--output", metavar="DIR", required=True, help="study folder (required)")
    add(
        "--components",
        default="all",
        metavar="all|each|LIST",
        help="heads in play: all jointly, each component by itself, or those of a comma-separated list (default: all)",
    )
    add("--step", default="10%", metavar="SHARE", help="share of the heads in play pruned at each step (default: 10%%)")
    add("--reestimate", action="store_true", help="estimate importance again after each step (default: off)")
    add(
        "--order",
        default="scores",
        metavar="scores|random|FILE",
        help="order of pruning: estimated importance, chance (--score-seed), or a score file (default: scores)",
    )
    add_scoring_flags(parser)
    group = parser.add_argument_group("comparison")
    add = group.add_argument
    add(
        "--bleu",
        choices=("sacrebleu", "tok"),
        default="sacrebleu",
        help="tok: tokenised BLEU, equal to multi-bleu.perl (default: sacrebleu with 13a)",
    )
    add("--resamples", type=int, default=1000, help="resamples of the paired bootstrap (default: 1000)")
    add("--bootstrap-seed", type=int, default=12345, help="seed of the resamples; 0 is a seed too (default: 12345)")
    add("--alpha", type=float, default=0.01, help="level of significance (default: 0.01)")
    add("--json", action="store_true", help="print one JSON document to stdout (default: off)")


def _settings(args: argparse.Namespace) -> Any:
    from fairseq_headprune.pruning import parse_step
    from fairseq_headprune.studies.prune import PruneSettings

    score = scoring_settings(args, "train")
    order = args.order if args.order in ("scores", "random") else "file"
    if order == "random":
        score = type(score)(estimator="random", normalize="none", seed=score.seed)
    if args.resamples < 1:
        raise ValueError(f"--resamples must be at least 1, got {args.resamples}")
    if not 0 < args.alpha < 1:
        raise ValueError(f"--alpha must be between 0 and 1, got {args.alpha}")
    if args.reestimate and order != "scores":
        raise ValueError(f"--reestimate needs estimated importance, not --order {args.order}")
    return PruneSettings(
        components=args.components,
        step=parse_step(args.step),
        reestimate=args.reestimate,
        order=order,
        score=score,
        tokenize="tok" if args.bleu == "tok" else "13a",
        resamples=args.resamples,
        seed=args.bootstrap_seed,
        alpha=args.alpha,
    )


def _given_scores(args: argparse.Namespace) -> HeadScores | None:
    return None if args.order in ("scores", "random") else HeadScores.load(args.order)


def _estimates(settings: Any) -> bool:
    """Whether this study looks at sentences to rank heads."""
    return settings.order != "file" and settings.score.needs_data


def _score_data(settings: Any, given: HeadScores | None) -> dict:
    """Where the ranking comes from."""
    if given is not None:
        return given.data
    return {"split": settings.score.subset, "sentences": settings.score.sentences} if _estimates(settings) else {}


def _warn_same_data(args: argparse.Namespace, settings: Any, given: HeadScores | None) -> None:
    if _score_data(settings, given).get("split") == args.gen_subset:
        print(
            f"headprune prune: warning: importance and results both come from {args.gen_subset}; "
            "the curve is optimistic (choose another --score-subset)",
            file=sys.stderr,
        )


def _study_settings(session: Any, args: argparse.Namespace, settings: Any) -> dict[str, Any]:
    from omegaconf import OmegaConf

    generation = OmegaConf.to_container(session.cfg.generation, resolve=True, enum_to_str=True)
    return {
        "study": "prune",
        "checkpoint": session.checkpoint["sha256"],
        "start": session.gates.mask().heads,
        "data": session.data(args.gen_subset),
        "score_data": session.data(settings.score.subset) if _estimates(settings) else None,
        "generation": {**generation, "post_process": args.post_process, "bpe": args.bpe, "tokenizer": args.tokenizer},
        "order_file": None if settings.order != "file" else sha256(args.order),
        **settings.to_dict(),
    }


def summary(cells: list[dict], plan: dict, alpha: float) -> dict[str, Any]:
    """Arrange cells as curves and add Holm's correction over all pruned cells."""
    unpruned, others = cells[0], cells[1:]
    corrected = dict(zip((c["id"] for c in others), holm([c["p"] for c in others]), strict=True))
    curves: dict[str, list[dict]] = {label: [{**unpruned, "p_holm": 1.0}] for label in plan}
    for cell in others:
        curves[cell["curve"]].append({**cell, "p_holm": corrected[cell["id"]]})
    return {"baseline": unpruned, "curves": curves, "alpha": alpha, "signature": unpruned["signature"]}


def _figures(folder: Any, value: dict, alpha: float) -> list:
    scores = HeadScores.load(folder.path / "scores.json")
    drawn = pruning_curve(value["curves"], "BLEU", value["baseline"]["score"], folder.figure_stem("pruning"), alpha)
    return drawn + head_map(scores.scores, f"Importance of heads ({scores.estimator})", folder.figure_stem("scores"))


def _text(value: dict, settings: Any) -> str:
    curves = value["curves"]
    names = [PAPER_NAMES.get(label, "All" if label == "all" else label) for label in curves]
    rows = []
    for points in zip(*curves.values(), strict=True):
        rows.append([f"{points[0]['percent']:.0f}%", *(_cell_text(point, value["alpha"]) for point in points)])
    table = Table(["Pruned", *names], rows).render()
    how = settings.to_dict()
    return "\n".join(
        [
            "BLEU by share of heads pruned; each column prunes its own heads and leaves the others",
            table,
            f"** differs from unpruned at p < {value['alpha']:g} after Holm's correction, * before it only "
            f"(paired bootstrap, {how['resamples']} resamples, seed {how['seed']})",
            f"{value['signature']}; order: {how['order']}; importance from {_source_text(value['score_data'])}",
            *(f"figure {path}" for path in value["figures"]),
            f"study {value['study']}",
        ]
    )


def _source_text(data: dict) -> str:
    return f"{data['split']} ({data.get('sentences', 0) or 'all'} sentences)" if data.get("split") else "no data"


def _cell_text(point: dict, alpha: float) -> Any:
    text = f"{point['score']:.2f}"
    if point["p_holm"] < alpha:
        return Marked(text, "holm")
    return Marked(text, "raw") if point["p"] < alpha else text
