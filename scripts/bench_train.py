"""Time training updates of fairseq's stock transformer and of the gated one, on the same batches, in one run.

Every side is fairseq's own Trainer with label-smoothed cross entropy and Adam, in fp16 on CUDA. Sides: ``stock``;
``gated`` (gates off: every head kept); ``gated`` with one or both of ``mask`` (a quarter of every layer's heads pruned)
and ``ones`` (a float gate of ones with gradients on every head), joined by hyphens, such as ``gated-mask-ones``; or
with one kind of learned gates, ``l0``, ``dsp24`` or ``ste24`` (24: heads kept), such as ``gated-dsp24``. (Memory is not
reported: fairseq's Trainer resets CUDA's peak counters.) ``-graphs`` at the end: with ``--cuda-graphs on``. The result
file is written after every round, with ``--whole`` after every training, so that a benchmark that is killed keeps them.
"""

import argparse
import re
from collections.abc import Callable
from typing import Any

import benchmarks
import script_flags
import shown
import torch
import whole_trainings
from fairseq.trainer import Trainer
from gpu_profile import operations_on_gpu

from fairseq_headprune.modules.attach import find_gates
from fairseq_headprune.speed.measure import operations

_OPTIONS = re.compile(r"mask|ones|graphs|l0|(dsp|ste)\d+")
#: sides that the others are compared with, besides stock
_BASES = whole_trainings.BASES
_LEARNED = re.compile(r"gated-(l0|dsp|ste)(\d*)(-graphs)?")


def main() -> None:
    """Run the benchmark and print its table."""
    args = _arguments()
    torch.set_num_threads(args.threads)
    cuda = torch.cuda.is_available() and not args.cpu
    result = _whole(args, cuda) if args.whole else _alone(args, cuda)
    shown.tell(shown.TRAIN, result)


def _alone(args: argparse.Namespace, cuda: bool) -> dict[str, Any]:
    """Time the updates of Trainers on the same preloaded batches."""
    count = max(args.updates, args.warm_up)
    task = benchmarks.make_task(args, _settings(args, "stock", cuda), count)
    trainers = {name: _trainer(args, name, task, cuda) for name in args.variants}
    limits = next(iter(trainers.values())).model.max_positions()
    batches = benchmarks.draw_batches(task, count, limits, max_tokens=args.max_tokens)
    first = {name: _updates(trainer, batches[: args.warm_up]) for name, trainer in trainers.items()}
    benchmarks.warm_up(first, cuda, f"{args.warm_up} updates")
    timed = batches[: args.updates]
    sides = {name: _updates(trainer, timed) for name, trainer in trainers.items()}
    more: dict[str, dict[str, Any]] = {
        name: {"operations_an_update": operations(_updates(trainer, timed[:1]))} for name, trainer in trainers.items()
    }
    tokens = sum(batch["ntokens"] for batch in timed)

    def write(times: dict[str, list[float]]) -> dict[str, Any]:
        return benchmarks.write_document(
            args,
            "train",
            **_about(args, cuda, f"{args.updates} updates", {name: len(mine) for name, mine in times.items()}),
            updates=args.updates,
            batches=benchmarks.describe_batches(args, timed),
            sides={name: {**_side(args, times, name, tokens), **more[name]} for name in times},
        )

    times, _ = benchmarks.interleave(sides, args.rounds, cuda, write)
    for name, side in sides.items() if cuda else ():
        found = operations_on_gpu(side)
        more[name] |= {"gpu_ms_per_update": 1000 * found["seconds"] / args.updates, "gpu": found}
    return write(times)


def _whole(args: argparse.Namespace, cuda: bool) -> dict[str, Any]:
    """Time whole trainings with fairseq-train."""
    task = benchmarks.make_task(args, _settings(args, "stock", cuda), 1)
    words = int(task.dataset("train").tgt_sizes.sum())

    def write(times: whole_trainings.Times) -> dict[str, Any]:
        done = {name: len(mine["first"]) for name, mine in times.items()}
        return benchmarks.write_document(
            args,
            "train",
            **_about(args, cuda, f"fairseq-train, {args.whole} epochs", done),
            epochs=args.whole,
            flags=whole_trainings.FLAGS + ["--num-workers", str(args.workers)],
            sides=whole_trainings.describe(times, words),
        )

    return write(whole_trainings.time_trainings(args, args.variants, _settings, cuda, write))


def _about(args: argparse.Namespace, cuda: bool, unit: str, done: dict[str, int]) -> dict[str, Any]:
    device, precision = ("cuda", "fp16") if cuda else ("cpu", "fp32")
    unit = f"{unit} x {max(done.values())} rounds"
    return {"unit": unit, "rounds_done": done, "arch": args.arch, "device": device, "precision": precision}


def _arguments() -> argparse.Namespace:
    parser = script_flags.new_parser(__doc__)
    benchmarks.add_model_flags(parser)
    parser.add_argument("--updates", type=int, default=50, help="updates a round, one on each batch")
    parser.add_argument("--warm-up", type=int, default=50, help="updates of every side before the first round")
    parser.add_argument("--variants", default="stock,gated,gated-mask,gated-ones", help="sides, comma-separated")
    parser.add_argument("--whole", type=int, metavar="EPOCHS", help="time whole trainings of 2 + EPOCHS epochs")
    parser.add_argument("--workers", type=int, default=4, help="processes that load batches, with --whole")
    args = parser.parse_args()
    args.variants = args.variants.split(",")
    script_flags.check(args, "updates", "rounds", "warm_up")
    for name in args.variants:
        kind, *options = name.split("-")
        known = all(_OPTIONS.fullmatch(option) for option in options)
        if kind not in ("stock", "gated") or not known or (kind == "stock" and options):
            parser.error(f"unknown variant {name!r}: stock, or gated with mask, ones, graphs, l0, dspK or steK")
    if "stock" not in args.variants:
        parser.error("--variants must hold stock, which the others are compared with")
    if args.whole and (args.synthetic or any("mask" in name or "ones" in name for name in args.variants)):
        parser.error("--whole trains on --data, and knows no mask and ones")
    return args


def _settings(args: argparse.Namespace, name: str, cuda: bool, *more: str) -> Any:
    arch = f"transformer_{args.arch}" if name == "stock" else f"transformer_gated_{args.arch}"
    flags = ["--fp16"] if cuda else []
    learned = _LEARNED.fullmatch(name)
    if learned or "graphs" in name:
        flags += ["--task", "translation_headprune"]
    if learned:
        flags += benchmarks.learned_flags(*learned.groups()[:2], "label_smoothed_cross_entropy")
    if "graphs" in name:
        flags += ["--cuda-graphs", "on"]
    return benchmarks.fairseq_settings(args, arch, *flags, *more)


def _trainer(args: argparse.Namespace, name: str, task: Any, cuda: bool) -> Trainer:
    cfg = _settings(args, name, cuda)
    torch.manual_seed(benchmarks.SEED)
    if _LEARNED.fullmatch(name) or "graphs" in name:
        trainer = benchmarks.own_trainer(cfg, task)
        if "mask" in name:
            benchmarks.prune_quarter(find_gates(trainer.model))
        return trainer
    trainer = Trainer(cfg, task, task.build_model(cfg.model), task.build_criterion(cfg.criterion))
    options = name.split("-")[1:]
    if "mask" in options:
        benchmarks.prune_quarter(find_gates(trainer.model))
    if "ones" in options:
        for _, _, module in find_gates(trainer.model).items():
            module.head_gate = module.out_proj.weight.new_ones(module.num_heads).requires_grad_()
    return trainer


def _updates(trainer: Trainer, batches: list[dict]) -> Callable[[], None]:
    return benchmarks.repeated(lambda batch: trainer.train_step([batch]), batches)


def _side(args: argparse.Namespace, times: dict, name: str, tokens: int) -> dict[str, Any]:
    mine = times[name]
    return {
        "ms_per_update": benchmarks.spread([1000 * t / args.updates for t in mine]),
        "words_per_second": benchmarks.spread([tokens / t for t in mine]),
        "speed_to_stock": benchmarks.paired_ratios(times["stock"], to=mine),
    } | {f"speed_to_{to}": benchmarks.paired_ratios(times[to], to=mine) for to in _BASES if to in times}


if __name__ == "__main__":
    script_flags.run(main)
