"""The stock and the gated model on Multi30k de-en, stage by stage:  evidence.py train|evaluate|prune|bench.

``train``     stock and gated models, three seeds each, side by side on all visible GPUs (train.sh)
``evaluate``  beam-5 translations of the three test sets, BLEU against the raw references -> train.json
``prune``     importance (Michel et al. 2019), pruning curves and significance on the gated model of seed 1
``bench``     training and scoring speed on one GPU

What is done is not done again. Each stage stops what still runs after --limit seconds, says what is missing and
leaves with status 1. Checkpoints, logs, translations and study folders go to --work, results (small JSON files and
figures) to --out.
"""

import argparse
import json
import os
import shlex
import shutil
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

STOCK, GATED = "transformer_iwslt_de_en", "transformer_gated_iwslt_de_en"
SEEDS = (1, 2, 3)
#: name of a test set -> its name in data-bin
SETS = {"test2016": "test", "test2017": "test1", "mscoco2017": "test2"}
SEARCH = ["--beam", "5", "--post-process", "sentencepiece"]
PAPER = ["--preset", "michel-2019"]
#: pruning study -> its flags
STUDIES = {
    "prune-all": ["--components", "all"],
    "prune-each": ["--components", "each"],
    "prune-all-reestimate": ["--components", "all", "--reestimate"],
    "prune-each-reestimate": ["--components", "each", "--reestimate"],
    "prune-all-random": ["--components", "all", "--order", "random"],
}


@dataclass
class Job:
    """A command, run in a process of its own: done when ``product`` exists, which is made only by success.

    With ``keep_stdout`` the product is what the command prints; else the command's wall time is written there.
    """

    name: str
    command: list[str]
    product: Path
    keep_stdout: bool = False
    settings: dict[str, str] = field(default_factory=dict)


def run_jobs(jobs: list[Job], args: argparse.Namespace, at_once: int) -> None:
    """Run the jobs that are not done, spread over the GPUs; stop at the stage's limit.

    Raises:
        SystemExit: a job failed (the end of its log is shown) or the time is up.
    """
    from fairseq_headprune.jobs.processes import leashed
    from fairseq_headprune.jobs.scheduler import Command, run_commands

    missing = {job.name: job for job in jobs if not job.product.exists()}
    # In the working folder, so that results name models and translations without a machine's paths.
    commands = [
        Command(
            name,
            leashed(job.command),
            args.work / "logs" / f"{name}.log",
            cwd=args.work,
            settings={"PYTHON": sys.executable, **job.settings},
            output=_partial(job, args) if job.keep_stdout else None,
        )
        for name, job in missing.items()
    ]
    began: dict[str, float] = {}

    def starts(name: str) -> None:
        began[name] = time.monotonic()
        print(f"{name} starts", file=sys.stderr)

    try:
        for name in run_commands(commands, at_once, starts, args.limit):
            _finish(missing[name], args, time.monotonic() - began[name])
    except (RuntimeError, TimeoutError) as error:
        raise SystemExit(f"{error}; run the stage again") from error


def _partial(job: Job, args: argparse.Namespace) -> Path:
    return args.work / "logs" / f"{job.name}.part"


def _finish(job: Job, args: argparse.Namespace, seconds: float) -> None:
    from fairseq_headprune.files import write_json

    print(f"{job.name} done in {seconds:.0f} s", file=sys.stderr)
    job.product.parent.mkdir(parents=True, exist_ok=True)
    if job.keep_stdout:
        _partial(job, args).replace(job.product)
    else:
        chosen = [f"{name}={value}" for name, value in job.settings.items() if name in ("ARCH", "SEED")]
        command = " ".join([*chosen, shlex.join(job.command)]).replace(f"{ROOT}{os.sep}", "")
        write_json(job.product, {"command": command, "wall_seconds": round(seconds, 1)})


def runs(args: argparse.Namespace) -> list[tuple[str, int, Path]]:
    """List architecture, seed and checkpoint folder of every model, so that GPUs get some of both architectures."""
    return [(arch, seed, args.work / f"{arch}-{seed}") for arch in (STOCK, GATED) for seed in args.seeds]


def train(args: argparse.Namespace) -> None:
    """Train every model; all start together."""
    flags = ["--no-last-checkpoints", "--no-save-optimizer-state", *args.train_flags]
    jobs = [
        Job(
            f"train-{folder.name}",
            ["bash", str(HERE / "train.sh"), *flags],
            folder / "done.json",
            settings={"ARCH": arch, "SEED": str(seed), "PREPARED": str(args.prepared), "OUT": str(folder)},
        )
        for arch, seed, folder in runs(args)
    ]
    run_jobs(jobs, args, at_once=len(jobs))


def evaluate(args: argparse.Namespace) -> None:
    """Translate the test sets with every model and write train.json and the comparison of the models."""
    from fairseq_headprune.evaluation.hypotheses import read_systems
    from fairseq_headprune.files import read_json, write_json, write_text

    # fairseq's default of 8 drops the sentences that are left over when the set's size is no multiple of 8.
    search = [*SEARCH, "--required-batch-size-multiple", "1"]
    generate = [sys.executable, "-m", "fairseq_cli.generate", *_model_flags(args), *search]
    jobs = [
        Job(
            f"generate-{folder.name}-{name}",
            [*generate, "--path", f"{folder.name}/checkpoint_best.pt", "--gen-subset", split],
            folder / f"{name}.out",
            keep_stdout=True,
        )
        for _, _, folder in runs(args)
        for name, split in SETS.items()
    ]
    run_jobs(jobs, args, at_once=6)
    table = []
    for arch, seed, folder in runs(args):
        scores = {}
        for name in SETS:
            lines = read_systems(folder / f"{name}.out").lines
            write_text(folder / f"{name}.txt", "".join(line + "\n" for line in lines))
            scores[name] = _bleu(args, name, lines)
        table.append({"arch": arch, "seed": seed, **scores, **_best(folder), **read_json(folder / "done.json")})
    write_json(args.out / "train.json", {"search": search, **_machine(table), "runs": table})
    systems = [f"{folder.name}/test2016.txt" for _, _, folder in runs(args)]
    run_jobs([_comparison(args, "compare-models", systems)], args, at_once=1)


def _comparison(args: argparse.Namespace, name: str, systems: list[str]) -> Job:
    reference = os.path.relpath(args.prepared / "text" / "test2016.en", args.work)
    return Job(name, _headprune("compare", reference, *systems, "--json"), args.out / f"{name}.json", keep_stdout=True)


def _bleu(args: argparse.Namespace, name: str, lines: list[str]) -> dict[str, Any]:
    from sacrebleu.metrics import BLEU

    from fairseq_headprune.files import read_lines

    metric = BLEU()
    score = metric.corpus_score(lines, [read_lines(args.prepared / "text" / f"{name}.en")]).score
    return {"bleu": round(score, 2), "signature": str(metric.get_signature())}


def _best(folder: Path) -> dict[str, Any]:
    """What the best checkpoint says of itself."""
    from fairseq_headprune.checkpoints import read_state
    from fairseq_headprune.files import sha256

    path = folder / "checkpoint_best.pt"
    extra = read_state(path)["extra_state"]
    # An epoch's checkpoint points at the start of the next epoch.
    position = extra["train_iterator"]
    epoch = position["epoch"] - (position.get("iterations_in_epoch", 0) == 0)
    return {"best_epoch": epoch, "valid_loss": round(float(extra["val_loss"]), 4), "checkpoint_sha256": sha256(path)}


def _machine(table: list[dict]) -> dict[str, Any]:
    """What the wall times depend on."""
    from fairseq_headprune.jobs.processes import visible_gpus
    from fairseq_headprune.provenance import script_environment

    return {"trained_side_by_side": len(table), "gpus": len(visible_gpus()), "environment": script_environment()}


def _model_flags(args: argparse.Namespace) -> list[str]:
    user_dir = ["--user-dir", str(ROOT / "fairseq_headprune")]
    data = os.path.relpath(args.prepared / "data-bin", args.work)
    return [data, *user_dir, "--source-lang", "de", "--target-lang", "en"]


def _headprune(*words: str) -> list[str]:
    return [sys.executable, "-m", "fairseq_headprune", *words]


def prune(args: argparse.Namespace) -> None:
    """Score and prune the gated model of the first seed, and compare some steps of the joint curve."""
    model = [*_model_flags(args), "--path", f"{GATED}-{args.seeds[0]}/checkpoint_best.pt"]
    figure = ["--figure", "figures/scores"]
    (args.work / "figures").mkdir(parents=True, exist_ok=True)
    jobs = [
        Job("score", _headprune("score", *model, *PAPER, *figure, "--json"), args.out / "scores.json", keep_stdout=True)
    ]
    for name, flags in STUDIES.items():
        words = [*model, *SEARCH, *PAPER, "--gen-subset", "test", "--step", "10%", *flags, "-o", name, "--json"]
        jobs.append(Job(name, _headprune("prune", *words), args.out / f"{name}.json", keep_stdout=True))
    run_jobs(jobs, args, at_once=len(jobs))
    cells = ("unpruned", "all-01", "all-02", "all-03", "all-04", "all-05")
    run_jobs([_comparison(args, "compare-steps", [f"prune-all/hyps/{cell}.txt" for cell in cells])], args, at_once=1)
    for path in [*args.work.glob("figures/*"), *args.work.glob("prune-*/figures/pruning.*")]:
        study = "" if path.parents[1] == args.work else f"{path.parents[1].name}-"
        shutil.copy(path, args.out / f"{study}{path.name}")


def bench(args: argparse.Namespace) -> None:
    """Measure training and scoring speed, one after the other on an otherwise idle GPU."""
    data = ["--data", str(args.prepared / "data-bin"), *args.bench_flags]
    sides = "stock,gated,gated-mask,gated-ones"
    jobs = []
    for name, script, flags in (
        ("bench-score-gpu", "bench_score.py", []),
        ("bench-score-gpu-fp16", "bench_score.py", ["--fp16"]),
        ("bench-train-gpu", "bench_train.py", ["--variants", sides]),
    ):
        output = args.work / f"{name}.json"
        command = [sys.executable, str(ROOT / "scripts" / script), *data, *flags, "--output", str(output)]
        jobs.append(Job(name, command, args.work / f"{name}.done.json"))
    run_jobs(jobs, args, at_once=1)
    for job in jobs:
        shutil.copy(args.work / f"{job.name}.json", args.out)


def main() -> None:
    """Run one stage."""
    stages = {"train": train, "evaluate": evaluate, "prune": prune, "bench": bench}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("stage", choices=stages)
    add("--prepared", type=Path, default=HERE / "out", help="the folder that prepare.sh wrote (default: out/)")
    add("--work", type=Path, default=HERE / "out" / "evidence", help="all else (default: out/evidence)")
    add("--out", type=Path, default=HERE / "results", help="results (default: results/)")
    add("--limit", type=float, default=530, help="seconds a stage may take (default: 530)")
    add("--seeds", type=int, nargs="+", default=list(SEEDS), help="seeds of the trainings (default: 1 2 3)")
    add("--train-flags", type=shlex.split, default=[], help="more flags of fairseq-train, as one word")
    add("--bench-flags", type=shlex.split, default=[], help="more flags of every benchmark, as one word")
    args = parser.parse_args()
    args.prepared, args.work, args.out = (p.resolve() for p in (args.prepared, args.work, args.out))
    for folder in (args.work, args.out):
        folder.mkdir(parents=True, exist_ok=True)
    stages[args.stage](args)
    print(json.dumps({"stage": args.stage, "out": str(args.out)}))


if __name__ == "__main__":
    main()
