"""``headprune lottery tickets``: the tickets of several searches, and control tickets of the same size."""

import argparse
from pathlib import Path

from fairseq_headprune.cli.common import Parser, add_output_flags, add_width_flag, as_for_paper, check_least, emit

_DESCRIPTION = """From searches of headprune lottery find that differ only in the seed of the model: the good ticket of
each, a random and a bad one of exactly the same size, the super-survivors of all (Prasanna et al. 2020, §4.2); for
translation also as many parts of each component at random. And do the searches agree: a map of survival, Fleiss' kappa,
Cochran's Q, overlaps of pairs (§5.1)."""


def run(argv: list[str]) -> int:
    """Run the verb."""
    args = _parser().parse_args(argv)
    from fairseq_headprune.report.drawings import draw
    from fairseq_headprune.studies.lottery_tickets import Searches, write_tickets
    from fairseq_headprune.studies.stored import check_folder

    check_least(0, args, "seed")
    output = Path(args.output)
    check_folder(output, "tickets.json", "no tickets")
    searches = Searches(args.searches)
    document = write_tickets(searches, output, args.seed)
    with as_for_paper(args):
        figures = [str(path) for path in draw(document, lambda name: output / name)]
    emit({**document.data, "output": str(output), "figures": figures}, args.json, document.render(args.format, figures))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="headprune lottery tickets", description=_DESCRIPTION)
    add = parser.add_argument
    add("searches", metavar="STUDY", nargs="+", help="folder of headprune lottery find, one a seed of the model")
    add("-o", "--output", metavar="DIR", required=True, help="folder of the tickets, a subfolder a search")
    add("--seed", type=int, default=1, metavar="S", help="seed of the draws")
    add_output_flags(parser)
    add_width_flag(parser)
    return parser
