"""``headprune keep-one``: is one head a layer enough, and which one?"""

from typing import Any

from fairseq_headprune.cli.common import emit
from fairseq_headprune.cli.comparison_flags import legend
from fairseq_headprune.cli.scale_flags import helpers
from fairseq_headprune.cli.single_head_study import add_flags, provenance, start_study
from fairseq_headprune.heads import COMPONENTS, PAPER_NAMES, HeadMask
from fairseq_headprune.report.tables import Marked, Table, mark_of, render_parts
from fairseq_headprune.single_heads import one_kept

_DESCRIPTION = """For each layer, mask all heads but one, the rest of the model staying whole. The head that does best
alone on --select-subset is reported on --gen-subset, tested against the unpruned model by paired bootstrap (Michel et
al. 2019, §3.3, Table 5; with the same split for both: Table 2). Started again, it goes on."""


def run(argv: list[str]) -> int:
    """Run the verb."""
    from fairseq_headprune.session import parse_generation_args
    from fairseq_headprune.studies.ablate import keep_one

    args = parse_generation_args("keep-one", argv, _add_flags, _DESCRIPTION)
    splits = (args.select_subset, args.gen_subset)
    study = start_study("keep-one", args, splits, one_kept)
    with helpers("keep-one", argv, args, study.folder):
        value = keep_one(study.session, study.folder, splits, study.components, study.comparison, study.bar)
    if args.worker:
        return 0
    value["passed_over"] = passed_over(study.start, study.components)
    value |= provenance(study, value["baseline"]) | {"select_data": study.folder.settings["select_data"]}
    emit(value, args.json, _text(value, args.format))
    return 0


def _add_flags(parser: Any) -> None:
    add_flags(parser)
    parser.add_argument_group("selection").add_argument(
        "--select-subset",
        metavar="SPLIT",
        default="valid",
        help="split that the best heads are chosen on; name --gen-subset's for Table 2 (default: valid)",
    )


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
    return render_parts(parts, form)


def _passed_text(layer: dict) -> str:
    where = f"{PAPER_NAMES[layer['component']]} layer {layer['layer'] + 1}"
    return f"{where} was passed over: it has {'one head' if layer['heads'] else 'no head'} anyway (difference 0)"
