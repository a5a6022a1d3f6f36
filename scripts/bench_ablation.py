"""Time a one-head ablation grid: many masks per batch against one mask at a time, in one run and one process.

Sides: ``many`` translates as ``headprune ablate`` does (without BLEU and bootstrap); ``loop`` sets one mask after the
other and calls fairseq's own generator, at the fastest of several batch sizes. Both translate the same sentences with
the same settings and decode them to text. ``half_masks`` and ``half_sentences`` are ``many`` with half of the masks or
sentences, to check that a translation does not cost more when there are more. The floor is the time of the arithmetic
in ``many`` at the speed of one large matrix product. On CUDA the result also says which operations of ``many`` the
device spends its time on.

Besides the share of identical translations of both sides there is a control, on some of the masks: the loop at its best
batch size against itself at half that size. In half precision, products of different shapes round differently, so the
loop does not fully agree with itself either. Each mask of the loop takes about the same time, so that ``--loop-masks``
can time some of them. (With ``--max-len-a`` the maximum length also depends on the batch.)
"""

import argparse
import itertools
from collections.abc import Sequence
from typing import Any

import benchmarks
import script_flags
import shown
import torch
from gpu_profile import operations_on_gpu
from torch.utils.flop_counter import FlopCounterMode

from fairseq_headprune.evaluation.translate import Translator
from fairseq_headprune.parts import HEADS, Mask
from fairseq_headprune.pruning import one_removed
from fairseq_headprune.session import Session, parse_generation_args
from fairseq_headprune.studies.mask_study import Comparison

#: Size of the square matrices whose product measures the peak speed, by device.
_PEAK_SIZE = {"cpu": 2048, "cuda": 8192}


def main() -> None:
    """Run the benchmark and print its table."""
    args, flags = _arguments()
    torch.set_num_threads(args.threads)
    session = Session(parse_generation_args("ablate", flags, lambda parser: None, str(__doc__)))
    split, cuda = session.cfg.dataset.gen_subset, session.device.type == "cuda"
    masks = grid(session, args.masks)
    indices = range(args.sentences) if args.sentences else None
    loops = {size: translator_of(session, split, indices, size) for size in args.batch_sizes}
    tried = {size: _best_of_two(session, loop, masks[:1], cuda) for size, loop in loops.items()}
    best = min(tried, key=tried.__getitem__)
    many = translator_of(session, split, indices, None)
    found: list[list[str]] = []
    first = benchmarks.seconds(lambda: _replace(found, in_packs(many, masks, args.masks_at_once)), cuda)
    looped = _spread(len(masks), args.loop_masks or len(masks))
    expected, measured = _measure(session, many, loops[best], masks, looped, args)
    measured["seconds_of_first_run"] = first
    about = dict(
        device=session.device.type,
        precision="fp16" if session.cfg.common.fp16 else "fp32",
        checkpoint=session.checkpoint["sha256"],
        data=session.data(split),
        beam=session.cfg.generation.beam,
        masks=len(masks),
        sentences=len(many.references),
        loop_masks=len(looped),
        loop_batch_sizes={str(size): seconds for size, seconds in tried.items()},
    )
    # What is measured is written at once: comparing takes minutes.
    benchmarks.write_document(args, "ablation", **about, **measured)
    chosen = [masks[number] for number in looped]
    of_loop = [found[number] for number in looped]
    compared = {
        **agreement(of_loop, expected),
        **_control(session, split, indices, chosen, of_loop, expected, best, args.control_masks),
        **_bleu_difference(many, of_loop, expected),
    }
    with FlopCounterMode(display=False) as counter:
        in_packs(many, masks, args.masks_at_once)
    operations = counter.get_total_flops()
    peak = _matmul_peak(session.device, torch.float16 if session.cfg.common.fp16 else torch.float32)
    floor = {"operations": operations, "peak_operations_per_second": peak, "floor_seconds": operations / peak}
    profile = {"gpu": operations_on_gpu(lambda: in_packs(many, masks, args.masks_at_once))} if cuda else {}
    result = benchmarks.write_document(args, "ablation", **about, **measured, **compared, **floor, **profile)
    shown.tell(shown.ABLATION, result)


def _measure(
    session: Session,
    many: Translator,
    loop: Translator,
    masks: Sequence[Mask],
    looped: Sequence[int],
    args: argparse.Namespace,
) -> tuple[list[list[str]], dict[str, Any]]:
    """Time both sides, and ``many`` on half of the work; return the loop's translations and the measurements.

    Args:
        looped: the masks that the loop goes through; its time is scaled to all.
    """
    count, expected = len(many.references), []
    chosen = [masks[number] for number in looped]
    sides = {
        "many": lambda: in_packs(many, masks, args.masks_at_once),
        # It takes minutes, so the translations made while timing it are also those that are compared.
        "loop": lambda: _replace(expected, one_by_one(session, loop, chosen)),
    }
    half = translator_of(session, session.cfg.dataset.gen_subset, range(count // 2), None)
    halves = {"half_masks": (masks[: len(masks) // 2], count, many), "half_sentences": (masks, count // 2, half)}
    for name, (some, _, translator) in halves.items():
        sides[name] = lambda some=some, translator=translator: in_packs(translator, some, args.masks_at_once)
    times, peaks = benchmarks.interleave(sides, args.rounds, session.device.type == "cuda")
    times["loop"] = [seconds * len(masks) / len(chosen) for seconds in times["loop"]]
    return expected, {
        "seconds": {name: benchmarks.spread(values) for name, values in times.items()},
        "speedup": benchmarks.paired_ratios(times["loop"], to=times["many"]),
        "cost_to_half": {
            name: _cost_ratio(times["many"], len(masks) * count, times[name], len(some) * sentences)
            for name, (some, sentences, _) in halves.items()
        },
        "peak_bytes": peaks,
    }


def new_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser for a script's own flags, which stand among those of fairseq-generate."""
    usage = "%(prog)s DATA --path CHECKPOINT [flags of fairseq-generate] [flags below]"
    return script_flags.new_parser(description, usage)


def _arguments() -> tuple[argparse.Namespace, list[str]]:
    """Return this script's flags, and the remaining ones, which are fairseq-generate's."""
    parser = new_parser(__doc__)
    add = parser.add_argument
    add("--masks", type=int, default=0, help="only that many masks, spread over the grid; 0: all")
    add("--sentences", type=int, default=0, help="only the first sentences of the split; 0: all")
    add("--masks-at-once", type=int, default=0, help="masks in a pack; 0: all of them")
    add("--loop-masks", type=int, default=0, help="time the loop on that many masks, scaled to all; 0: on all")
    add("--control-masks", type=int, default=8, help="masks on which the loop is compared with itself; 0: none")
    add("--batch-sizes", type=int, nargs="+", default=[128, 500, 1000], help="sizes tried for the loop, in sentences")
    add("--threads", type=int, default=2, help="CPU threads of torch")
    script_flags.add_run_flags(parser, rounds=3)
    args, flags = parser.parse_known_args()
    if args.sentences == 1 or args.masks == 1:
        raise ValueError("--masks and --sentences must be at least 2, since half of them is timed, too")
    others = {"masks": 0, "sentences": 0, "masks_at_once": 0, "control_masks": 0, "loop_masks": 0}
    script_flags.check(args, "rounds", "threads", **others)
    return args, flags


def _cost_ratio(times: Sequence[float], work: int, half_times: Sequence[float], half_work: int) -> dict[str, float]:
    """Return the cost per translation relative to that with half the work; 1: cost is proportional to work."""
    ratios = [mine * half_work / (other * work) for mine, other in zip(times, half_times, strict=True)]
    return benchmarks.spread(ratios)


def grid(session: Session, wanted: int = 0) -> list[Mask]:
    """Return the model's mask and those without one more head each, or so many of these, spread over all."""
    start = session.gates.mask()
    masks = [start, *one_removed(start, HEADS).values()]
    return [masks[number] for number in _spread(len(masks), wanted or len(masks))]


def translator_of(session: Session, split: str, indices: Any, batch_size: int | None) -> Translator:
    """Return a translator of a split, or of some of its sentences, in batches of so many sentences (None: 128)."""
    session.cfg.dataset.batch_size, session.cfg.dataset.max_tokens = batch_size or 128, None
    return Translator(session, split, indices)


def in_packs(translator: Translator, masks: Sequence[Mask], size: int) -> list[list[str]]:
    """Translate under each mask, ``size`` of them in a batch (0: all); (masks, sentences)."""
    size = size or len(masks)
    packs = (translator.answers_of(masks[i : i + size]) for i in range(0, len(masks), size))
    return list(itertools.chain.from_iterable(packs))


def one_by_one(session: Session, translator: Translator, masks: Sequence[Mask]) -> list[list[str]]:
    """Translate under one mask after the other, with fairseq's generator; (masks, sentences)."""
    found = []
    for mask in masks:
        with session.gates.masked(mask):
            found.append(translator.answers())
    return found


def _replace(kept: list[list[str]], found: list[list[str]]) -> None:
    kept[:] = found


def _best_of_two(session: Session, translator: Translator, masks: Sequence[Mask], cuda: bool) -> float:
    return min(benchmarks.seconds(lambda: one_by_one(session, translator, masks), cuda) for _ in range(2))


def _spread(count: int, wanted: int) -> list[int]:
    """Return ``wanted`` evenly spaced numbers below ``count``, or all of them if there are fewer."""
    return list(range(0, count, max(1, count // max(1, wanted))))[:wanted]


def agreement(found: list[list[str]], expected: list[list[str]], prefix: str = "") -> dict[str, Any]:
    """Compare translations (masks, sentences)."""
    pairs = zip(itertools.chain.from_iterable(found), itertools.chain.from_iterable(expected), strict=True)
    same = [mine == other for mine, other in pairs]
    return {
        f"{prefix}identical_hypotheses": sum(same) / len(same),
        f"{prefix}differing_hypotheses": len(same) - sum(same),
    }


def _control(
    session: Session,
    split: str,
    indices: Any,
    masks: Sequence[Mask],
    found: list[list[str]],
    expected: list[list[str]],
    size: int,
    wanted: int,
) -> dict[str, Any]:
    """Compare the loop with itself at half its batch size, and then ``many`` with the loop, on these masks."""
    chosen = _spread(len(masks), wanted)
    if not chosen:
        return {"control_masks": 0}
    # If one batch holds all sentences, halve the number of sentences instead.
    half = max(1, min(size, len(expected[0])) // 2)
    again = one_by_one(session, translator_of(session, split, indices, half), [masks[number] for number in chosen])
    loop = [expected[number] for number in chosen]
    return {
        "control_masks": len(chosen),
        "control_batch_sizes": [size, half],
        **agreement(again, loop, "control_"),
        **agreement([found[number] for number in chosen], loop, "control_many_"),
    }


def _bleu_difference(translator: Translator, found: list[list[str]], expected: list[list[str]]) -> dict[str, Any]:
    """Return the largest difference in BLEU between two lists of translations for the same masks."""
    metric = translator.metric(Comparison())
    scores = (
        [float(metric.score(metric.extract(system).sum(axis=0))) for system in side] for side in (found, expected)
    )
    differences = [abs(mine - other) for mine, other in zip(*scores, strict=True)]
    return {"largest_bleu_difference": max(differences), "signature": metric.signature}


def _matmul_peak(device: torch.device, precision: torch.dtype) -> float:
    """Return operations per second of a large matrix product, the best of several runs."""
    size = _PEAK_SIZE[device.type]
    factor = torch.randn(size, size, device=device, dtype=precision)
    times = [benchmarks.seconds(lambda: factor @ factor, device.type == "cuda") for _ in range(10)]
    return 2 * size**3 / min(times)


if __name__ == "__main__":
    script_flags.run(main)
