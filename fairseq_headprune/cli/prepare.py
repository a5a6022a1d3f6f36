"""``prepare.sh`` of an import: convert raw text to a fairseq data folder, with the imported model's token ids.

``python -m fairseq_headprune.cli.prepare FOLDER --testpref raw/test`` reads ``raw/test.<source>`` and
``raw/test.<target>``, one sentence a line, and writes ``data-bin/``.
"""

import argparse
import sys
from pathlib import Path

from fairseq_headprune.cli.common import Parser

SPLITS = ("train", "valid", "test")


def main(argv: list[str] | None = None) -> int:
    """Run the program and return the exit status."""
    args = _parser().parse_args(argv)
    from fairseq_headprune.imports.pieces import binarise  # fairseq: not for --help

    try:
        counts = binarise(Path(args.folder), Path(args.destdir), _prefixes(args), args.source_lang, args.target_lang)
    except (ValueError, OSError) as error:
        print(f"prepare.sh: {error}", file=sys.stderr)
        return 2
    for name, count in counts.items():
        print(f"{name}: {count['sentences']:,} sentences, {count['tokens']:,} tokens, {count['unknown']:,} unknown")
    print(f"written: {args.destdir}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="prepare.sh", description="Turn raw text into a data folder of fairseq (data-bin).")
    add = parser.add_argument
    add("folder", metavar="FOLDER", help="the folder that headprune import wrote (prepare.sh gives it)")
    for split in SPLITS:
        help_text = f"files of the split {split}: PREFIX.<source language> and PREFIX.<target language>"
        add(f"--{split}pref", metavar="PREFIX", help=f"{help_text}; several with commas (test, test1, …)")
    add("--destdir", metavar="DIR", default="data-bin", help="folder to write, made if it is not there")
    add("--source-lang", metavar="LANG", help="source language (default: the one of the import)")
    add("--target-lang", metavar="LANG", help="target language (default: the one of the import)")
    return parser


def _prefixes(args: argparse.Namespace) -> dict[str, str]:
    found = {}
    for split in SPLITS:
        for number, prefix in enumerate((getattr(args, f"{split}pref") or "").split(",")):
            if prefix:
                found[split + (str(number) if number else "")] = prefix
    if not found:
        raise ValueError("nothing to do: give --trainpref, --validpref or --testpref")
    return found


if __name__ == "__main__":
    sys.exit(main())
