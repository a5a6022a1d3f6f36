"""Time whole trainings with fairseq-train, including data loading, logging and validation."""

import argparse
import gc
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import benchmarks
import fairseq_cli.train
import torch
from fairseq.distributed import utils as distributed
from fairseq.logging import metrics
from fairseq.trainer import Trainer

from fairseq_headprune.jobs.train import end_loaders, skip_dynamo

#: logging and validation of both sides: a log line every 100 updates, validation every epoch; no checkpoints
FLAGS = "--log-interval 100 --no-save --no-progress-bar --log-format simple".split()

#: sides that the others are compared with, besides stock: learned gates with the same training without them
BASES = ("gated", "gated-graphs")

#: side -> what was measured -> values
Times = dict[str, dict[str, list[float]]]
#: an update that takes more than so many times the median one of its epoch is a stall
_STALLED = 2.0
#: what is measured of each later epoch
_OF_EPOCH = ("seconds", "update", "stalled", "validation")

#: number of epochs in which shapes occur for the first and second time, and are recorded
RECORDING = 2


def time_trainings(
    args: argparse.Namespace,
    sides: Sequence[str],
    settings: Callable[..., Any],
    cuda: bool,
    keep: Callable[[Times], object],
) -> Times:
    """Train every side ``args.rounds`` times, in rotating order.

    Args:
        args: ``whole`` is the number of timed epochs per training, after ``RECORDING`` epochs reported separately.
        settings: returns fairseq's configuration for a side's name and further flags.
        keep: called with the times so far after every training.

    Returns:
        side -> ``first``: seconds of the first epochs, over all rounds; ``updates``: number per epoch; and of each
        later epoch ``seconds``: of all of it, ``update``: of the median update, ``stalled``: what updates of more than
        twice that take beyond it, and ``validation``.
    """
    skip_dynamo()
    times: Times = {name: {key: [] for key in ("first", "updates", *_OF_EPOCH)} for name in sides}
    more = [*FLAGS, "--num-workers", str(args.workers)]
    for number in range(args.rounds):
        for turn in range(len(sides)):
            name = sides[(turn + number) % len(sides)]
            cfg = settings(args, name, cuda, "--max-epoch", str(RECORDING + args.whole), *more)
            found = _epochs(cfg, cuda)
            times[name]["first"].append(sum(epoch["seconds"] for epoch in found[:RECORDING]))
            times[name]["updates"] += [epoch["updates"] for epoch in found]
            for key in _OF_EPOCH:
                times[name][key] += [epoch[key] for epoch in found[RECORDING:]]
            shown = ", ".join(f"{epoch['seconds']:.2f}" for epoch in found)
            print(f"round {number + 1} of {args.rounds}: {name}: epochs of {shown} s", file=sys.stderr)
            keep(times)
    return times


def _epochs(cfg: Any, cuda: bool) -> list[dict[str, float]]:
    """Train; return what was measured of each epoch, including validation."""
    found: list[dict[str, float]] = []
    train, validate, step = fairseq_cli.train.train, fairseq_cli.train.validate, Trainer.train_step
    starts: list[float] = []
    validations: list[float] = []

    def timed(cfg: Any, trainer: Any, *rest: Any) -> Any:
        starts.clear()
        validations.clear()
        before = trainer.get_num_updates()
        start = _now(cuda)
        result = train(cfg, trainer, *rest)
        seconds, updates = _now(cuda) - start, trainer.get_num_updates() - before
        found.append({"seconds": seconds, "updates": updates, **of_updates(starts), "validation": sum(validations)})
        return result

    def timed_validate(*given: Any) -> Any:
        start = _now(cuda)
        result = validate(*given)
        validations.append(_now(cuda) - start)
        return result

    def noted(*given: Any, **more: Any) -> Any:
        starts.append(time.perf_counter())
        return step(*given, **more)

    metrics.reset()
    with (
        patch.object(fairseq_cli.train, "train", timed),
        patch.object(fairseq_cli.train, "validate", timed_validate),
        patch.object(Trainer, "train_step", noted),
    ):
        distributed.call_main(cfg, fairseq_cli.train.main)
    end_loaders()
    gc.collect()
    if cuda:
        torch.cuda.empty_cache()
    return found


def of_updates(starts: Sequence[float]) -> dict[str, float]:
    """Return the median ``update`` of an epoch, and by how much longer ones are ``stalled``, in seconds.

    Args:
        starts: times at which updates start; each waits for the GPU once.
    """
    lengths = [end - start for start, end in itertools.pairwise(starts)]
    median = statistics.median(lengths) if lengths else 0.0
    return {"update": median, "stalled": sum(each - median for each in lengths if each > _STALLED * median)}


def _now(cuda: bool) -> float:
    if cuda:
        torch.cuda.synchronize()
    return time.perf_counter()


def describe(times: Times, words: int) -> dict[str, Any]:
    """Summarise the sides that are measured for the result file; ratios are of the rounds that both sides have.

    Args:
        words: target tokens per epoch.
    """
    sides, measured = {}, {name: mine for name, mine in times.items() if mine["first"]}
    for name, mine in measured.items():
        updates = max(mine["updates"])
        sides[name] = {
            "ms_per_update": benchmarks.spread([1000 * t / updates for t in mine["seconds"]]),
            "words_per_second": benchmarks.spread([words / t for t in mine["seconds"]]),
            "first_epochs_seconds": benchmarks.spread(mine["first"]),
            "updates_an_epoch": updates,
            "median_update_ms": benchmarks.spread([1000 * t for t in mine["update"]]),
            "stalled_seconds": benchmarks.spread(mine["stalled"]),
            "validation_seconds": benchmarks.spread(mine["validation"]),
        }
        for to in ("stock", *BASES):
            if to in measured:
                pairs = list(zip(measured[to]["seconds"], mine["seconds"], strict=False))
                sides[name][f"speed_to_{to}"] = benchmarks.paired_ratios(*zip(*pairs, strict=True))
    return sides
