"""``headprune lottery``: when BERT, or a translation model, plays the lottery (Prasanna et al. 2020)."""

import argparse
import importlib
from collections.abc import Callable
from pathlib import Path

from fairseq_headprune.cli.common import Parser, add_output_flags, add_width_flag, check_least, made_by
from fairseq_headprune.cli.model_flags import parse_model_flags
from fairseq_headprune.cli.study import show_document, show_stored

#: part -> what it does, in one line; ``find`` and ``retrain`` have files of their own
PARTS = {
    "find": "prune while the score holds: the good subnetwork of one model",
    "tickets": "good, random and bad subnetworks of one size from several searches; do they agree?",
    "survival": "what survives over seeds, modes and tasks: shares, agreement, maps, importance",
    "retrain": "score tickets of one model, as they are and trained alone",
    "patterns": "how heads attend: patterns of super-survivors, survivors and the rest",
    "table": "what retrain found, over several seeds",
}

_TICKETS = """From searches of headprune lottery find that differ only in the seed of the model: the good ticket of
each, a random and a bad one of exactly the same size, the super-survivors of all (Prasanna et al. 2020, §4.2); for
translation also as many parts of each component at random. And do the searches agree: a map of survival, Fleiss' kappa,
Cochran's Q, overlaps of pairs (§5.1)."""

_SURVIVAL = """Compare folders of headprune lottery tickets, one a task and mode, each of two seeds or more: shares
of heads, blocks and weights that survive, super-survivors, agreement of the seeds; heads and blocks pruned apart and
together; a map of the number of tasks in which each part survives, or of the weights that survive in each part; and
how importance is distributed before pruning (Prasanna et al. 2020, Figures 1, 3 and 15)."""

_PATTERNS = """Classify the attention of every head on sentences of --gen-subset as diagonal, vertical, vertical and
diagonal, block or heterogeneous, on raw and on norm-weighted maps, and count the patterns of super-survivors, survivors
and the other heads (Prasanna et al. 2020, §5.2, Figure 4). The classifier is a small network trained here on made-up
maps, or on --annotated-maps."""

_TABLE = """One table of finished studies of headprune lottery retrain, two or more seeds of each task and mode:
mean, standard deviation and number of trainings of each ticket (Prasanna et al. 2020, Table 2), a paired t-test over
the seeds against the full model trained again with Holm's correction, and Figure 2 with that model's mean minus one
standard deviation."""


def run(argv: list[str]) -> int:
    """Run ``headprune lottery PART``."""
    parser = Parser(prog="headprune lottery", description="Winning tickets, as Prasanna et al. (2020) look for them.")
    parser.add_argument("part", choices=PARTS, help="; ".join(f"{name}: {what}" for name, what in PARTS.items()))
    part = parser.parse_args(argv[:1]).part
    here: dict[str, Callable[[list[str]], int]] = {
        "tickets": _tickets,
        "survival": _survival,
        "patterns": _patterns,
        "table": _table,
    }
    run_part = here.get(part) or importlib.import_module(f"fairseq_headprune.cli.lottery_{part}").run
    return run_part(argv[1:])


def _tickets(argv: list[str]) -> int:
    """The tickets of several searches, and control tickets of the same size."""
    args = _tickets_parser().parse_args(argv)
    from fairseq_headprune.studies.lottery_tickets import Searches, write_tickets
    from fairseq_headprune.studies.stored import check_folder

    check_least(0, args, "seed")
    output = Path(args.output)
    check_folder(output, "tickets.json", "no tickets")
    document = write_tickets(Searches(args.searches), output, args.seed, made_by())
    document.data["output"] = str(output)
    return show_document(document, args, lambda name: output / name)


def _tickets_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="headprune lottery tickets", description=_TICKETS)
    add = parser.add_argument
    add("searches", metavar="STUDY", nargs="+", help="folder of headprune lottery find, one a seed of the model")
    add("-o", "--output", metavar="DIR", required=True, help="folder of the tickets, a subfolder a search")
    add("--seed", type=int, default=1, metavar="S", help="seed of the draws")
    add_output_flags(parser)
    add_width_flag(parser)
    return parser


def _survival(argv: list[str]) -> int:
    """What survives over seeds, modes and tasks."""
    parser = Parser(prog="headprune lottery survival", description=_SURVIVAL)
    parser.add_argument("tickets", metavar="TICKETS", nargs="+", help="folder of headprune lottery tickets")
    parser.add_argument("-o", "--output", metavar="DIR", required=True, help="folder of result and figures")
    add_width_flag(parser)
    add_output_flags(parser)
    args = parser.parse_args(argv)
    from fairseq_headprune.studies.lottery_survival import survival

    return show_stored(lambda: survival(args.tickets), "lottery survival", args)


def _patterns(argv: list[str]) -> int:
    """Do survivors attend in patterns of their own?"""
    args = parse_model_flags("lottery patterns", argv, _add_patterns_flags, _PATTERNS)
    from fairseq_headprune.session import Session
    from fairseq_headprune.studies.attention_patterns import PatternSettings, attention_patterns

    check_least(0, args, "sentences", "pattern-seed")
    how = PatternSettings(args.sentences, args.annotated_maps, args.pattern_seed)
    return show_stored(
        lambda: attention_patterns(Session(args), args.gen_subset, how, args.tickets), "lottery patterns", args
    )


def _add_patterns_flags(parser: argparse.ArgumentParser) -> None:
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


def _table(argv: list[str]) -> int:
    """The tickets of several seeds in one table."""
    parser = Parser(prog="headprune lottery table", description=_TABLE)
    parser.add_argument("studies", metavar="STUDY", nargs="+", help="folder of headprune lottery retrain")
    parser.add_argument(
        "-o", "--output", metavar="DIR", help="draw the figure here, and leave the table for headprune report"
    )
    add_width_flag(parser)
    add_output_flags(parser)
    args = parser.parse_args(argv)
    from fairseq_headprune.studies.lottery_table import seeds_table

    if args.output:
        return show_stored(lambda: seeds_table(args.studies), "lottery table", args)
    return show_document(seeds_table(args.studies), args, None)
