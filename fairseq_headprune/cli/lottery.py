"""``headprune lottery``: when BERT, or a translation model, plays the lottery (Prasanna et al. 2020)."""

import importlib

from fairseq_headprune.cli.common import Parser

#: part -> what it does, in one line; the code is in ``cli/lottery_NAME.py``
PARTS = {
    "find": "prune while the score holds: the good subnetwork of one model",
    "tickets": "good, random and bad subnetworks of one size from several searches; do they agree?",
    "survival": "what survives over seeds, modes and tasks: shares, agreement, maps, importance",
    "retrain": "score tickets of one model, as they are and trained alone",
    "patterns": "how heads attend: patterns of super-survivors, survivors and the rest",
    "table": "what retrain found, over several seeds",
}


def run(argv: list[str]) -> int:
    """Run ``headprune lottery PART``."""
    parser = Parser(prog="headprune lottery", description="Winning tickets, as Prasanna et al. (2020) look for them.")
    parser.add_argument("part", choices=PARTS, help="; ".join(f"{name}: {what}" for name, what in PARTS.items()))
    part = parser.parse_args(argv[:1]).part
    return importlib.import_module(f"fairseq_headprune.cli.lottery_{part}").run(argv[1:])
