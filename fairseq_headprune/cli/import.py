"""``headprune import``: convert a Hugging Face translation model to a fairseq checkpoint."""

import argparse
from pathlib import Path
from typing import Any

from fairseq_headprune.cli.common import Parser, emit
from fairseq_headprune.files import identified
from fairseq_headprune.leftovers import check_new_folder, new_folder

_DESCRIPTION = """Read the Hugging Face folder of a translation model (MarianMT as OPUS-MT has it, M2M-100, dense
NLLB-200, BART, mBART and mBART-50) and write a folder with a fairseq checkpoint of a gated architecture (model.pt), its
dictionaries in the model's order of numbers, the files of its tokenizer, and prepare.sh, which turns raw text into
data-bin. Weights are read with safe loaders only. With --check, logits, numbers and translations are compared with
those of transformers, which has to be installed."""


def run(argv: list[str]) -> int:
    """Run the verb."""
    args = _parser().parse_args(argv)
    folder = Path(args.output)
    check_new_folder(folder)
    value = _import(args, folder)
    emit(value, args.json, _text(value))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="headprune import", description=_DESCRIPTION)
    add = parser.add_argument
    add("folder", metavar="FOLDER", help="Hugging Face folder: config.json, weights, and the files of the tokenizer")
    add("-o", "--output", metavar="OUT", required=True, help="folder to write, which must not exist")
    add(
        "--source-lang",
        metavar="LANG",
        help="source language as the model names it (default: what the tokenizer's files say; multilingual models "
        "need it)",
    )
    add("--target-lang", metavar="LANG", help="target language (default: likewise)")
    add(
        "--check",
        metavar="FILE",
        help="text file in the source language: compare numbers, logits and translations of its first lines with those "
        "of transformers (default: off)",
    )
    add("--check-lines", metavar="N", type=int, default=20, help="how many lines --check compares")
    add("--json", action="store_true", help="print one JSON document")
    return parser


def _import(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Write the folder atomically."""
    # torch and fairseq: not for --help
    from fairseq_headprune.interchange.convert import CHECKPOINT, import_folder

    if args.check is not None:
        from fairseq_headprune.interchange.check import read_check

        lines = read_check(args.check, args.check_lines)
    with new_folder(folder) as temporary:
        value = import_folder(args.folder, temporary, args.source_lang, args.target_lang)
        if args.check is not None:
            from fairseq_headprune.interchange.check import check

            value["check"] = {"file": args.check, **check(Path(args.folder), temporary, lines, value)}
    return {"folder": str(args.folder), "output": str(folder), "checkpoint": identified(folder / CHECKPOINT), **value}


def _text(value: dict[str, Any]) -> str:
    out = value["output"]
    lines = [
        f"model        {value['model_type']}, {value['parameters']:,} parameters: --arch {value['arch']}",
        f"languages    {value['source_lang']} to {value['target_lang']}",
        f"text         bash {out}/prepare.sh --testpref PREFIX --destdir data-bin",
        f"translating  {' '.join(value['generate'])} --post-process {value['post_process']}",
    ]
    if "check" in value:
        found = value["check"]
        lines += [
            f"check        {found['lines']} lines of {found['file']} against transformers {found['transformers']}:",
            f"             numbers differ in {found['other_numbers']} lines, logits by at most {found['logits']:.2g}, "
            f"translations in {found['other_translations']} lines",
        ]
        lines += [f"             {remark}" for remark in found["remarks"]]
    return "\n".join([*lines, f"written: {out}"])
