"""``headprune lottery patterns``: do survivors attend in patterns of their own?"""

import argparse

from fairseq_headprune.cli.common import add_output_flags, add_width_flag, check_least
from fairseq_headprune.cli.model_flags import parse_model_flags
from fairseq_headprune.cli.study import show_stored

_DESCRIPTION = """Classify the attention of every head on sentences of --gen-subset as diagonal, vertical, vertical and
diagonal, block or heterogeneous, on raw and on norm-weighted maps, and count the patterns of super-survivors, survivors
and the other heads (Prasanna et al. 2020, §5.2, Figure 4). The classifier is a small network trained here on made-up
maps, or on --annotated-maps."""


def run(argv: list[str]) -> int:
    """Run the verb."""
    args = parse_model_flags("lottery patterns", argv, _add_flags, _DESCRIPTION)
    from fairseq_headprune.session import open_session
    from fairseq_headprune.studies.attention_patterns import PatternSettings, attention_patterns
    from fairseq_headprune.studies.stored import check_folder

    check_least(0, args, "sentences", "pattern-seed")
    check_folder(args.output)
    how = PatternSettings(args.sentences, args.annotated_maps, args.pattern_seed)
    document = attention_patterns(open_session(args), args.gen_subset, how, args.tickets)
    return show_stored(document, "lottery patterns", args)


def _add_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("patterns")
    add = group.add_argument
    add("-o", "--output", metavar="DIR", required=True, help="folder of the result and its figures")
    add(
        "--tickets",
        metavar="DIR",
        help="folder of headprune lottery tickets, made from a search in this checkpoint among others (default: all "
        "heads together)",
    )
    add("--sentences", type=int, default=100, metavar="N", help="sentences, 0: all")
    add(
        "--annotated-maps",
        metavar="FILE",
        help="train on these maps, JSON lines with pattern, map and normed (default: on made-up maps)",
    )
    add("--pattern-seed", type=int, default=1, metavar="S", help="seed of sentences, made-up maps, training")
    add_width_flag(group)
    add_output_flags(group)
