"""``headprune weight-change``: which heads changed in fine-tuning, and do layers differ?"""

import argparse
from typing import Any

from fairseq_headprune.cli.common import Parser, add_figure_flag, add_output_flags, emit
from fairseq_headprune.files import sha256
from fairseq_headprune.parts import PAPER_NAMES
from fairseq_headprune.report.tables import Table, paper_head_table, render_parts

_DESCRIPTION = """Compare each head's q, k and v weights in two checkpoints of one model, before and after fine-tuning
(Budhraja et al. 2020, Figure 2), and test each component for differences among its layers (Kruskal-Wallis). Heads that
were pruned or removed are left out; AFTER may be slim."""


def run(argv: list[str]) -> int:
    """Run the verb."""
    args = _parser().parse_args(argv)
    from fairseq_headprune.checkpoints import read_state  # torch: not for --help
    from fairseq_headprune.studies.weight_change import QUANTITIES, layer_effects, overall, weight_change

    values = weight_change(read_state(args.before), read_state(args.after))
    result: dict[str, Any] = {
        "before": {"path": args.before, "sha256": sha256(args.before)},
        "after": {"path": args.after, "sha256": sha256(args.after)},
        "weights": "q, k and v of a head together, without biases",
        "quantities": {
            name: {
                "what": what,
                "heads": values[name],
                "overall": overall(values[name]),
                "layers": layer_effects(values[name]),
            }
            for name, what in QUANTITIES.items()
        },
        "test": "Kruskal-Wallis over the layers of a component, a value a head",
        "figures": [],
    }
    if args.figure:
        from fairseq_headprune.report.figures import head_map

        chosen = result["quantities"][args.quantity]
        kind = "delta" if args.quantity == "magnitude" else "importance"
        title = "Change of each head's q, k and v weights"
        drawn = head_map(chosen["heads"], title, args.figure, kind, chosen["what"])
        result["figures"] = [str(path) for path in drawn]
    emit(result, args.json, _text(result, args.quantity, args.format))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="headprune weight-change", description=_DESCRIPTION)
    add = parser.add_argument
    add("before", metavar="BEFORE", help="checkpoint that fine-tuning began with")
    add("after", metavar="AFTER", help="checkpoint after it")
    add(
        "--quantity",
        choices=("change", "relative", "magnitude"),
        default="relative",
        help="what the table and the figure show; JSON has all: mean absolute change, relative to the mean absolute "
        "weight before, or change of the mean absolute weight (default: relative)",
    )
    add_figure_flag(parser)
    add_output_flags(parser)
    return parser


def _text(value: dict[str, Any], quantity: str, form: str) -> str:
    shown = value["quantities"][quantity]
    parts: list[Any] = []
    for component, heads in shown["heads"].items():
        parts.append(f"{PAPER_NAMES[component]} ({component}): {shown['what']}, counted from 1")
        parts.append(paper_head_table(heads, fmt="+.4f" if quantity == "magnitude" else ".4f"))
    rows = [[PAPER_NAMES[component], *_layer_cells(found)] for component, found in shown["layers"].items()]
    parts += [
        "Do layers differ? Means of the layers, their spread (largest over smallest), and Kruskal-Wallis",
        Table(["Component", "Smallest", "Largest", "Spread", "H", "p"], rows),
        *(f"figure {path}" for path in value["figures"]),
    ]
    return render_parts(parts, form)


def _layer_cells(found: dict[str, Any]) -> list[str | None]:
    means = [mean for mean in found["mean"] if mean is not None]
    numbers = [(min(means, default=None), ".4f"), (max(means, default=None), ".4f"), (found["spread"], ".1%")]
    numbers += [(found["h"], ".2f"), (found["p"], ".3g")]
    return [None if number is None else format(number, style) for number, style in numbers]
