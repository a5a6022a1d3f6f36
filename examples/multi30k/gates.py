"""How learned gates settle (Li et al. 2021, Figures 2, 7 and 8):  gates.py [--counts 4 6 54] [--lambdas 0.001 …].

Joint DSP with a falling and with a constant temperature for some numbers of heads, and L0 at some fixed lambdas: each
is trained from scratch and validated under its hard mask after every epoch, several at the same time on the visible
GPUs. headprune dynamics then reads the logs: dynamics-K.json, dynamics-constant-K.json and lambda.json, with figures,
go to --out, models to --work. Started again, it goes on; --until N reports trainings that were stopped as they were at
update N, and trains nothing.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))


def trainings(args: argparse.Namespace) -> dict[str, str]:
    """Return name -> what is added to the flags of train.sh."""
    from fairseq_headprune.jobs.methods import lambda_flags, method_flags
    from fairseq_headprune.jobs.processes import gpus
    from fairseq_headprune.studies.pruners.trainings import Translating

    task, found = Translating(), {}
    for count in args.counts:
        found[f"dynamics-{count}"] = method_flags("joint-dsp", count, task.criterion, task.preset)
        found[f"dynamics-constant-{count}"] = method_flags("joint-dsp-constant", count, task.criterion, task.preset)
    for penalty in args.lambdas:
        found[f"lambda-{penalty:g}"] = lambda_flags(penalty, task.criterion)
    shared = ["--max-update", str(args.updates), "--no-last-checkpoints", "--no-save-optimizer-state"]
    shared += [*(["--cuda-graphs", "auto"] if gpus() else []), *args.train_flags]
    return {name: shlex.join([*task.flags, *flags, *shared]) for name, flags in found.items()}


def train(args: argparse.Namespace, flags: dict[str, str]) -> None:
    """Train what is not trained."""
    from fairseq_headprune.jobs.processes import leashed
    from fairseq_headprune.jobs.scheduler import Command, run_commands

    commands = []
    for name, words in flags.items():
        place = args.work / name
        if (place / "done").exists():
            continue
        settings = {"PYTHON": sys.executable, "PREPARED": str(args.prepared), "OUT": str(place)}
        command = leashed(["bash", str(HERE / "train.sh"), *shlex.split(words)])
        commands.append(Command(name, command, args.work / f"{name}.log", settings=settings))
    for name in run_commands(commands, args.jobs, lambda name: print(f"{name} starts", file=sys.stderr)):
        (args.work / name / "done").touch()


def report(args: argparse.Namespace, name: str, runs: list[str], flags: dict[str, str]) -> None:
    """Write what headprune dynamics says of some runs, with commands and environment, and its first figure."""
    from fairseq_headprune.files import write_json
    from fairseq_headprune.jobs.processes import with_package
    from fairseq_headprune.provenance import script_environment
    from fairseq_headprune.studies.pruners.trainings import Translating

    folder = args.work / f"figures-{name}"
    words = [sys.executable, "-m", "fairseq_headprune", "dynamics", *runs, "-o", folder.name, "--json"]
    words += ["--until", str(args.until)] if args.until else []
    settings = with_package(os.environ)
    found = subprocess.run(words, env=settings, check=True, stdout=subprocess.PIPE, cwd=args.work).stdout
    value: dict[str, Any] = json.loads(found)
    figure = "dynamics" if len(runs) == 1 else "heads-against-lambda"
    (folder / f"{figure}.png").replace(args.out / f"{name}.png")
    value["figures"] = [f"{name}.png"]
    value["data_files"] = Translating().hashes(args.prepared / "data-bin", ("train", "valid", "test"))
    commands = {run: f"bash train.sh {flags[run]}" for run in runs}
    where = "environment_of_the_report" if args.until else "environment"
    write_json(args.out / f"{name}.json", {"commands": commands, **value, where: script_environment()})


def main() -> None:
    """Train, then report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--counts", type=int, nargs="*", default=[4, 6, 54], help="heads kept by joint DSP (4 6 54)")
    lambdas = [0.0003, 0.001, 0.002, 0.003, 0.01, 0.03]
    add("--lambdas", type=float, nargs="*", default=lambdas, help=f"of L0 ({' '.join(map(str, lambdas))})")
    add("--updates", type=int, default=3000, help="of every training (3000)")
    add("--until", type=int, help="report what the logs say until this update (default: train to the end, then report)")
    add("--train-flags", type=shlex.split, default=[], help="more flags of fairseq-train, as one word")
    add("--jobs", type=int, default=12, help="trainings at the same time (12)")
    add("--prepared", type=Path, default=HERE / "out", help="the folder that prepare.sh wrote (out/)")
    add("--work", type=Path, default=HERE / "out" / "gates", help="models and logs (out/gates)")
    add("--out", type=Path, default=HERE / "results" / "learned", help="results (results/learned)")
    args = parser.parse_args()
    args.prepared, args.work, args.out = args.prepared.resolve(), args.work.resolve(), args.out.resolve()
    args.out.mkdir(parents=True, exist_ok=True)
    flags = trainings(args)
    if not args.until:
        train(args, flags)
    for name in flags:
        if name.startswith("dynamics"):
            report(args, name, [name], flags)
    penalties = [name for name in flags if name.startswith("lambda")]
    if len(penalties) > 1:
        report(args, "lambda", penalties, flags)


if __name__ == "__main__":
    main()
