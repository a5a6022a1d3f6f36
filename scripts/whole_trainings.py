"""Time whole trainings with fairseq-train, including data loading, logging and validation."""

import argparse
import gc
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

from fairseq_headprune.jobs.train import end_loaders, skip_dynamo

#: logging and validation of both sides: a log line every 100 updates, validation every epoch; no checkpoints
FLAGS = "--log-interval 100 --no-save --no-progress-bar --log-format simple".split()

#: sides that the others are compared with, besides stock: learned gates with the same training without them
BASES = ("gated", "gated-graphs")

#: side -> what was measured -> values
Times = dict[str, dict[str, list[float]]]

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
        side -> ``first`` and ``later``: seconds of the first epochs, and of each later one, over all rounds;
        ``updates``: number per epoch.
    """
    skip_dynamo()
    times: Times = {name: {"first": [], "later": [], "updates": []} for name in sides}
    more = [*FLAGS, "--num-workers", str(args.workers)]
    for number in range(args.rounds):
        for turn in range(len(sides)):
            name = sides[(turn + number) % len(sides)]
            cfg = settings(args, name, cuda, "--max-epoch", str(RECORDING + args.whole), *more)
            found = _epochs(cfg, cuda, times[name]["updates"])
            times[name]["first"].append(sum(found[:RECORDING]))
            times[name]["later"] += found[RECORDING:]
            shown = ", ".join(f"{seconds:.2f}" for seconds in found)
            print(f"round {number + 1} of {args.rounds}: {name}: epochs of {shown} s", file=sys.stderr)
            keep(times)
    return times


def _epochs(cfg: Any, cuda: bool, updates: list[float]) -> list[float]:
    """Train; return the seconds of each epoch, including validation."""
    found: list[float] = []
    train = fairseq_cli.train.train

    def timed(cfg: Any, trainer: Any, *rest: Any) -> Any:
        before = trainer.get_num_updates()
        start = _now(cuda)
        result = train(cfg, trainer, *rest)
        found.append(_now(cuda) - start)
        updates.append(trainer.get_num_updates() - before)
        return result

    metrics.reset()
    with patch.object(fairseq_cli.train, "train", timed):
        distributed.call_main(cfg, fairseq_cli.train.main)
    end_loaders()
    gc.collect()
    if cuda:
        torch.cuda.empty_cache()
    return found


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
            "ms_per_update": benchmarks.spread([1000 * t / updates for t in mine["later"]]),
            "words_per_second": benchmarks.spread([words / t for t in mine["later"]]),
            "first_epochs_seconds": benchmarks.spread(mine["first"]),
            "updates_an_epoch": updates,
        }
        for to in ("stock", *BASES):
            if to in measured:
                pairs = list(zip(measured[to]["later"], mine["later"], strict=False))
                sides[name][f"speed_to_{to}"] = benchmarks.paired_ratios(*zip(*pairs, strict=True))
    return sides
