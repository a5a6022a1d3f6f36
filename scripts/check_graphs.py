"""Check that --cuda-graphs gives eager training's losses and gradients.  check_graphs.py [--cases …] [--json]

Each batch of random sentences (dropout off) is computed by fairseq, and three times with graphs: eagerly in padded
form, recorded, replayed. The relative differences of the loss, the gradients and the gates' gradient are compared with
limits. Both sides are also compared with higher precision (float32 with float64, half precision with float32): the
error of graphs' gradients must be no larger than eager training's own, but for a margin for chance. The activation is
GELU: a ReLU near 0 takes another side in another order of operations, which changes gradients by 1e-4 even in float32.
The last case has dropout: recorded passes must draw the same random numbers as passes that are not recorded.
With --cpu, passes are rerun instead of recorded. Exit status 1: a difference exceeds its limit.
"""

import argparse
from contextlib import nullcontext
from typing import Any, Optional

import benchmarks
import recording
import script_flags
import torch
from fairseq.trainer import Trainer
from torch import Tensor

from fairseq_headprune.modules.attach import find_gates

#: largest acceptable relative differences: of the loss, of the gradients
LIMITS = {"fp32": (1e-5, 1e-5), "fp16": (1e-3, 1e-3), "bf16": (1e-3, 2e-2)}
#: largest acceptable ratio of graphs' error to eager training's own
MARGIN = 1.25
_GATES = {"l0": ("l0", ""), "dsp": ("dsp", "6"), "ste": ("ste", "6")}
#: a precision, and what else is not as in a plain training
_KNOWN = [*LIMITS, *(f"{precision}-{what}" for precision in LIMITS for what in ("mask", *_GATES, "dropout"))]
CASES = ["fp32", "fp16", "bf16", "fp16-mask", "fp16-l0", "fp16-dsp", "fp16-ste", "fp32-dsp", "fp16-dropout"]
_NO_DROPOUT = ["--dropout", "0", "--attention-dropout", "0", "--activation-dropout", "0", "--activation-fn", "gelu"]


def main() -> int:
    """Run the cases and print a table; return the exit status."""
    args = _arguments()
    task = benchmarks.make_task(args, benchmarks.fairseq_settings(args, f"transformer_{args.arch}"), args.batches)
    batches = benchmarks.draw_batches(task, args.batches, (1024, 1024), max_tokens=args.max_tokens)
    with recording.on_cpu() if args.cpu else nullcontext():
        checks = [_check(args, case, task, batches) for case in args.cases]
    return benchmarks.told(checks, checks if args.json else None)


def _arguments() -> argparse.Namespace:
    parser = script_flags.new_parser(__doc__)
    add = parser.add_argument
    add("--cases", type=script_flags.some_of(_KNOWN), default=",".join(CASES), help="some of these, comma-separated")
    add("--arch", default="iwslt_de_en", help="transformer_gated_ARCH")
    add("--batches", type=int, default=4, help="batches of each case")
    add("--max-tokens", type=int, default=4096, help="tokens a batch")
    add("--cpu", action="store_true", help="run on the CPU, without graphs")
    add("--json", action="store_true", help="print one JSON document")
    args = parser.parse_args()
    args.synthetic, args.data = True, None
    return args


def _check(args: argparse.Namespace, case: str, task: Any, batches: list[dict]) -> dict[str, Any]:
    precision, _, what = case.partition("-")
    sides = [_trainer(args, precision, what, task, graphs) for graphs in (False, True)]
    if what == "dropout":
        return _dropout(case, sides[1], _trainer(args, precision, what, task, True), batches)
    better = _trainer(args, "fp32", what, task, False)
    if precision == "fp32":
        better.model.double()
    worst = {"loss": 0.0, "gradients": 0.0, "gates": 0.0, "eager's own": 0.0, "graphs' own": 0.0}

    def note(name: str, value: float) -> None:
        worst[name] = max(worst[name], value)

    right = [gradients(better, batch)[1] for batch in batches]
    for _ in range(3):
        for batch, exact in zip(batches, right, strict=True):
            (loss, expected, gates), (mine, found, my_gates) = (gradients(side, batch) for side in sides)
            note("loss", abs(mine - loss) / loss)
            note("gradients", _relative(found, expected))
            if gates is not None and my_gates is not None:
                note("gates", _relative(my_gates, gates))
            note("eager's own", _relative(expected, exact))
            note("graphs' own", _relative(found, exact))
    limits = LIMITS[precision]
    ok = worst["loss"] <= limits[0] and max(worst["gradients"], worst["gates"]) <= limits[1]
    ok = ok and worst["graphs' own"] <= MARGIN * worst["eager's own"]
    recorded = len(sides[1].task._fast.passes.recordings)
    shown = ", ".join(f"{name} {value:.1e}" for name, value in worst.items())
    return {
        "name": f"graphs {case}",
        "ok": ok and recorded > 0,
        "why": f"{shown} (limits {limits[0]:g}, {limits[1]:g}, {MARGIN:g} x eager's own), {recorded} shapes recorded",
        "differences": worst,
    }


def _dropout(case: str, recorded: Trainer, eager: Trainer, batches: list[dict]) -> dict[str, Any]:
    """Compare recorded passes with the same padded passes run eagerly."""
    worst, drawn = 0.0, set()
    for _ in range(3):
        for batch in batches:
            loss, found, _ = gradients(recorded, batch)
            eager.task._fast.begin(eager.model, eager.criterion, eager.optimizer)
            eager.task._fast.passes._recorder = None
            worst = max(worst, _relative(found, gradients(eager, batch)[1]))
    for update in range(3):
        recorded.set_num_updates(update)
        drawn.add(gradients(recorded, batches[0])[0])
    ok = worst <= 1e-6 and len(drawn) == 3
    why = f"gradients {worst:.1e} from those of unrecorded passes (limit 1e-06), {len(drawn)} losses in 3 updates"
    return {"name": f"graphs {case}", "ok": ok, "why": why, "differences": {"gradients": worst}}


def _trainer(args: argparse.Namespace, precision: str, what: str, task: Any, graphs: bool) -> Trainer:
    flags = ["--task", "translation_headprune", "--cuda-graphs", "on" if graphs else "off"]
    flags += ["--fp16", "--fp16-init-scale", "16"] if precision == "fp16" else []
    flags += benchmarks.learned_flags(*_GATES[what], "label_smoothed_cross_entropy") if what in _GATES else []
    cfg = benchmarks.fairseq_settings(
        args, f"transformer_gated_{args.arch}", *flags, *([] if what == "dropout" else _NO_DROPOUT)
    )
    cfg.common.bf16 = precision == "bf16"  # set here, since as a flag it would mean a TPU
    torch.manual_seed(benchmarks.SEED)
    trainer = benchmarks.own_trainer(cfg, task)
    if what == "mask":
        benchmarks.prune_quarter(find_gates(trainer.model))
    return trainer


def gradients(trainer: Trainer, batch: dict) -> tuple[float, Tensor, Optional[Tensor]]:
    """Return the loss of a batch, the gradients of all weights, and those of learned gates."""
    trainer._set_seed()
    trainer.model.train()
    trainer.criterion.train()
    trainer.zero_grad()
    sample, _ = trainer._prepare_sample(batch)
    loss = trainer.task.train_step(
        sample, trainer.model, trainer.criterion, trainer.optimizer, trainer.get_num_updates()
    )[0]
    learning = trainer.task._learning
    found = [torch.zeros_like(p) if p.grad is None else p.grad.detach() for p in trainer.model.parameters()]
    scale = getattr(getattr(trainer.optimizer, "scaler", None), "loss_scale", 1.0)
    weights = torch.cat([gradient.reshape(-1).double() for gradient in found]) / scale
    return (
        float(loss.detach()),
        weights,
        None if learning is None else learning.learned.take_gradient().double().clone(),
    )


def _relative(found: Tensor, expected: Tensor) -> float:
    if not torch.isfinite(found).all():
        return float("inf")
    return float((found - expected).norm() / expected.norm().clamp(min=1e-30))


if __name__ == "__main__":
    script_flags.run(main)
