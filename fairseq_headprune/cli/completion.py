"""``headprune completion``: a script that completes verbs, flags and files in a shell."""

import argparse
import contextlib
from typing import Any

from fairseq_headprune.cli import VERBS, main
from fairseq_headprune.cli.common import Parser
from fairseq_headprune.cli.lottery import PARTS
from fairseq_headprune.cli.model_flags import FAIRSEQ_FLAGS

_DESCRIPTION = """Print a script that completes verbs, flags and files. bash: write it to
~/.local/share/bash-completion/completions/headprune; zsh: to a file _headprune in a folder of $fpath; tcsh: to a file
that ~/.tcshrc sources. Flags of fairseq-generate are completed as far as VERB --help names them."""


def run(argv: list[str]) -> int:
    """Run the verb."""
    parser = Parser(prog="headprune completion", description=_DESCRIPTION)
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"), help="whose completion")
    shell = parser.parse_args(argv).shell
    import shtab

    print(shtab.complete(whole_parser(), shell=shell))
    return 0


def parser_of(verb: str) -> Parser:
    """Return the parser of a verb, or of a part of ``lottery``, whose help ``headprune VERB --help`` prints."""
    found: list[Parser] = []
    with Parser.collecting(found), contextlib.suppress(SystemExit):
        main([*verb.split(), "--help"])
    return found[0]


def whole_parser() -> argparse.ArgumentParser:
    """Return one parser of the whole command, with the verbs as subcommands."""
    parser = argparse.ArgumentParser(prog="headprune")
    parser.add_argument("--version", action="store_true", help="print the version")
    verbs = parser.add_subparsers()
    for verb, text in VERBS.items():
        if verb == "lottery":
            parts = verbs.add_parser(verb, help=text).add_subparsers()
            for part, part_text in PARTS.items():
                _add(parts, part, part_text, parser_of(f"{verb} {part}"))
        else:
            _add(verbs, verb, text, parser_of(verb))
    return parser


def _add(subparsers: Any, name: str, text: str, parent: Parser) -> None:
    """Add a verb's flags, those of fairseq that its help names, and file names wherever a value may be one."""
    import shtab

    parser = subparsers.add_parser(name, help=text, parents=[parent], add_help=False)
    known = {flag for action in parser._actions for flag in action.option_strings}
    if "--help-fairseq" in known:
        for flag, takes in FAIRSEQ_FLAGS.items():
            if flag not in known:
                parser.add_argument(flag, action="store" if takes else "store_true", help="of fairseq-generate")
        parser.add_argument("data", help="folder that fairseq-preprocess wrote")
    for action in parser._actions:
        if action.nargs != 0 and action.choices is None and action.type in (None, str):
            action.complete = shtab.FILE
