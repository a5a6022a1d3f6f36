"""Command lines of verbs that load a model: their flags are parsed with fairseq's; help does not import fairseq."""

import argparse
from collections.abc import Callable

from fairseq_headprune.cli.common import Help, Parser

#: fairseq-generate's flags that matter here -> whether they take a value
FAIRSEQ_FLAGS = dict.fromkeys(("--path", "--gen-subset", "--beam", "--batch-size", "--remove-bpe"), True)
FAIRSEQ_FLAGS |= dict.fromkeys(("--fp16", "--cpu"), False)

_FAIRSEQ = (
    "fairseq-generate's flags, before or after them; those that matter: DATA (the folder that fairseq-preprocess "
    "wrote), --path CHECKPOINT, --gen-subset SPLIT (default: {subset}), --beam N (default: 5), --batch-size N, --fp16, "
    "--remove-bpe [sentencepiece], --quiet (no progress). --help-fairseq shows all."
)


def parse_model_flags(
    verb: str,
    argv: list[str],
    add_flags: Callable[[argparse.ArgumentParser], None],
    description: str,
    one_model: bool = True,
) -> argparse.Namespace:
    """Parse fairseq-generate's flags and a verb's own, as ``generation_flags.parse_generation_args`` does.

    ``--help`` shows only the verb's own flags, by group, without importing fairseq; ``--help-fairseq`` shows all.
    """
    if {"-h", "--help"} & set(argv):
        parser = own_parser(verb, add_flags, description, one_model)
        parser.print_help()
        parser.exit()
    from fairseq_headprune.generation_flags import parse_generation_args  # fairseq takes seconds to import

    words = ["--help" if word == "--help-fairseq" else word for word in argv]

    def add(parser: argparse.ArgumentParser) -> None:
        parser.formatter_class = Help
        add_flags(parser)

    return parse_generation_args(verb, words, add, description, one_model)


def own_parser(
    verb: str, add_flags: Callable[[argparse.ArgumentParser], None], description: str, one_model: bool = True
) -> Parser:
    """Return a parser of only the verb's own flags, whose help lists the relevant fairseq flags."""
    path = " --path CHECKPOINT" if one_model else ""
    parser = Parser(
        prog=f"headprune {verb}",
        description=description,
        usage=f"headprune {verb} DATA{path} [fairseq-generate's flags] [flags below]",
    )
    text = "show all flags, fairseq-generate's too, and exit"
    parser.add_argument("--help-fairseq", action="store_true", default=argparse.SUPPRESS, help=text)
    add_flags(parser)
    text = _FAIRSEQ if one_model else _FAIRSEQ.replace(" --path CHECKPOINT,", "")
    parser.epilog = text.format(subset=parser.get_default("gen_subset") or "test")
    return parser
