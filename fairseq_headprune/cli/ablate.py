"""``headprune ablate``: what does the model lose, or gain, without each single head?"""

import argparse

from fairseq_headprune.cli.comparison_flags import add_comparison_flags, add_study_flags, comparison_settings
from fairseq_headprune.cli.scale_flags import add_scale_flags
from fairseq_headprune.cli.study import Make, run_study

_DESCRIPTION = """Mask every head alone, translate the split --gen-subset with all of fairseq-generate's settings,
score BLEU (BERT: predict, GLUE's metric), and test each mask against the unpruned model by paired bootstrap (Michel et
al. 2019, §3.2). Heads that the checkpoint's mask prunes already are skipped. Started again, it resumes."""


def run(argv: list[str]) -> int:
    """Run the verb."""
    return run_study("ablate", argv, _DESCRIPTION, add_flags, _prepare)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that the studies of single heads share."""
    of_which = "whose heads are studied: all, or a comma-separated list of enc_self, enc_dec, dec_self"
    add_study_flags(parser.add_argument_group("study"), "all|LIST", of_which)
    add_comparison_flags(parser)
    add_scale_flags(parser)


def _prepare(args: argparse.Namespace) -> Make:
    from fairseq_headprune.studies.ablate import Ablate

    how = comparison_settings(args)
    return lambda session: Ablate.of(session, args.gen_subset, args.components, how)
