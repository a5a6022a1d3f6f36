"""``headprune keep-one``: is one head a layer enough, and which one?"""

import argparse

from fairseq_headprune.cli.ablate import add_flags
from fairseq_headprune.cli.comparison_flags import comparison_settings
from fairseq_headprune.cli.study import Make, run_study

_DESCRIPTION = """For each layer, mask all heads but one, the rest of the model staying whole. The head that does best
alone on --select-subset is reported on --gen-subset, tested against the unpruned model by paired bootstrap (Michel et
al. 2019, §3.3, Table 5; with the same split for both: Table 2). Started again, it resumes."""


def run(argv: list[str]) -> int:
    """Run the verb."""
    return run_study("keep-one", argv, _DESCRIPTION, _add_flags, _prepare)


def _add_flags(parser: argparse.ArgumentParser) -> None:
    add_flags(parser)
    parser.add_argument_group("selection").add_argument(
        "--select-subset",
        metavar="SPLIT",
        default="valid",
        help="split that the best heads are chosen on; name --gen-subset's for Table 2",
    )


def _prepare(args: argparse.Namespace) -> Make:
    from fairseq_headprune.studies.keep_one import KeepOne

    how = comparison_settings(args)
    return lambda session: KeepOne.of(session, args.select_subset, args.gen_subset, args.components, how)
