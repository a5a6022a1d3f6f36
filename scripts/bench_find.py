"""Time ``headprune lottery find``, a process of its own from its start to its end.

python scripts/bench_find.py DATA --paths MODEL … --mode both [flags of headprune lottery find] [flags below]
"""

import argparse
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import benchmarks
import script_flags
import shown

from fairseq_headprune.checkpoints import read_state, updates_of
from fairseq_headprune.files import sha256
from fairseq_headprune.jobs.processes import gpus, with_package
from fairseq_headprune.studies.folder import StudyFolder


def main() -> None:
    """Run the benchmark and print its result."""
    args, flags = _arguments()
    models = [{"sha256": sha256(path), "updates": updates_of(read_state(path))} for path in args.paths]
    verb = [sys.executable, "-m", "fairseq_headprune", "lottery", "find", args.data, "--paths", *args.paths, *flags]
    environment, times = with_package(os.environ), []
    searches: list[dict[str, Any]] = []
    for _ in range(args.rounds):
        with tempfile.TemporaryDirectory() as folder:
            words = [*verb, "--quiet", "-o", f"{folder}/search"]
            find = partial(subprocess.run, words, env=environment, stdout=subprocess.DEVNULL, check=True)
            times.append(benchmarks.seconds(find))
            searches = [_search(StudyFolder(path.parent)) for path in sorted(Path(folder).rglob("study.json"))]
    task = searches[0]["data"].get("task", "")
    files = [path for path in sorted(Path(args.data, task).iterdir()) if path.is_file()]
    result = benchmarks.write_document(
        args,
        "find",
        device="cpu" if "--cpu" in flags or not gpus() else "cuda",
        seconds=benchmarks.spread(times),
        models=models,
        data_files={path.name: sha256(path) for path in files},
        searches=searches,
    )
    shown.tell(shown.FIND, result)


def _search(folder: StudyFolder) -> dict[str, Any]:
    names = ("checkpoint", "mode", "precision", "data")
    return {**{name: folder.settings.get(name) for name in names}, "cells": len(folder.cells())}


def _arguments() -> tuple[argparse.Namespace, list[str]]:
    """Return this script's flags, and the others, which are the verb's."""
    parser = script_flags.new_parser(__doc__)
    add = parser.add_argument
    add("data", help="data folder")
    add("--paths", nargs="+", required=True, help="models, searched side by side")
    script_flags.add_run_flags(parser, rounds=2, what="times that it is run")
    args, flags = parser.parse_known_args()
    script_flags.check(args, "rounds")
    return args, flags


if __name__ == "__main__":
    script_flags.run(main)
