"""``headprune lottery table``: the tickets of several seeds in one table."""

from fairseq_headprune.cli.common import Parser, add_output_flags, add_width_flag
from fairseq_headprune.cli.study import show_document, show_stored

_DESCRIPTION = """One table of finished studies of headprune lottery retrain, two or more seeds of each task and mode:
mean, standard deviation and number of trainings of each ticket (Prasanna et al. 2020, Table 2), a paired t-test over
the seeds against the full model trained again with Holm's correction, and Figure 2 with that model's mean minus one
standard deviation."""


def run(argv: list[str]) -> int:
    """Run the verb."""
    parser = Parser(prog="headprune lottery table", description=_DESCRIPTION)
    parser.add_argument("studies", metavar="STUDY", nargs="+", help="folder of headprune lottery retrain")
    parser.add_argument(
        "-o", "--output", metavar="DIR", help="draw the figure here, and leave the table for headprune report"
    )
    add_width_flag(parser)
    add_output_flags(parser)
    args = parser.parse_args(argv)
    from fairseq_headprune.studies.lottery_table import seeds_table
    from fairseq_headprune.studies.stored import check_folder

    if args.output:
        check_folder(args.output)
    document = seeds_table(args.studies)
    return show_stored(document, "lottery table", args) if args.output else show_document(document, args, None)
