"""``headprune ablate``: what does the model lose, or gain, without each single head?"""

from typing import Any

from fairseq_headprune.cli.common import emit
from fairseq_headprune.cli.comparison_flags import legend
from fairseq_headprune.cli.scale_flags import helpers
from fairseq_headprune.cli.single_head_study import add_flags, provenance, start_study
from fairseq_headprune.report.figures import head_map
from fairseq_headprune.report.histogram import score_histogram
from fairseq_headprune.report.study_tables import ablation_found, ablation_tables, by_head, measure_of
from fairseq_headprune.report.tables import render_parts
from fairseq_headprune.single_heads import one_removed
from fairseq_headprune.studies.results import found

_DESCRIPTION = """Mask every head alone, translate the split --gen-subset with all of fairseq-generate's settings,
score BLEU (BERT: predict, GLUE's metric), and test each mask against the unpruned model by paired bootstrap (Michel et
al. 2019, §3.2). Heads that the checkpoint's mask prunes already are passed over. Started again, it goes on."""


def run(argv: list[str]) -> int:
    """Run the verb."""
    from fairseq_headprune.session import parse_generation_args
    from fairseq_headprune.studies.ablate import ablate

    args = parse_generation_args("ablate", argv, add_flags, _DESCRIPTION)
    study = start_study("ablate", args, [args.gen_subset], one_removed)
    with helpers("ablate", argv, args, study.folder):
        value = ablate(study.session, study.folder, args.gen_subset, study.components, study.comparison, study.bar)
    if args.worker:
        return 0
    value |= provenance(study, value["baseline"])
    value["found"] = found(value["cells"], args.alpha)
    maps = by_head(value["cells"], study.start.shape, args.alpha)
    value["figures"] = [str(path) for path in _figures(study.folder, value, maps)]
    value["cells"].insert(0, value["baseline"] | {"delta": 0.0, "p_holm": 1.0})
    emit(value, args.json, _text(value, maps, args.format))
    return 0


def _figures(folder: Any, value: dict, maps: dict[str, tuple[list, list]]) -> list:
    scores, measure = [cell["score"] for cell in value["cells"]], measure_of(value["settings"])
    drawn = score_histogram(scores, value["baseline"]["score"], measure, folder.figure_stem("histogram"))
    return drawn + head_map(
        {component: deltas for component, (deltas, _) in maps.items()},
        f"Difference in {measure} without each head",
        folder.figure_stem("deltas"),
        "delta",
        f"difference in {measure}",
        marks={component: marks for component, (_, marks) in maps.items()},
        alpha=value["alpha"],
    )


def _text(value: dict, maps: dict[str, tuple[list, list]], form: str) -> str:
    measure = measure_of(value["settings"])
    parts = [
        *ablation_tables(maps, measure),
        f"{measure} of the unpruned model on {value['data']['split']}: {value['baseline']['score']:.2f}",
        legend(value["alpha"], value["resamples"], value["seed"], form, tested=value["cells"][1:]),
        value["signature"],
        *(f"figure {path}" for path in value["figures"]),
        f"study {value['study']}",
        ablation_found(value["found"], measure),
    ]
    return render_parts(parts, form)
