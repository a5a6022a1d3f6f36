"""Time importance scoring against a plain forward and backward pass over the same batches, in one run.

All sides run in evaluation mode; the loss is the summed negative log-likelihood. Sides: ``score``, as in ``headprune
score`` (the derivative of every sentence's loss with respect to every head's gate, weights frozen); ``plain``, forward
and backward with parameter gradients on the same model, gates off, without computing unused attention weights;
``stock``, the same on fairseq's unmodified transformer.
"""

import argparse
from collections.abc import Callable
from typing import Any

import benchmarks
import script_flags
import shown
import torch
from fairseq import utils

from fairseq_headprune.importance.gradient import GateDerivatives, gradient_importance
from fairseq_headprune.importance.losses import TokenLosses, sentence_losses
from fairseq_headprune.modules.attach import find_gates, without_attention_weights


def main() -> None:
    """Run the benchmark and print its table."""
    args = _arguments()
    torch.set_num_threads(args.threads)
    cuda = torch.cuda.is_available() and not args.cpu
    task = benchmarks.make_task(args, _settings(args, "_gated"), args.batches)
    gated, stock = (_model(args, task, infix, cuda) for infix in ("_gated", ""))
    batches = benchmarks.draw_batches(task, args.batches, gated.max_positions(), max_tokens=args.max_tokens)
    batches = [utils.move_to_cuda(batch) for batch in batches] if cuda else batches
    pad = task.target_dictionary.pad()
    derivatives = GateDerivatives(gated, TokenLosses(pad))
    sides = {
        "score": lambda: gradient_importance(derivatives, batches),
        "plain": _without_weights(gated, _plain(gated, batches, pad)),
        "stock": _plain(stock, batches, pad),
    }
    benchmarks.warm_up(sides, cuda, "the pass")
    times, peaks = benchmarks.interleave(sides, args.rounds, cuda)
    result = benchmarks.write_document(
        args,
        "score",
        arch=args.arch,
        device="cuda" if cuda else "cpu",
        precision="fp16" if args.fp16 else "fp32",
        batches=benchmarks.describe_batches(args, batches),
        seconds={name: benchmarks.spread(values) for name, values in times.items()},
        time_to_plain=benchmarks.paired_ratios(times["score"], to=times["plain"]),
        time_to_stock=benchmarks.paired_ratios(times["score"], to=times["stock"]),
        peak_bytes=peaks,
        gates=_gate_sizes(gated, batches),
    )
    shown.tell(shown.SCORE, result)


def _arguments() -> argparse.Namespace:
    parser = script_flags.new_parser(__doc__)
    benchmarks.add_model_flags(parser)
    parser.add_argument("--batches", type=int, default=20, help="batches of a pass")
    parser.add_argument("--fp16", action="store_true", help="half precision (CUDA)")
    args = parser.parse_args()
    script_flags.check(args, "batches", "rounds", "threads")
    if args.fp16 and (args.cpu or not torch.cuda.is_available()):
        raise ValueError("--fp16 needs CUDA")
    return args


def _settings(args: argparse.Namespace, infix: str) -> Any:
    return benchmarks.fairseq_settings(args, f"transformer{infix}_{args.arch}")


def _model(args: argparse.Namespace, task: Any, infix: str, cuda: bool) -> Any:
    torch.manual_seed(benchmarks.SEED)
    model = task.build_model(_settings(args, infix).model).eval()
    model = model.half() if args.fp16 else model
    return model.cuda() if cuda else model


def _plain(model: Any, batches: list[dict], pad: int) -> Callable[[], None]:
    def run() -> None:
        for sample in batches:
            model.zero_grad(set_to_none=True)
            logits = model(**sample["net_input"])[0]
            sentence_losses(logits, sample["target"], pad).sum().backward()
        # The last batch's gradients must not count as memory of the next side.
        model.zero_grad(set_to_none=True)

    return run


def _without_weights(model: Any, work: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        with without_attention_weights(model):
            work()

    return run


def _gate_sizes(model: Any, batches: list[dict]) -> dict[str, Any]:
    """Return the size of the tensors that scoring adds: one gate (batch, heads) per layer, and its derivative."""
    largest = max(batch["target"].size(0) for batch in batches)
    modules = [module for _, _, module in find_gates(model).items()]
    size = modules[0].out_proj.weight.element_size()
    return {
        "layers": len(modules),
        "shape": [largest, modules[0].num_heads],
        "bytes_per_layer": largest * modules[0].num_heads * size,
        "bytes": sum(largest * module.num_heads * size for module in modules),
    }


if __name__ == "__main__":
    script_flags.run(main)
