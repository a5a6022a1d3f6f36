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
import shown

from fairseq_headprune.checkpoints import read_state, updates_of
from fairseq_headprune.files import sha256
from fairseq_headprune.jobs.processes import gpus, with_package
from fairseq_headprune.studies.folder import StudyFolder


def main() -> None:
    """Run the benchmark and print its result."""
    args, flags = _arguments()
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
        models=[{"sha256": sha256(path), "updates": updates_of(read_state(path))} for path in args.paths],
        data_files={path.name: sha256(path) for path in files},
        searches=searches,
    )
    shown.tell(shown.FIND, result)


def _search(folder: StudyFolder) -> dict[str, Any]:
    names = ("checkpoint", "mode", "precision", "data")
    return {**{name: folder.settings.get(name) for name in names}, "cells": len(folder.cells())}


def _arguments() -> tuple[argparse.Namespace, list[str]]:
    """Return this script's flags, and the others, which are the verb's."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    add("data", help="data folder")
    add("--paths", nargs="+", required=True, help="models, searched side by side")
    add("--rounds", type=int, default=2, help="times that it is run (default: 2)")
    add("--output", help="write the result to this JSON file")
    args, flags = parser.parse_known_args()
    if args.rounds < 1:
        parser.error(f"--rounds {args.rounds}: it must be at least 1")
    return args, flags


if __name__ == "__main__":
    main()
