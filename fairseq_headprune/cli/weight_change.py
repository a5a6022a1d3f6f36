"""``headprune weight-change``: which heads changed during fine-tuning, and do layers differ?"""

import argparse

from fairseq_headprune.cli.common import Parser, add_figure_flag, add_output_flags
from fairseq_headprune.cli.study import show_document
from fairseq_headprune.files import sha256

_DESCRIPTION = """Compare each head's q, k and v weights in two checkpoints of one model, before and after fine-tuning
(Budhraja et al. 2020, Figure 2), and test each component for differences among its layers (Kruskal-Wallis). Heads that
were pruned or removed are left out; AFTER may be slim."""


def run(argv: list[str]) -> int:
    """Run the verb."""
    args = _parser().parse_args(argv)
    from fairseq_headprune.checkpoints import read_state  # torch: not for --help
    from fairseq_headprune.studies.weight_change import document

    paths = {"before": args.before, "after": args.after}
    files = {name: {"path": path, "sha256": sha256(path)} for name, path in paths.items()}
    found = document(read_state(args.before), read_state(args.after), files, args.quantity)
    return show_document(found, args, (lambda _: args.figure) if args.figure else None)


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
        "weight before, or change of the mean absolute weight",
    )
    add_figure_flag(parser)
    add_output_flags(parser)
    return parser
