"""Learned gates in every precision that fairseq-train has, in short trainings:  precision.py [--updates 120].

Joint DSP and L0, half, full and mixed precision, and on two GPUs where there are two, all side by side (on the CPU full
precision alone). precision.json in --out says of each how many updates it made, how many were skipped or repeated since
half precision overflowed, how many its gates made (they must be as many), and its validation loss; or what it says if
it fails, as --bf16 does. Models and logs go to --work. Started again, it goes on. Status 1: one failed that should not.
"""

import argparse
import re
import shlex
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

#: name -> pruning method
METHODS = {"DSP": "joint-dsp", "L0 with target": "l0"}
HEADS = 24
#: name of the method and flags of precision
RUNS = [
    *(("DSP", flags) for flags in ("--fp16", "--memory-efficient-fp16", "", "--amp")),
    ("L0 with target", "--fp16"),
    ("DSP", "--bf16"),
]
#: fairseq takes --bf16 for a TPU
FAILS = ("DSP", "--bf16")
#: the same where there are two GPUs
ON_TWO = [("DSP", f"--fp16 --distributed-world-size 2 --ddp-backend {backend}") for backend in ("c10d", "legacy_ddp")]


def trainings(args: argparse.Namespace, cards: list[str]) -> dict[tuple[str, str], Any]:
    """Return the training of each run."""
    from fairseq_headprune.cli.compare_pruners import RECIPE
    from fairseq_headprune.jobs.methods import method_flags
    from fairseq_headprune.jobs.training import TrainingJob
    from fairseq_headprune.studies.pruners.trainings import Translating

    task, found = Translating(), {}
    shared = [*task.flags, *shlex.split(RECIPE), "--arch", "transformer_gated_iwslt_de_en"]
    shared += ["--max-update", str(args.updates), *([] if cards else ["--cpu"]), *args.train_flags]
    # torch has no half precision of fairseq's for the CPU.
    on_one = RUNS if cards else [run for run in RUNS if run == FAILS or not run[1]]
    for method, flags in [*on_one, *(ON_TWO if len(cards) > 1 else [])]:
        learned = method_flags(METHODS[method], HEADS, task.criterion, task.preset)
        name = re.sub("[^a-z0-9]+", "-", f"{method} {flags}".lower()).strip("-")
        words = [*shared, *learned, *shlex.split(flags)]
        data = str(args.prepared / "data-bin")
        found[method, flags] = TrainingJob(name, data, words, seed=1, resumable=False)
    return found


def train(jobs: dict[tuple[str, str], Any], args: argparse.Namespace, cards: list[str]) -> None:
    """Train what is not trained."""
    from fairseq_headprune.jobs.processes import leashed
    from fairseq_headprune.jobs.scheduler import Command, run_commands

    commands = []
    for run, job in jobs.items():
        if not best_of(job, args).exists():
            settings = {"CUDA_VISIBLE_DEVICES": ",".join(cards)} if run in ON_TWO else {}
            log = args.work / f"{job.name}.log"
            commands.append(Command(job.name, leashed(job.words()), log, cwd=args.work, settings=settings))
    try:
        for name in run_commands(commands, len(commands) if cards else 1):
            print(f"{name} is done", file=sys.stderr)
    except RuntimeError as error:  # what a run says is in its row
        print(error, file=sys.stderr)


def best_of(job: Any, args: argparse.Namespace) -> Path:
    """Return the path of a training's best checkpoint."""
    return args.work / job.place / "checkpoint_best.pt"


def row(run: tuple[str, str], job: Any, args: argparse.Namespace) -> dict[str, Any]:
    """Return what a run's checkpoint and log tell."""
    from fairseq_headprune.checkpoints import read_state
    from fairseq_headprune.gates.saved import saved_gates
    from fairseq_headprune.jobs.processes import last_line
    from fairseq_headprune.jobs.train import best

    found, log = {"run": " ".join(run).strip(), "command": job.shown({})}, args.work / f"{job.name}.log"
    if not best_of(job, args).exists():
        return {**found, "error": last_line(log)}
    gates = saved_gates(read_state(best_of(job, args)))
    return {
        **found,
        **best(best_of(job, args), "valid_loss"),
        # What fairseq says of each, in fp16 ("gradient overflow detected, ignoring gradient") and with --amp.
        "skipped_or_repeated": log.read_text(errors="replace").count("overflow detected"),
        "gate_updates": gates.updates if gates else None,
    }


def main() -> int:
    """Train, then report."""
    from fairseq_headprune.files import write_json
    from fairseq_headprune.jobs.processes import gpus
    from fairseq_headprune.provenance import script_environment
    from fairseq_headprune.studies.pruners.trainings import Translating

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--updates", type=int, default=120, help="of every training (120)")
    add("--train-flags", type=shlex.split, default=[], help="more flags of fairseq-train, as one word")
    add("--prepared", type=Path, default=HERE / "out", help="the folder that prepare.sh wrote (out/)")
    add("--work", type=Path, default=HERE / "out" / "precision", help="models and logs (out/precision)")
    add("--out", type=Path, default=HERE / "results" / "learned", help="results (results/learned)")
    args = parser.parse_args()
    args.prepared, args.work = args.prepared.resolve(), args.work.resolve()
    for folder in (args.work, args.out):
        folder.mkdir(parents=True, exist_ok=True)
    hashes, cards = Translating().hashes(args.prepared / "data-bin", ("train", "valid", "test")), gpus()
    jobs = trainings(args, cards)
    train(jobs, args, cards)
    rows = {run: row(run, job, args) for run, job in jobs.items()}
    value = {"heads_kept": HEADS, "gpus": len(cards), "runs": list(rows.values()), "data_files": hashes}
    write_json(args.out / "precision.json", {**value, "environment": script_environment()})
    return int(any("error" in found for run, found in rows.items() if run != FAILS))


if __name__ == "__main__":
    sys.exit(main())
