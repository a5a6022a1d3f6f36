"""Measure what a study's processes cost before their first update or translation, in CPU seconds by part.

Each is started both ways: as a fork of the template, and as a process of its own; on the embedded corpus.
"""

import argparse
import contextlib
import os
import resource
import sys
import tempfile
from pathlib import Path
from typing import Any

import benchmarks
import script_flags
from shown import START, tell

from fairseq_headprune.corpus import Settings, make_corpus
from fairseq_headprune.files import read_json, write_json
from fairseq_headprune.jobs import processes, template
from fairseq_headprune.jobs.training import Run, TrainingJob
from fairseq_headprune.studies.folder import StudyFolder

PARTS = ("imports", "settings", "model", "data")
_SIDES = {"fork": template.start, "own": processes.start}
_RECIPE = (
    "--task translation_headprune --share-all-embeddings --criterion label_smoothed_cross_entropy "
    "--optimizer adam --lr 1e-3 --max-tokens 1000 --distributed-world-size 1 --max-update 1 --log-format none"
)


def main() -> None:
    """Run the benchmark and print its table."""
    args = _arguments()
    with tempfile.TemporaryDirectory() as folder:
        jobs = _prepare(Path(folder), args)
        found: dict[tuple[str, str], list[dict[str, float]]] = {}
        templates = []
        for turn in range(args.rounds):
            for side in list(_SIDES)[:: -1 if turn % 2 else 1]:
                for job, word in jobs.items():
                    found.setdefault((job, side), []).append(_measure(side, Path(folder), job, word))
                    print(f"round {turn + 1}: {job}, {side}: {found[job, side][-1]['total']:.2f} s", file=sys.stderr)
            templates.append(_template_seconds())
    rows = [
        {
            "job": job,
            "start": side,
            **{part: benchmarks.spread([run[part] for run in runs]) for part in (*PARTS, "total")},
        }
        for (job, side), runs in sorted(found.items(), key=lambda item: item[0])
    ]
    result = benchmarks.write_document(
        args,
        "start",
        arch=args.arch,
        device="cpu" if args.cpu else "cuda",
        precision="fp32" if args.cpu else "fp16",
        seconds="CPU seconds (user and system) of one process",
        template=benchmarks.spread(templates),
        rows=rows,
    )
    tell(START, result)


def _arguments() -> argparse.Namespace:
    parser = script_flags.new_parser(__doc__)
    add = parser.add_argument
    add("--arch", default="transformer_gated_iwslt_de_en", help="architecture of the model")
    add("--cpu", action="store_true", help="measure on the CPU even where CUDA is available")
    script_flags.add_run_flags(parser, rounds=5)
    args = parser.parse_args()
    script_flags.check(args, "rounds")
    args.cpu = args.cpu or not processes.gpus()
    return args


def _prepare(folder: Path, args: argparse.Namespace) -> dict[str, str]:
    """Write the corpus and a study's folder with a trained model; return the argument of each kind of job."""
    StudyFolder.open(folder, {})
    with contextlib.redirect_stdout(sys.stderr):
        make_corpus(folder / "corpus", Settings(), binarise=True)
    data, device = str(folder / "corpus" / "data-bin"), ["--cpu"] if args.cpu else ["--fp16"]
    flags = ["--arch", args.arch, *_RECIPE.split(), *device]
    for name in ("trained", "measured"):
        job = TrainingJob(name, data, flags, benchmarks.SEED)
        Run(folder, job.place).prepare(job)
    _run("own", folder, "fairseq_headprune.jobs.train", "runs/trained")
    cell = {"id": "a", "checkpoint": "runs/trained/checkpoint_best.pt", "split": "test", "method": "unpruned"}
    generate = [data, "--task", "translation_headprune", "--beam", "5", "--remove-bpe", "sentencepiece", *device]
    job = {"folder": str(folder), "generate": generate, "valid": "valid_loss", "step": 4, "sentences": 100}
    write_json(folder / "job.json", {**job, "cells": [{**cell, "count": None, "seed": benchmarks.SEED}]})
    return {"training": "runs/measured", "translating": "job.json"}


def _measure(side: str, folder: Path, job: str, word: str) -> dict[str, float]:
    _run(side, folder, "start_probe", job, word, "found.json")
    found: dict[str, float] = read_json(folder / "found.json")
    (folder / "found.json").unlink()
    return found


def _run(side: str, folder: Path, module: str, *words: str) -> None:
    """Run a module in the folder, with one thread.

    Raises:
        RuntimeError: it failed.
    """
    path = [str(Path(__file__).resolve().parent), processes.with_package(os.environ)["PYTHONPATH"]]
    settings = {"OMP_NUM_THREADS": "1", "PYTHONPATH": ":".join(path)}
    with open(folder / "log", "w") as log:
        process: Any = _SIDES[side]([sys.executable, "-m", module, *words], settings, log, log, folder)
    if process.wait():
        raise RuntimeError(f"{module} failed: {(folder / 'log').read_text()[-2000:]}")


def _template_seconds() -> float:
    """End the template, and return the CPU seconds that it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    template.close()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    script_flags.run(main)
