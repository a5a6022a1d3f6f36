"""Write the tables of the manual and the READMEs, so that no number in them is typed by hand.

A table stands between ``<!-- table KIND FILES -->`` and ``<!-- end -->``, where FILES are results below examples/.
Without arguments all of them are printed as Markdown, with ``--write`` they are put there; KIND and FILES print one
table of results of your own. How each kind of results is shown is in shown.py (benchmarks), shown_models.py,
shown_studies.py, shown_trainings.py and shown_lottery.py.
"""

import argparse
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import shown
import shown_lottery
import shown_models
import shown_rounding
import shown_studies
import shown_trainings

from fairseq_headprune.cli import said
from fairseq_headprune.cli.common import Parser
from fairseq_headprune.files import read_json, read_lines, write_text
from fairseq_headprune.report.document import Document
from fairseq_headprune.report.tables import Table

Value = dict[str, Any]
Values = Mapping[str, Value]
#: Makes tables of results by name; also gets the numbers of a paper, if there are any.
Make = Callable[[Values, Value], Sequence[Table]]

_ROOT = Path(__file__).resolve().parents[1]
_MARKER = re.compile(r"<!-- table (\S+) (.+) -->")
_END = "<!-- end -->"


def _made(*tables: Callable[[Values], Table]) -> Make:
    return lambda values, _: [table(values) for table in tables]


KINDS: dict[str, Make] = {
    "bench-ablation": _made(shown.ABLATION.table),
    "bench-bootstrap": _made(shown.BOOTSTRAP.table),
    "bench-find": _made(shown.FIND.table),
    "bench-finetune": _made(shown.FINETUNE.table),
    "bench-host": _made(shown.HOST.table),
    "bench-score": _made(shown.SCORE.table),
    "bench-start": _made(shown.START.table),
    "bench-train": _made(shown.TRAIN.table),
    "curves": _made(shown_studies.curves),
    "differences": _made(shown_trainings.DIFFERENCES.table),
    "differences-each": _made(shown_trainings.EACH.table),
    "differences-by-heads": _made(shown_trainings.BY_HEADS.table),
    "differences-means": _made(shown_trainings.MEANS.table),
    "epochs": _made(shown_studies.epochs),
    "fine-tuned": _made(shown_models.FINE_TUNED.table),
    "heads": _made(shown_studies.heads),
    "lottery-agreement": _made(shown_lottery.AGREEMENT.table),
    "lottery-differences": _made(shown_lottery.differences),
    "lottery-paper": lambda values, paper: [shown_lottery.paper(values, paper)],
    "lottery-patterns": _made(shown_lottery.patterns),
    "lottery-selection": _made(shown_lottery.SELECTION.table),
    "lottery-survival": _made(shown_lottery.survival),
    "lottery-tickets": _made(shown_lottery.tickets),
    "masks": _made(shown_trainings.MASKS.table),
    "one-head": _made(shown_studies.one_head),
    "pruners": _made(shown_studies.pruners),
    "pruners-costs": _made(shown_studies.pruners_costs),
    "random": shown_studies.random,
    "rounding": _made(shown_rounding.ROUNDING.table),
    "rounding-kernels": _made(shown_rounding.KERNELS.table),
    "rounding-layouts": _made(shown_rounding.LAYOUTS.table),
    "rounding-translations": _made(shown_rounding.ROUNDED.table),
    "settings": _made(shown_trainings.settings),
    "slim": _made(shown_models.SLIM.table),
    "speed": _made(shown.SPEED.table),
    "speed-by-heads": _made(shown_studies.speed_by_heads),
    "task-heads": _made(shown_studies.task_heads),
    "trained": _made(shown_models.TRAINED.table, shown_models.TRAINED_MEANS.table),
    "type-1-errors": _made(shown.TYPE_1_ERRORS.table),
    "variance": _made(shown_trainings.VARIANCE.table),
}


def document(kind: str, paths: Sequence[Path]) -> Document:
    """Return the tables of some results; among them may be a paper's numbers, and a control."""
    values, paper, notes = {}, {}, []
    for path in paths:
        value = read_json(path)
        if isinstance(value.get("systems"), list):
            notes.append(shown_studies.control(value))
        elif path.name.startswith("paper-"):
            paper = value
        else:
            values[path] = value
    top = os.path.commonpath([path.parent for path in values])
    named = {path.relative_to(top).with_suffix("").as_posix(): value for path, value in values.items()}
    return Document("", list(KINDS[kind](named, paper)), notes=notes)


def marked(line: str, where: str) -> Document | None:
    """Return the document that a marker asks for; None for other lines.

    Raises:
        ValueError: an unknown kind, or no such files.
    """
    marker = _MARKER.fullmatch(line.strip())
    if not marker:
        return None
    kind, paths = marker[1], []
    if kind not in KINDS:
        raise ValueError(f"{where}: unknown table {kind}; known are {', '.join(KINDS)}")
    for pattern in marker[2].split():
        found = sorted((_ROOT / "examples").glob(pattern), key=lambda path: path.with_suffix(""))
        if not found:
            raise ValueError(f"{where}: there is no examples/{pattern}")
        paths += found
    return document(kind, paths)


def written(lines: Sequence[str], page: Path | str) -> str:
    """Return the text of a page with its tables made again.

    Raises:
        ValueError: a marker without an end, or see :func:`marked`.
    """
    kept: list[str] = []
    skipping = False
    for number, line in enumerate(lines, 1):
        skipping = skipping and line.strip() != _END
        if not skipping:
            kept.append(line)
        found = marked(line, f"{page}, line {number}")
        if found and _END not in map(str.strip, lines[number:]):
            raise ValueError(f"{page}, line {number}: a table without {_END} after it")
        kept += ["", *found.render("markdown").split("\n"), ""] if found else []
        skipping = skipping or found is not None
    return "\n".join(kept) + "\n"


def pages() -> list[Path]:
    """Return the Markdown files that hold tables."""
    found = [_ROOT / "README.md", *sorted(_ROOT.glob("examples/*/README.md")), *sorted(_ROOT.glob("docs/**/*.md"))]
    return [path for path in found if "<!-- table" in path.read_text(encoding="utf-8")]


def main() -> None:
    """Print tables, or write them into pages."""
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", nargs="?", choices=KINDS, help="print the table of one kind of results")
    parser.add_argument("files", nargs="*", type=Path, help="the results: JSON files")
    text = "put the tables into these Markdown files, or into all (default: print them)"
    parser.add_argument("--write", metavar="FILE", nargs="*", type=Path, help=text)
    args = parser.parse_args()
    if args.kind and not args.files:
        parser.error(f"{args.kind}: name its results, JSON files")
    if args.kind:
        try:
            print(document(args.kind, args.files).render("markdown"))
        except (OSError, ValueError) as error:
            parser.error(said(error))
        except (KeyError, TypeError, AttributeError) as error:
            parser.error(f"{args.kind}: not all of these files are such results ({type(error).__name__}: {error})")
        return
    for path in args.write or pages():
        try:
            text = written(read_lines(path), path)
        except (OSError, ValueError) as error:
            parser.error(said(error))
        if args.write is not None:
            write_text(path, text)
        else:
            print(*re.findall(r"<!-- table .*?<!-- end -->\n", text, re.DOTALL), sep="\n")


if __name__ == "__main__":
    main()
