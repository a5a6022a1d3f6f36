"""Measure the host's work in an update under --cuda-graphs, on a CPU: a recorded pass is replayed by waiting.

In an update a GPU waits for the host once: from the moment at which norm, losses and the gates' gradient are read
until the next pass is replayed, but for the weights' step, which is launched in between. ``waits`` is this part,
``works`` the other, during which the GPU is busy: for 7 ms, after which the host takes longer than in a loop without
pauses. The model has as many modules and parameters as the one of fairseq's IWSLT recipe, but is narrow, so that an
operation takes about as long as a launch. Only the trainer's part is measured; fairseq-train's loop around it reads
settings, too. Side ``fairseq`` is the one without gates, but finds modules and reads settings as fairseq does.
"""

import argparse
import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import benchmarks
import recording
import script_flags
import shown
import torch
from fairseq.logging import metrics
from fairseq.trainer import Trainer

from fairseq_headprune.training.optimizer import Readings
from fairseq_headprune.training.quick import QuickSettings, UpdateCount

#: side -> kind of gates and heads kept of 72
SIDES = {"fairseq": ("", ""), "no gates": ("", ""), "l0": ("l0", "")}
SIDES |= {"l0-24": ("l0", "24"), "ste24": ("ste", "24")}
SIDES |= {f"dsp{kept}": ("dsp", str(kept)) for kept in (4, 12, 24, 36, 48, 60)}
_NARROW = "--encoder-embed-dim 16 --decoder-embed-dim 16 --encoder-ffn-embed-dim 8 --decoder-ffn-embed-dim 8".split()
#: flags of ``benchmarks.add_model_flags``: random sentences, in batches as small as the model
DATA = {"synthetic": True, "data": None, "cpu": True, "max_tokens": 200}
#: seconds that a GPU is busy with a pass
_BUSY = 0.007
#: parts of an update
_PARTS = ("waits", "works")
#: updates of a trainer before it is measured: a shape is recorded in its second one
_FIRST = 5


def main() -> None:
    """Run the benchmark and print its table."""
    args = _arguments()
    torch.set_num_threads(1)
    with _without_gpu():
        task, batch = task_and_batch(args)
        trainers = {name: _trainer(args, name, task, batch) for name in args.sides}
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in args.sides}
        work = {name: (lambda name=name: found[name].append(_measured(args, trainers[name], batch))) for name in found}
        benchmarks.interleave(work, args.rounds, cuda=False)
    rows = [
        {
            "side": name,
            **{part: benchmarks.spread([round_[place] for round_ in rounds]) for place, part in enumerate(_PARTS)},
        }
        for name, rounds in found.items()
    ]
    result = benchmarks.write_document(
        args, "host", device="cpu", precision="fp16", updates=args.updates, heads=72, rows=rows
    )
    shown.tell(shown.HOST, result)


def _arguments() -> argparse.Namespace:
    parser = script_flags.new_parser(__doc__)
    add = parser.add_argument
    names = ",".join(SIDES)
    add("--sides", type=script_flags.some_of(list(SIDES)), default=names, help="some of these, comma-separated")
    add("--updates", type=int, default=100, help="updates of a round")
    script_flags.add_run_flags(parser, rounds=9)
    args = parser.parse_args()
    script_flags.check(args, "rounds", updates=2)
    vars(args).update(DATA)
    return args


class _Marks:
    """Stands for the recorder of CUDA graphs; notes when passes are replayed, and results are asked for and read."""

    replayed: list[float] = []
    asked: list[float] = []
    read: list[float] = []

    def record(self, work: Callable[[], object]) -> Callable[[], None]:
        """Run the work once, and return a function that only notes the time."""
        work()
        return lambda: self.replayed.append(time.perf_counter())


@contextlib.contextmanager
def _without_gpu() -> Iterator[None]:
    """Context manager: record on a CPU, in half precision, for which fairseq asks for the GPU's number."""
    read = Readings.read

    def noted(readings: Readings, norm: torch.Tensor) -> torch.Tensor:
        _Marks.asked.append(time.perf_counter())
        while _Marks.replayed and time.perf_counter() < _Marks.replayed[-1] + _BUSY:
            pass  # as CUDA does
        found = read(readings, norm)
        _Marks.read.append(time.perf_counter())
        return found

    number = patch.object(torch.cuda, "current_device", lambda: 0)
    with recording.on_cpu(_Marks), patch.object(Readings, "read", noted), number:
        yield


def task_and_batch(args: argparse.Namespace) -> tuple[Any, dict]:
    """Return the task of ``DATA`` and its first batch."""
    task = benchmarks.make_task(args, benchmarks.fairseq_settings(args, "transformer_iwslt_de_en"), 1)
    [batch] = benchmarks.draw_batches(task, 1, (1024, 1024), max_tokens=args.max_tokens)
    return task, batch


def make_trainer(args: argparse.Namespace, task: Any, kind: str, kept: str, *flags: str) -> Trainer:
    """Return the trainer of a narrow model with learned gates, or none, which records its batches."""
    learned = benchmarks.learned_flags(kind, kept, "label_smoothed_cross_entropy") if kind else []
    flags = ("--task", "translation_headprune", "--cuda-graphs", "on", *_NARROW, *learned, *flags)
    return benchmarks.own_trainer(benchmarks.fairseq_settings(args, "transformer_gated_iwslt_de_en", *flags), task)


def _trainer(args: argparse.Namespace, name: str, task: Any, batch: dict) -> Trainer:
    """Return the trainer of a side, which has recorded its batch."""
    trainer = make_trainer(args, task, *SIDES[name], "--fp16")
    with contextlib.ExitStack() as stack:
        for kept_as_is in (QuickSettings, UpdateCount) if name == "fairseq" else ():
            stack.enter_context(patch.object(kept_as_is, "install", lambda _: None))
        for _ in range(_FIRST):
            trainer.train_step([batch])
    return trainer


def _measured(args: argparse.Namespace, trainer: Trainer, batch: dict) -> tuple[float, float]:
    """Return the median milliseconds of an update in which the GPU waits, and works."""
    for marks in (_Marks.replayed, _Marks.asked, _Marks.read):
        marks.clear()
    metrics.reset()
    with metrics.aggregate("train"), metrics.aggregate("train_inner"):
        for _ in range(args.updates):
            trainer.train_step([batch])
    waits = [1000 * (after - before) for before, after in zip(_Marks.read, _Marks.replayed[1:], strict=False)]
    works = [1000 * (after - before) for before, after in zip(_Marks.replayed, _Marks.asked, strict=True)]
    return statistics.median(waits), statistics.median(works)


if __name__ == "__main__":
    script_flags.run(main)
