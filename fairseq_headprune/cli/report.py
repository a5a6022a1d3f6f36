"""``headprune report``: an HTML page with the results of studies."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_headprune.cli.common import Parser, check_least, check_outputs, emit
from fairseq_headprune.files import PathLike, write_text
from fairseq_headprune.report.page.document import page_document, page_entry, render, summary
from fairseq_headprune.studies.gate_runs import holds_gates, read_gates
from fairseq_headprune.studies.stored import is_stored, page_result, read_study, stored_entry

_DESCRIPTION = """Write one self-contained HTML page about studies of headprune ablate, keep-one, prune, sweep-epochs,
random-study, lottery and attention, and about trainings with learned gates: head maps with the sentences that change
most, curves, attention maps, tables of significance, provenance. Studies may be unfinished; the page says what is
missing. It needs no network and no other file."""


def run(argv: list[str]) -> int:
    """Run the verb."""
    args = _parser().parse_args(argv)
    _check(args)
    content = document(args.studies, args.title, args.examples)
    page = render(content)
    write_text(args.output, page)
    value = {
        "page": args.output,
        "bytes": len(page.encode("utf-8")),
        "title": args.title,
        "studies": summary(content),
        "together": [chart["studies"] for chart in content["together"]],
    }
    emit(value, args.json, _text(value))
    return 0


def document(paths: Sequence[PathLike], title: str, examples: int = 2) -> dict[str, Any]:
    """Return the page's content: the documents of these studies and trainings, without duplicates.

    Args:
        examples: maximum number of example sentences for each mask of one head.

    Raises:
        FileNotFoundError, ValueError: a folder without a study, or one that is damaged or of an unknown verb.
    """
    places = {Path(path).resolve(): path for path in paths}
    names = [place.name for place in places]
    entries = []
    for place, path in places.items():
        name = place.name if names.count(place.name) == 1 else str(path)
        if is_stored(path):
            entries.append(stored_entry(path, name))
        elif holds_gates(path):
            entries.append(page_entry(name, "dynamics", read_gates(path)))
        else:
            study = read_study(path)
            entries.append(page_entry(name, study.name, page_result(study, examples)))
    return page_document(entries, title)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="headprune report", description=_DESCRIPTION)
    add = parser.add_argument
    add(
        "studies",
        metavar="STUDY",
        nargs="+",
        help="study folder of one of these verbs; --save-dir of a training with learned gates, or a file with what "
        "headprune dynamics --json printed",
    )
    add("-o", "--output", metavar="FILE", required=True, help="the page, such as report.html")
    add("--title", default="Attention heads", help="title of the page")
    add("--examples", type=int, default=2, metavar="N", help="sentences shown of each masked head")
    add("--json", action="store_true", help="print what went into the page as one JSON document")
    return parser


def _check(args: argparse.Namespace) -> None:
    """Check the flags before the studies are read.

    Raises:
        ValueError, FileNotFoundError: a number out of range, or an output that cannot be written.
    """
    check_least(0, args, "examples")
    if Path(args.output).is_dir():
        raise ValueError(f"--output {args.output} is a folder; name a file in it, such as report.html")
    check_outputs(args.output)
    place = Path(args.output).resolve()
    for study in args.studies:
        # The page may be written into a study folder, but must not overwrite the study's files.
        if place.exists() and place.suffix != ".html" and place.is_relative_to(Path(study).resolve()):
            raise ValueError(f"--output {args.output} is a file of the study {study}; choose a new name")


def _text(value: dict[str, Any]) -> str:
    lines = []
    for study in value["studies"]:
        planned = "epochs" if study["planned"] is None else f"of {study['planned']} cells"
        lines.append(
            f"{study['name']}: {study['kind']} on {study['split']}, {study['done']} {planned}, {study['maps']} maps, "
            f"{study['charts']} charts, {study['tables']} tables, {study['examples']} example sentences"
        )
        lines += [f"  missing: {text}" for text in study["missing"]]
    return "\n".join([*lines, f"page {value['page']} ({value['bytes']:,} bytes)"])
