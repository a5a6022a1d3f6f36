"""``headprune attention``: what every head attends to in one sentence."""

import argparse

from fairseq_headprune.cli.common import add_output_flags
from fairseq_headprune.cli.model_flags import parse_model_flags
from fairseq_headprune.cli.study import show_stored

_DESCRIPTION = """Draw the attention maps of every head for one sentence of --gen-subset, layers down and heads across;
pruned heads are marked. The decoder reads the reference. headprune report shows the folder on its page, beside
studies."""


def run(argv: list[str]) -> int:
    """Run the verb."""
    args = parse_model_flags("attention", argv, _add_flags, _DESCRIPTION)
    from fairseq_headprune.session import open_session
    from fairseq_headprune.studies.attention_maps import attention_maps
    from fairseq_headprune.studies.stored import check_folder

    check_folder(args.output)
    document = attention_maps(open_session(args), args.gen_subset, args.sentence, args.normed)
    return show_stored(document, "attention", args)


def _add_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("attention")
    add = group.add_argument
    add("-o", "--output", metavar="DIR", required=True, help="folder of the result and its figures")
    add("--sentence", type=int, default=1, metavar="N", help="number of the sentence in the split, from 1")
    add(
        "--normed",
        action="store_true",
        help="weight attention by the norms of what is attended to (Kobayashi et al. 2020)",
    )
    add_output_flags(group)
