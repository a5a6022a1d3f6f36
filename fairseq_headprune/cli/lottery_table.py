"""``headprune lottery table``: the tickets of several seeds in one table."""

from fairseq_headprune.cli.common import Parser, emit
from fairseq_headprune.cli.comparison_flags import add_output_flags

_DESCRIPTION = """One table of finished studies of headprune lottery retrain, one a seed of the model: mean and standard
deviation of each ticket (Prasanna et al. 2020, Table 2), a paired t-test over the seeds against the whole model trained
again, and that model minus one standard deviation (Figure 2)."""


def run(argv: list[str]) -> int:
    """Run the verb."""
    parser = Parser(prog="headprune lottery table", description=_DESCRIPTION)
    parser.add_argument("studies", metavar="STUDY", nargs="+", help="folder of headprune lottery retrain, one a seed")
    add_output_flags(parser)
    args = parser.parse_args(argv)
    from fairseq_headprune.studies.lottery_table import seeds_table

    document = seeds_table(args.studies)
    emit(document.data, args.json, document.render(args.format))
    return 0
