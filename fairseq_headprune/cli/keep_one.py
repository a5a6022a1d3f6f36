"""``headprune keep-one``: is one head a layer enough, and which one?"""

from functools import partial
from typing import Any

from fairseq_headprune.cli.common import emit
from fairseq_headprune.cli.comparison_flags import (
    add_comparison_flags,
    add_study_flags,
    comparison_settings,
    legend,
    progress,
    render,
)
from fairseq_headprune.heads import COMPONENTS, PAPER_NAMES, HeadMask
from fairseq_headprune.report.tables import Marked, Table, mark_of

_DESCRIPTION = """For each layer, mask all heads but one, the rest of the model staying whole. The head that does best
alone on --select-subset is reported on --gen-subset, tested against the unpruned model by paired bootstrap (Michel et
al. 2019, §3.3, Table 5; with the same split for both: Table 2). Started again, it goes on."""


def run(argv: list[str]) -> int:
    """Run the verb."""
    from fairseq_headprune.pruning import chosen_components
    from fairseq_headprune.session import Session, parse_generation_args
    from fairseq_headprune.single_heads import one_kept
    from fairseq_headprune.studies.ablate import keep_one, study_settings
    from fairseq_headprune.studies.folder import StudyFolder
    from fairseq_headprune.studies.masked import Comparison, check_split
    from fairseq_headprune.studies.provenance import environment

    args = parse_generation_args("keep-one", argv, _add_flags, _DESCRIPTION)
    comparison, splits = Comparison(**comparison_settings(args)), (args.select_subset, args.gen_subset)
    session = Session(args)
    start = session.gates.mask()
    components = chosen_components(args.components, list(start.shape))
    one_kept(start, components)
    for split in dict.fromkeys(splits):
        check_split(session, split)
    settings = study_settings(session, "keep-one", args.gen_subset, components, comparison)
    settings["select_data"] = session.data(args.select_subset)
    folder = StudyFolder.open(args.output, settings, environment())
    bar = partial(progress, verb="keep-one", quiet=args.quiet)
    value = keep_one(session, folder, splits, components, comparison, bar)
    value["passed_over"] = passed_over(start, components)
    value |= {"alpha": args.alpha, "resamples": args.resamples, "seed": args.bootstrap_seed}
    value |= {"signature": value["baseline"]["signature"], "checkpoint": session.checkpoint}
    value |= {"data": settings["data"], "select_data": settings["select_data"], "study": str(folder.path)}
    emit(value, args.json, _text(value, args.format))
    return 0


def _add_flags(parser: Any) -> None:
    add_study_flags(parser)
    parser.add_argument_group("selection").add_argument(
        "--select-subset",
        metavar="SPLIT",
        default="valid",
        help="split that the best heads are chosen on; name --gen-subset's for Table 2 (default: valid)",
    )
    add_comparison_flags(parser)


def passed_over(start: HeadMask, components: list[str]) -> list[dict[str, Any]]:
    """List the layers that keep fewer than two heads, with the heads they keep."""
    return [
        {"component": c, "layer": layer, "heads": [head for head, kept in enumerate(row) if kept]}
        for c in components
        for layer, row in enumerate(start.heads[c])
        if sum(row) < 2
    ]


def paper_table(cells: list[dict], skipped: list[dict], alpha: float) -> Table:
    """Tabulate differences as Michel et al. (2019), Tables 2 and 5: layers down, components across, heads in brackets.

    Layers and heads count from 1. A layer that has one head anyway shows +0.00, one without heads ``-``.
    """
    shown: dict[tuple[str, int], Any] = {}
    for cell in cells:
        text = f"{cell['delta']:+.2f} ({cell['head'] + 1})"
        shown[cell["component"], cell["layer"]] = Marked(text, mark_of(cell["p"], cell["p_holm"], alpha))
    for layer in skipped:
        heads = layer["heads"]
        shown[layer["component"], layer["layer"]] = f"{0:+.2f} ({heads[0] + 1})" if heads else None
    components = [c for c in COMPONENTS if any(component == c for component, _ in shown)]
    layers = range(1 + max(layer for _, layer in shown))
    rows = [[str(layer + 1), *(shown.get((c, layer), "") for c in components)] for layer in layers]
    return Table(["Layer", *(PAPER_NAMES[c] for c in components)], rows)


def _text(value: dict, form: str) -> str:
    cells, alpha = value["cells"], value["alpha"]
    selected, reported = value["select_data"]["split"], value["data"]["split"]
    worse = [cell for cell in cells if cell["delta"] < 0]
    count = {name: sum(cell[name] < alpha for cell in worse) for name in ("p", "p_holm")}
    parts = [
        f"Difference in BLEU on {reported} when a layer keeps one head only (in brackets; the best on {selected}); "
        "layers and heads from 1",
        paper_table(cells, value["passed_over"], alpha),
        f"BLEU of the unpruned model on {reported}: {value['baseline']['score']:.2f}",
        legend(alpha, value["resamples"], value["seed"], form),
        *(_passed_text(layer) for layer in value["passed_over"]),
    ]
    if selected == reported:
        parts.append(
            f"Heads are chosen on the split they are reported on, so the differences are optimistic; Holm's correction "
            f"is over all {len(value['candidates'])} heads that were tried"
        )
    parts += [
        value["signature"],
        f"study {value['study']}",
        f"one head is enough in {len(cells) - count['p_holm']} of {len(cells)} layers; {count['p_holm']} lose BLEU "
        f"significantly (without Holm's correction: {count['p']})",
    ]
    return render(parts, form)


def _passed_text(layer: dict) -> str:
    where = f"{PAPER_NAMES[layer['component']]} layer {layer['layer'] + 1}"
    return f"{where} was passed over: it has {'one head' if layer['heads'] else 'no head'} anyway (difference 0)"
