"""Shared by the benchmark scripts: timing, summaries, the environment, batches and a fairseq model.

Importing this module puts the repository's root on ``sys.path``, so that the scripts run from a clone.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fairseq_headprune.files import write_json  # noqa: E402
from fairseq_headprune.provenance import git_commit, script_command  # noqa: E402

#: seed of initial weights, batch order and synthetic sentences
SEED = 1

_VOCABULARY = 8000
_MEAN_LENGTH = 22


def seconds(work: Callable[[], object], cuda: bool = False) -> float:
    """Time one call in seconds; on CUDA, the device is idle before and after."""
    if cuda:
        import torch  # here, so that benchmarks without CUDA do not wait for its import

        torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    if cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - start


def command() -> str:
    """Return the current command as typed in the repository."""
    return f"python {script_command('scripts/')}"


def spread(values: Sequence[float]) -> dict[str, float]:
    """Summarise repeated measurements."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "runs": len(values)}


def environment(*packages: str) -> dict[str, Any]:
    """Describe the machine and the versions of packages; None for a package that is not installed."""
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "git": git_commit(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
    }
    if "torch" in packages:
        import torch

        found["threads"] = torch.get_num_threads()
        found["gpu"] = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def write_document(args: argparse.Namespace, name: str, *packages: str, **found: Any) -> dict[str, Any]:
    """Return a benchmark's results with its command and the environment; also write them to ``--output`` if given.

    Args:
        packages: packages whose versions matter, besides torch, numpy and fairseq.
    """
    versions = environment("torch", "numpy", *packages, "ve-fairseq", "fairseq-fixed", "fairseq")
    value = {"benchmark": name, "command": command(), "rounds": args.rounds, **found, "environment": versions}
    if args.output:
        write_json(args.output, value)
    return value


def repeated(step: Callable[[Any], object], items: Sequence[Any]) -> Callable[[], None]:
    """Return a function that applies a step to every item, such as an update to every batch."""

    def run() -> None:
        for item in items:
            step(item)

    return run


def warm_up(sides: dict[str, Callable[[], object]], cuda: bool, what: str) -> None:
    """Run every side once and report on stderr how long that took."""
    for name, side in sides.items():
        print(f"{name}: {what} to warm up took {seconds(side, cuda):.2f} s", file=sys.stderr)


def add_model_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that choose the data and the model to measure."""
    data = parser.add_mutually_exclusive_group(required=True)
    data.add_argument("--data", help="a folder that fairseq-preprocess wrote, de-en; batches come from its train")
    data.add_argument("--synthetic", action="store_true", help="random sentences of 5 to 40 tokens instead of data")
    add = parser.add_argument
    add("--arch", default="iwslt_de_en", help="transformer_ARCH is measured against transformer_gated_ARCH")
    add("--max-tokens", type=int, default=4096, help="tokens a batch, padding included")
    add("--rounds", type=int, default=5, help="rounds; each measures every side once, in turning order")
    add("--cpu", action="store_true", help="measure on the CPU even where CUDA is available")
    add("--threads", type=int, default=2, help="CPU threads of torch")
    add("--output", help="write the result to this JSON file")


def fairseq_settings(args: argparse.Namespace, arch: str, *flags: str) -> Any:
    """Return fairseq's configuration for training ``arch`` with the recipe of examples/multi30k."""
    recipe = """--task translation --source-lang de --target-lang en --share-all-embeddings
        --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --dropout 0.3
        --optimizer adam --adam-betas (0.9,0.98) --lr 7e-4 --lr-scheduler inverse_sqrt --warmup-updates 1500""".split()
    more = ["--max-tokens", str(args.max_tokens), *(["--cpu"] if args.cpu else [])]
    return training_settings([args.data or "synthetic", "--arch", arch, *recipe, *more, *flags])


def training_settings(flags: Sequence[str]) -> Any:
    """Return fairseq's configuration for fairseq-train flags, on one device, without checkpoints or a log."""
    from fairseq import options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    from fairseq_headprune import plugin  # noqa: F401  (registers)

    more = ["--distributed-world-size", "1", "--log-format", "none"]
    more += ["--save-dir", tempfile.gettempdir(), "--seed", str(SEED)]
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), [*flags, *more]))


def learned_flags(kind: str, count: str, criterion: str) -> list[str]:
    """Return the flags that learn gates: ``kind`` is ``l0``, ``dsp`` or ``ste``, ``count`` the number of heads kept.

    L0 without a number has a fixed penalty.
    """
    flags = ["--criterion", f"{criterion}_{'l0' if kind == 'l0' else 'dsp'}", "--max-update", "100000"]
    if kind == "l0":
        return [*flags, *(["--l0-target-heads", count] if count else ["--l0-penalty", "0.001"])]
    return [*flags, "--heads-kept", count, *(["--preset", "dsp-mt"] if kind == "dsp" else ["--straight-through"])]


def own_trainer(cfg: Any, task: Any) -> Any:
    """Return fairseq's trainer with our task, for another translation task's dictionaries, in its first epoch."""
    from fairseq.trainer import Trainer

    from fairseq_headprune.tasks.translation_headprune import TranslationHeadpruneTask

    own = TranslationHeadpruneTask(cfg.task, task.source_dictionary, task.target_dictionary)
    trainer = Trainer(cfg, own, own.build_model(cfg.model), own.build_criterion(cfg.criterion))
    own.begin_epoch(1, trainer.get_model())
    return trainer


def prune_quarter(gates: Any) -> None:
    """Set the mask of the benchmarks, which prunes a quarter of every layer's heads."""
    from fairseq_headprune.parts import Mask, all_heads

    pruned = [head for head in all_heads(gates.shape) if (head.layer + head.index) % 4 == 0]
    gates.set_mask(Mask.full(gates.shape).without(pruned))


def make_task(args: argparse.Namespace, cfg: Any, batches: int) -> Any:
    """Return the translation task with its training set loaded or, with ``--synthetic``, random."""
    from fairseq import tasks

    if not args.synthetic:
        task = tasks.setup_task(cfg.task)
        task.load_dataset("train")
        return task
    from fairseq.data import Dictionary
    from fairseq.tasks.translation import TranslationTask

    words = Dictionary()
    for number in range(_VOCABULARY - len(words)):
        words.add_symbol(f"w{number}")
    task = TranslationTask(cfg.task, words, words)
    task.datasets["train"] = _synthetic(words, pairs=2 * batches * args.max_tokens // _MEAN_LENGTH + 200)
    return task


def _synthetic(words: Any, pairs: int) -> Any:
    """Return pairs of 5 to 40 random tokens; the target is up to a fifth longer or shorter."""
    import numpy as np
    import torch
    from fairseq.data import LanguagePairDataset

    chance = np.random.default_rng(SEED)
    source = chance.integers(5, 41, pairs)
    target = np.clip((source * chance.uniform(0.8, 1.2, pairs)).round().astype(int), 5, 40)

    def sentences(lengths: np.ndarray) -> list:
        drawn = (torch.from_numpy(chance.integers(words.nspecial, len(words), n)) for n in lengths)
        return [torch.cat([tokens, torch.tensor([words.eos()])]) for tokens in drawn]

    return LanguagePairDataset(
        *(sentences(source), source + 1, words, sentences(target), target + 1, words),
        left_pad_source=True,
        left_pad_target=False,
        shuffle=False,
    )


def draw_batches(task: Any, count: int, max_positions: Any = None, **size: int) -> list[dict]:
    """Return the first batches of an epoch, in fairseq's order for this seed.

    Args:
        size: ``max_tokens`` or ``max_sentences`` per batch.

    Raises:
        ValueError: the training set has fewer batches.
    """
    epoch = task.get_batch_iterator(
        task.dataset("train"), **size, max_positions=max_positions, seed=SEED, epoch=1
    ).next_epoch_itr(shuffle=True)
    if len(epoch) < count:
        what = ", ".join(f"{name} {value}" for name, value in size.items())
        raise ValueError(f"the training set has {len(epoch)} batches of {what}, {count} are needed")
    return [next(epoch) for _ in range(count)]


def describe_batches(args: argparse.Namespace, batches: Sequence[dict]) -> dict[str, Any]:
    """Describe the batches for the report."""
    return {
        "data": "synthetic" if args.synthetic else Path(args.data).resolve().name,
        "batches": len(batches),
        "max_tokens": args.max_tokens,
        "sentences": sum(batch["nsentences"] for batch in batches),
        "target_tokens": sum(batch["ntokens"] for batch in batches),
        "seed": SEED,
    }


def interleave(
    sides: dict[str, Callable[[], object]],
    rounds: int,
    cuda: bool,
    keep: Callable[[dict[str, list[float]]], object] = lambda times: None,
) -> tuple[dict[str, list[float]], dict[str, int]]:
    """Run every side once a round, starting each round with the next one, so that no side always goes first.

    Args:
        keep: called with the times so far after every round.

    Returns:
        Seconds of each round, and on CUDA the peak memory in bytes above what was allocated before, by side.
    """
    import torch

    names, times, peaks = list(sides), {name: [] for name in sides}, dict.fromkeys(sides, 0)
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            if cuda:
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
            times[name].append(seconds(sides[name], cuda))
            if cuda:
                peaks[name] = max(peaks[name], torch.cuda.max_memory_allocated() - before)
            print(f"round {number + 1} of {rounds}: {name} {times[name][-1]:.3f} s", file=sys.stderr)
        keep(times)
    return times, peaks


def paired_ratios(times: Sequence[float], to: Sequence[float]) -> dict[str, float]:
    """Summarise the ratios of two sides' times, round by round."""
    return spread([mine / other for mine, other in zip(times, to, strict=True)])


def told(checks: Sequence[dict[str, Any]], value: Any) -> int:
    """Print checks (``name``, ``ok``, ``why``) as a table, or ``value`` as JSON unless None; return the status."""
    if value is not None:
        print(json.dumps(value, indent=1))
    else:
        for check in checks:
            print(f"{check['name']:<26} {'ok' if check['ok'] else 'FAILED':<7} {check['why']}")
    return 0 if all(check["ok"] for check in checks) else 1
