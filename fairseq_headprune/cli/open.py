"""``headprune open``: the report page of studies in the browser, updated while they run."""

import webbrowser
from pathlib import Path

from fairseq_headprune.cli.common import Parser
from fairseq_headprune.cli.report import document
from fairseq_headprune.gates.log import NAME as LOG
from fairseq_headprune.report.page.document import render
from fairseq_headprune.studies.gate_runs import holds_gates, read_gates
from fairseq_headprune.studies.stored import NAME, is_stored, read_study

_DESCRIPTION = """Serve the page of headprune report at a free port of this machine (127.0.0.1: other machines cannot
reach it), open it in the browser, and update it while the studies run, until Ctrl-C."""


def run(argv: list[str]) -> int:
    """Run the verb."""
    parser = Parser(prog="headprune open", description=_DESCRIPTION)
    parser.add_argument(
        "studies", metavar="STUDY", nargs="+", help="study folder, or --save-dir of a training with learned gates"
    )
    parser.add_argument("--no-browser", action="store_true", help="only serve the page")
    args = parser.parse_args(argv)
    for study in args.studies:
        if not is_stored(study):
            (read_gates if holds_gates(study) else read_study)(study)
    from fairseq_headprune.report.page.server import PageServer

    title = ", ".join(Path(study).resolve().name for study in args.studies)
    with PageServer(lambda: version(args.studies), lambda: render(document(args.studies, title))) as server:
        print(f"{server.url} (Ctrl-C ends)", flush=True)
        if not args.no_browser:
            webbrowser.open(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            pass
    return 0


def version(studies: list[str]) -> str:
    """Return a text that changes when a study has another cell, or other settings, or a log another update."""
    stats = [path.stat() for study in studies for path in _files(Path(study))]
    return " ".join(f"{stat.st_size}-{stat.st_mtime_ns}" for stat in stats)


def _files(study: Path) -> list[Path]:
    if study.is_file():
        return [study]
    names = [NAME] if is_stored(study) else [LOG] if holds_gates(study) else ["study.json", "cells.jsonl"]
    return [study / name for name in names]
