"""``headprune make-corpus``: write the embedded German-English corpus."""

import argparse
from pathlib import Path

from fairseq_headprune.cli.common import Parser, emit
from fairseq_headprune.corpus import Settings, make_corpus


def _parser() -> Parser:
    parser = Parser(
        prog="headprune make-corpus",
        description="Write a small German-English corpus, generated offline: numbers, dates, times, money and units "
        "in words. The folder gets the text, its sentencepiece pieces and fairseq's binary form (data-bin).",
    )
    default = Settings()
    parser.add_argument("directory", metavar="DIR", help="folder to write; the same corpus found there is reused")
    parser.add_argument("--seed", type=int, default=default.seed, help="seed of the random choices")
    for split in ("train", "valid", "test"):
        parser.add_argument(
            f"--{split}", type=int, metavar="N", default=default.sizes[split], help=f"sentence pairs of {split}"
        )
    parser.add_argument("--vocab", type=int, metavar="N", default=default.vocab, help="joint sentencepiece vocabulary")
    parser.add_argument(
        "--binarise",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="also write DIR/data-bin, as fairseq-preprocess does",
    )
    parser.add_argument("--force", action="store_true", help="replace another corpus found in DIR (default: refuse)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON (default: as text)")
    return parser


def run(argv: list[str]) -> int:
    """Write the corpus and print its contents."""
    options = _parser().parse_args(argv)
    settings = Settings(options.seed, options.train, options.valid, options.test, options.vocab)
    description = make_corpus(options.directory, settings, binarise=options.binarise, force=options.force)
    sizes = ", ".join(f"{split} {count}" for split, count in settings.sizes.items())
    folder = Path(options.directory)
    text = f"{folder}: de-en, {sizes} pairs, {settings.vocab} pieces, seed {settings.seed}"
    if options.binarise:
        text += f"\nfairseq data: {folder / 'data-bin'}"
    emit({"directory": str(folder), **description}, options.json, text)
    return 0
