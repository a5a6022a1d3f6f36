"""``headprune lottery survival``: what survives over seeds, modes and tasks."""

from fairseq_headprune.cli.common import Parser, add_output_flags, add_width_flag
from fairseq_headprune.cli.study import show_stored

_DESCRIPTION = """Compare folders of headprune lottery tickets, one a task and mode, each of two seeds or more: shares
of heads, blocks and weights that survive, super-survivors, agreement of the seeds; heads and blocks pruned apart and
together; a map of the number of tasks in which each part survives, or of the weights that survive in each part; and
how importance is distributed before pruning (Prasanna et al. 2020, Figures 1, 3 and 15)."""


def run(argv: list[str]) -> int:
    """Run the verb."""
    parser = Parser(prog="headprune lottery survival", description=_DESCRIPTION)
    parser.add_argument("tickets", metavar="TICKETS", nargs="+", help="folder of headprune lottery tickets")
    parser.add_argument("-o", "--output", metavar="DIR", required=True, help="folder of result and figures")
    add_width_flag(parser)
    add_output_flags(parser)
    args = parser.parse_args(argv)
    from fairseq_headprune.studies.lottery_survival import survival
    from fairseq_headprune.studies.stored import check_folder

    check_folder(args.output)
    return show_stored(survival(args.tickets), "lottery survival", args)
