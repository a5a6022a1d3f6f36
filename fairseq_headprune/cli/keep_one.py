"""``headprune keep-one``: is one head a layer enough, and which one?"""

from typing import Any

from fairseq_headprune.cli.common import emit
from fairseq_headprune.cli.comparison_flags import legend
from fairseq_headprune.cli.scale_flags import helpers
from fairseq_headprune.cli.single_head_study import add_flags, provenance, start_study
from fairseq_headprune.report.study_tables import (
    keep_one_caption,
    keep_one_found,
    keep_one_table,
    measure_of,
    optimistic,
    passed_text,
)
from fairseq_headprune.report.tables import render_parts
from fairseq_headprune.single_heads import one_kept, passed_over

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


def _text(value: dict, form: str) -> str:
    cells, alpha = value["cells"], value["alpha"]
    selected, reported = value["select_data"]["split"], value["data"]["split"]
    measure = measure_of(value["settings"])
    tests = len(value["candidates"]) if selected == reported else len(cells)
    parts = [
        keep_one_caption(selected, reported, measure),
        keep_one_table(cells, value["passed_over"], alpha),
        f"{measure} of the unpruned model on {reported}: {value['baseline']['score']:.2f}",
        legend(alpha, value["resamples"], value["seed"], form, tested=cells, tests=tests),
        *(passed_text(layer) for layer in value["passed_over"]),
    ]
    if selected == reported:
        parts.append(optimistic(len(value["candidates"])))
    parts += [
        value["signature"],
        f"study {value['study']}",
        keep_one_found(cells, alpha, measure),
    ]
    return render_parts(parts, form)
