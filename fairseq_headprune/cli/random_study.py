"""``headprune random-study``: random heads, fine-tuned: the null hypothesis that a criterion has to beat."""

import argparse
import shlex
from functools import partial
from typing import Any

from fairseq_headprune.cli.common import emit
from fairseq_headprune.cli.comparison_flags import add_comparison_flags, comparison_settings, legend, progress
from fairseq_headprune.cli.scale_flags import rank
from fairseq_headprune.parts import Mask
from fairseq_headprune.parts.notation import format_config
from fairseq_headprune.report.figures import pruning_curve
from fairseq_headprune.report.random_tables import config_table, layers_table, percent_table, triple_table
from fairseq_headprune.report.study_tables import measure_of
from fairseq_headprune.report.tables import render_parts

_DESCRIPTION = """Draw masks by chance, fine-tune the checkpoint under each, translate the split --gen-subset with all
of fairseq-generate's settings, score BLEU (BERT: predict, GLUE's metric) and test against the unpruned model: mean and
standard deviation of several samplings (Budhraja et al. 2020, Tables 1 to 6, Figure 1). Started again, it goes on."""


def run(argv: list[str]) -> int:
    """Run the verb."""
    from fairseq_headprune.jobs.devices import visible_gpus
    from fairseq_headprune.session import open_session
    from fairseq_headprune.studies.folder import StudyFolder
    from fairseq_headprune.studies.masked import Comparison, check_split, model_settings
    from fairseq_headprune.studies.provenance import environment
    from fairseq_headprune.studies.random_pruning import RandomStudy, samplings, summary, tuning_settings
    from fairseq_headprune.studies.samplings import items

    args = parse(argv)
    comparison, how = Comparison(**comparison_settings(args)), _fine_tuning(args)
    chosen = items(args.random, args.config, args.triple, args.layers, args.mirror, args.control)
    session = open_session(args)
    start = session.gates.mask()
    plan = samplings(start, chosen, args.seeds)
    check_split(session, args.gen_subset)
    settings = {
        **model_settings(session, "random-study", args.gen_subset),
        **tuning_settings(how, chosen, args.seeds),
        **vars(comparison),
    }
    folder = StudyFolder.open(args.output, settings, environment(args.headprune_command))
    study = RandomStudy(session, folder, args.gen_subset, plan, how, comparison, argv)
    jobs = args.jobs or len(visible_gpus())
    cells = list(progress(study.run(jobs), 1 + len(plan), "random-study", args.quiet))
    value = summary(study, cells, chosen, args.baseline) | {
        "alpha": comparison.alpha,
        "resamples": comparison.resamples,
        "seed": comparison.seed,
        "signature": cells[0]["signature"],
        "checkpoint": session.checkpoint,
        "data": session.data(args.gen_subset),
        "study": str(folder.path),
        "settings": folder.settings,
        "runs": folder.runs,
    }
    value["figures"] = [str(path) for path in _figure(folder, value)]
    emit(value, args.json, text(value, start, args.format))
    return 0


def parse(argv: list[str]) -> argparse.Namespace:
    """Parse the verb's flags and fairseq-generate's.

    Raises:
        ValueError: numbers out of range, or flags that have no place here.
    """
    from fairseq_headprune.session import parse_generation_args

    args = parse_generation_args("random-study", argv, _add_flags, _DESCRIPTION)
    _, processes = rank()
    if processes > 1:
        raise ValueError(
            f"torchrun has started {processes} processes; start random-study once, with --jobs {processes}"
        )
    if args.head_mask is not None:
        raise ValueError("--head-mask has no place here: the study draws its own masks; slim the checkpoint first")
    if (args.updates is None) == (args.epochs is None):
        raise ValueError("say how long to fine-tune: --updates N or --epochs N, and not both")
    for name in ("updates", "epochs", "jobs"):
        number = getattr(args, name)
        if number is not None and number < 1:
            raise ValueError(f"--{name} must be at least 1, got {number}")
    if args.baseline == "control" and not args.control:
        raise ValueError("--baseline control needs --control, which fine-tunes it")
    if args.mirror and not args.config:
        raise ValueError("--mirror needs --config, whose configurations it mirrors")
    if min(args.seeds) < 0:
        raise ValueError(f"--seeds must be 0 or more, got {min(args.seeds)}")
    return args


def _add_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("random pruning")
    add = partial(group.add_argument, default=[])
    add(
        "--random",
        nargs="+",
        action="extend",
        metavar="60%|K[:at-least-one]",
        help="shares or numbers of heads to prune, over all heads; every layer keeps a head with :at-least-one "
        "(default: none)",
    )
    add(
        "--config",
        action="append",
        metavar="CONFIG",
        help='one configuration, as in "ES=777322 ED=233777 DS=777332"; may be repeated (default: none)',
    )
    add("--triple", nargs="+", action="extend", metavar="ES,ED,DS", help="heads kept in each component (default: none)")
    add(
        "--layers",
        nargs="+",
        action="extend",
        metavar="LAYERS",
        help="layers that lose all heads, in every component: top:3, bottom:3, middle:4, even, odd, 1,2 or "
        "top:1,bottom:1; the first is 1 (default: none)",
    )
    add = group.add_argument
    add("-o", "--output", metavar="DIR", required=True, help="study folder (required)")
    add("--mirror", action="store_true", help="also the mirror of every configuration (default: off)")
    add("--control", action="store_true", help="also fine-tune with no head pruned (default: off)")
    add(
        "--baseline",
        choices=("unpruned", "control"),
        default="unpruned",
        help="what differences and tests are against: the checkpoint as it is, or the control of the same seeds, where "
        "the checkpoint has not been trained for the task (default: unpruned)",
    )
    add("--seeds", type=int, nargs="+", default=[1, 2, 3], metavar="S", help="a sampling each (default: 1 2 3)")
    add(
        "--train-flags",
        required=True,
        metavar="FLAGS",
        help="flags of fairseq-train as one word: --arch, --optimizer, --lr, --max-tokens, … (required)",
    )
    add("--updates", type=int, metavar="N", help="updates of fine-tuning (this or --epochs is required)")
    add("--epochs", type=int, metavar="N", help="epochs of fine-tuning; the paper's are 30 (this or --updates)")
    add("--slim", action="store_true", help="remove the heads first, fine-tune the smaller model (default: off)")
    add("--jobs", type=int, metavar="N", help="fine-tunings at the same time (default: one a GPU)")
    add_comparison_flags(parser)


def _fine_tuning(args: argparse.Namespace) -> Any:
    from fairseq_headprune.studies.fine_tuning import FineTuning

    limit = ["--max-update", str(args.updates)] if args.updates else ["--max-epoch", str(args.epochs)]
    how = FineTuning(shlex.split(args.train_flags), limit, args.slim)
    how.check()
    return how


def _figure(folder: Any, value: dict) -> list:
    points = [item for item in value["items"] if item["kind"] == "random"]
    if not points:
        return []
    baseline = value["baseline"]["score"]
    curve = [{"percent": 0.0, "score": baseline}, *points]
    return pruning_curve(
        {"Random": curve}, measure_of(value["settings"]), baseline, folder.figure_stem("random"), value["alpha"]
    )


def text(value: dict, start: Mask, form: str) -> str:
    """Show the result as the paper's tables."""
    baseline, alpha, measure = value["baseline"]["score"], value["alpha"], measure_of(value["settings"])
    kinds = {kind: [item for item in value["items"] if item["kind"] == kind] for kind in ("config", "triple", "layers")}
    percents = [item for item in value["items"] if item["kind"] in ("control", "random")]
    full = {component: n["kept"] for component, n in start.counts().items()}
    parts: list[Any] = []
    if percents:
        parts += ["Heads pruned at random", percent_table(baseline, percents, alpha, measure)]
    if kinds["config"]:
        parts += [
            "Heads kept in each layer",
            config_table(baseline, format_config(start), kinds["config"], alpha, measure),
        ]
    if kinds["triple"]:
        parts += ["Heads kept in each component", triple_table(baseline, full, kinds["triple"], alpha, measure)]
    if kinds["layers"]:
        parts += ["Layers without heads", layers_table(baseline, kinds["layers"], alpha, measure)]
    seeds, how = value["settings"]["seeds"], value["settings"]["fine_tuning"]
    parts += [
        f"{measure}: mean of {len(seeds)} samplings (seeds {', '.join(map(str, seeds))}), difference from "
        f"{value['baseline']['id']}; sd: standard deviation of the samplings; fine-tuned with {' '.join(how['limit'])}",
        f"the mean: {legend(alpha, value['resamples'], value['seed'], form, value['baseline']['id'], value['items'])}",
        value["signature"],
        *(f"figure {path}" for path in value["figures"]),
        f"study {value['study']}",
    ]
    return render_parts(parts, form)
