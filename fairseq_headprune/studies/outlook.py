"""What a study is going to do (``--dry-run``), and its time and memory, estimated from a short measurement here."""

import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fairseq_headprune.evaluation.evaluator import answers_under, masks_at_once
from fairseq_headprune.jobs.processes import with_package
from fairseq_headprune.jobs.template import CAN_FORK
from fairseq_headprune.jobs.training import Run, TrainingJob
from fairseq_headprune.studies.folder import StudyFolder
from fairseq_headprune.studies.study import Study

#: seconds after which a measurement is long enough
ENOUGH = 2.0
#: updates of the training that is measured
UPDATES = 12


@dataclass(frozen=True)
class Outlook:
    """What is left of a study.

    Attributes:
        cells: number of cells that are not done yet, and ``done``: of those that are.
        trainings, updates: number of trainings left, and updates of all of them; None: unknown.
        answers: number of sentences that are translated (or classified), over all cells.
        seconds: estimated time; None: unknown. Importance, validation and resampling are not included.
        memory: bytes at the peak of what was measured, on the GPU if there is one.
        notes: what numbers are based on, and whether they are upper bounds.
    """

    study: str
    cells: int | None
    done: int
    trainings: int
    updates: int | None
    answers: int | None
    seconds: float | None
    memory: int
    notes: list[str]

    def document(self) -> dict[str, Any]:
        """Return the values for JSON."""
        return asdict(self)

    def text(self) -> str:
        """Return them as lines."""
        rows = {
            "cells": _number(self.cells) + (f" ({self.done:,} more are done)" if self.done else ""),
            "trainings": f"{self.trainings:,}" + (f", {_number(self.updates)} updates" if self.trainings else ""),
            "answers": f"{_number(self.answers)} sentences",
            "time": "unknown" if self.seconds is None else f"about {shown_time(self.seconds)}",
            "memory": f"{self.memory / 2**30:.1f} GiB",
        }
        lines = [f"{self.study}: dry run, nothing is written", *(f"  {k:<10} {v}" for k, v in rows.items())]
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])


def shown_time(seconds: float) -> str:
    """Return a time in words, two digits of precision: ``40 s``, ``12 min``, ``3.5 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def of_masks(study: Study, paths: Sequence[str | Path], jobs: int, note: str = "") -> Outlook:
    """Return the outlook of a study whose cells are masks of its loaded model, or of several models like it.

    Args:
        paths: the study's folder, one for each model; it need not be there.
        jobs: processes that share the cells.
    """
    most, bound = study.at_most()
    done = sum(len(finished(path)) for path in paths)
    cells = None if most is None else max(0, len(paths) * most - done)
    session, split = study.session, study.split  # type: ignore[attr-defined]
    each, memory, how = time_answers(session, split, 1 if study.stepwise else cells or 1)
    answers = None if cells is None else cells * session.scored(split)["scored"]
    seconds = None if answers is None else answers * each / jobs
    return Outlook(study.name, cells, done, 0, 0, answers, seconds, memory, [*filter(None, (bound, note)), how])


def of_trainings(study: Study, path: str | Path, at_once: int) -> Outlook:
    """Return the outlook of a study that trains, and runs its loaded model or each trained one once on its split."""
    study._folder = SimpleNamespace(path=Path(path))  # type: ignore[assignment]  # which is not made here
    done, cells = finished(path), study.plan()
    left = [cell for cell in cells if cell.id not in done]
    jobs = [cell.job for cell in left if cell.job is not None]
    if jobs:
        jobs = [*(job for job in study.before() if not Run(Path(path), job.place).done.exists()), *jobs]
    session, split = study.session, study.split  # type: ignore[attr-defined]
    each, memory, how = time_answers(session, split, 1)
    answers = len(left) * session.scored(split)["scored"]
    found = trained(study.name, jobs, at_once)
    seconds = None if found.seconds is None else found.seconds + answers * each / at_once
    told = {"answers": answers, "seconds": seconds, "memory": max(memory, found.memory), "notes": [*found.notes, how]}
    return replace(found, cells=len(left), done=len(cells) - len(left), **told)


def trained(name: str, jobs: Sequence[TrainingJob], at_once: int) -> Outlook:
    """Return the outlook of trainings alone; the first one is run for some updates."""
    if not jobs:
        return Outlook(name, 0, 0, 0, 0, 0, 0.0, 0, [])
    load, start, update, an_epoch, memory = time_training(jobs[0])
    lengths = [_length(job.flags, an_epoch) for job in jobs]
    updates = None if None in lengths else sum(filter(None, lengths))
    seconds = None if updates is None else load + (len(jobs) * start + updates * update) / min(at_once, len(jobs))
    note = (
        f"a training takes {start:.0f} s to begin and {1000 * update:.0f} ms an update, measured in {UPDATES} updates"
    )
    side = f"; {at_once} side by side are taken to be as fast as one alone" if at_once > 1 else ""
    return Outlook(name, len(jobs), 0, len(jobs), updates, None, seconds, memory, [note + side])


def time_answers(session: Any, split: str, cells: int) -> tuple[float, int, str]:
    """Measure the model on some sentences: seconds of one answer under one mask, bytes at the peak, and how."""
    size, start = min(masks_at_once(session, session.evaluator(split)), cells), session.gates.mask()
    masks = [start.without([head]) for head in start.kept()[:size]] or [start]
    total, count, taken = session.scored(split)["scored"], 8, 0.0
    try:
        while True:
            session.sample = count = min(count, total)
            evaluator, began = session.evaluator(split), time.perf_counter()
            answers_under(session, evaluator, masks)
            taken = time.perf_counter() - began
            if taken > ENOUGH or count == total:
                break
            count *= 4
    finally:
        session.sample = None
    each = taken / (count * len(masks))
    together = f"{len(masks)} masks at once" if len(masks) > 1 else "one mask"
    how = f"an answer takes {1000 * each:.2g} ms, measured on {count} sentences with {together}"
    return each, _peak(session.device.type), how


def _peak(device: str) -> int:
    if device == "cuda":
        import torch

        return torch.cuda.max_memory_reserved()
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def time_training(job: TrainingJob) -> tuple[float, float, float, int, int]:
    """Run the first updates of a training, without its mask.

    Returns:
        Seconds to load fairseq, if trainings share that; seconds to begin, seconds of an update, updates of an epoch,
        and bytes at the peak.

    Raises:
        RuntimeError: it fails; the message is the last line of its output.
    """
    with tempfile.TemporaryDirectory() as folder:
        bare: dict[str, Any] = dict.fromkeys(("mask", "weights", "embeddings"))
        plain = replace(job, **bare, slim=False, start=None if job.after else job.start, root="")
        # Without a limit of epochs, which may have fewer updates.
        short = f"--max-update {UPDATES} --max-epoch 0 --no-save --disable-validation --log-interval 1 "
        short += "--log-format json"
        words = [*plain.words(), *short.split(), "--save-dir", folder]
        run, taken = _timed(words)
    lines = run.stdout + run.stderr
    if run.returncode:
        said = lines.strip().splitlines() or [f"status {run.returncode}"]
        raise RuntimeError(f"--dry-run: the training ends with {said[-1]}")
    update, an_epoch, free = read_training(lines)
    memory = 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    if free is not None:
        import torch

        memory = torch.cuda.get_device_properties(0).total_memory - int(free * 2**30)
    load = _timed([sys.executable, "-c", "import fairseq_cli.train"])[1] if CAN_FORK else 0.0
    return load, max(0.0, taken - load - UPDATES * update), update, an_epoch, memory


def _timed(words: Sequence[str]) -> tuple[subprocess.CompletedProcess[str], float]:
    began = time.perf_counter()
    run = subprocess.run(words, env=with_package(os.environ), capture_output=True, text=True)
    return run, time.perf_counter() - began


def read_training(lines: str) -> tuple[float, int, float | None]:
    """Read fairseq-train's log: median seconds of the later updates, updates of an epoch, GiB free on the GPU."""
    rates = [float(rate) for rate in re.findall(r'"ups": "([\d.]+)"', lines)]
    steady = [rate for rate in rates[len(rates) // 2 :] if rate > 0]
    lengths = [int(number) for number in re.findall(r"total_num_itrs = (\d+)", lines)]
    free = [float(number) for number in re.findall(r'"gb_free": "([\d.]+)"', lines)]
    if not steady or not lengths:
        raise RuntimeError("--dry-run: fairseq-train's log has no speed of an update")
    return 1 / statistics.median(steady), lengths[0], min(free, default=None)


def _length(flags: Sequence[str], an_epoch: int) -> int | None:
    """Return the number of updates of a training; None if its flags do not limit it."""
    limits = {name: _last(flags, name) for name in ("--max-update", "--max-epoch")}
    found = [limits["--max-update"], limits["--max-epoch"] and limits["--max-epoch"] * an_epoch]
    return min(filter(None, found), default=None)


def _last(flags: Sequence[str], name: str) -> int | None:
    """Return the last value of a flag, which is given as ``NAME VALUE`` or ``NAME=VALUE``."""
    words = [word for flag in flags for word in (flag.split("=", 1) if flag.startswith(f"{name}=") else [flag])]
    places = [place for place, word in enumerate(words[:-1]) if word == name]
    return int(words[places[-1] + 1]) if places else None


def finished(path: str | Path) -> dict[str, Any]:
    """Return the cells of a study folder that are done, by id; none where there is no study yet."""
    return StudyFolder(path).cells() if (Path(path) / "study.json").is_file() else {}


def _number(value: int | None) -> str:
    return "unknown number of" if value is None else f"{value:,}"
