"""The stock and the gated model on Multi30k de-en, by stages:  evidence.py train|evaluate|prune|bench …

``train``     stock and gated models, three seeds each (train.sh); on a GPU the gated ones with CUDA graphs
``evaluate``  beam-5 translations of the three test sets, BLEU against the raw references; the models compared
``prune``     importance (Michel et al. 2019), pruning curves and significance on the gated model of seed 1
``bench``     training and scoring speed on one GPU, which nothing else should use

The first three, named together, run side by side on all visible GPUs: each job starts as soon as the training that it
needs has ended. What --work says is done is not done again. After --limit seconds what still runs is stopped: it
says what is missing, with status 1. Models, logs, translations and study folders go to --work, results to --out.
"""

import argparse
import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

STOCK, GATED = "transformer_iwslt_de_en", "transformer_gated_iwslt_de_en"
#: name of a test set -> its name in data-bin
SETS = {"test2016": "test", "test2017": "test1", "mscoco2017": "test2"}
SEARCH = ["--beam", "5", "--post-process", "sentencepiece"]
#: fairseq's default of 8 drops the sentences that are left over when the set's size is no multiple of 8
WHOLE = [*SEARCH, "--required-batch-size-multiple", "1"]
PAPER = ["--preset", "michel-2019"]
#: processes on a GPU at the same time; all trainings start together
AT_ONCE = 12
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
    ``after`` names the jobs that it waits for.
    """

    name: str
    command: list[str]
    product: Path
    keep_stdout: bool = False
    settings: dict[str, str] = field(default_factory=dict)
    after: tuple[str, ...] = ()


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
            after=job.after,
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


def train(args: argparse.Namespace) -> list[Job]:
    """Return the trainings."""
    from fairseq_headprune.jobs.processes import gpus

    flags = ["--no-last-checkpoints", "--no-save-optimizer-state", *args.train_flags]
    # The stock model is trained as fairseq trains it: another task would gate its heads.
    graphs = ["--task", "translation_headprune", "--cuda-graphs", "auto"] if gpus() else []
    return [
        Job(
            f"train-{folder.name}",
            ["bash", str(HERE / "train.sh"), *(graphs if arch == GATED else []), *flags],
            folder / "done.json",
            settings={"ARCH": arch, "SEED": str(seed), "PREPARED": str(args.prepared), "OUT": str(folder)},
        )
        for arch, seed, folder in runs(args)
    ]


def evaluate(args: argparse.Namespace) -> list[Job]:
    """Return the translations of the test sets with every model, and the comparison of the models."""
    user_dir = os.path.relpath(ROOT / "fairseq_headprune", args.work)
    generate = [sys.executable, "-m", "fairseq_cli.generate", *_data(args), "--user-dir", user_dir, *WHOLE]
    jobs = [
        Job(
            f"generate-{folder.name}-{name}",
            [*generate, "--path", f"{folder.name}/checkpoint_best.pt", "--gen-subset", split],
            folder / f"{name}.out",
            keep_stdout=True,
            after=(f"train-{folder.name}",),
        )
        for _, _, folder in runs(args)
        for name, split in SETS.items()
    ]
    systems = [f"{folder.name}/test2016.out" for _, _, folder in runs(args)]
    return [*jobs, _comparison(args, "compare-models", systems, [job.name for job in jobs])]


def keep_scores(args: argparse.Namespace) -> None:
    """Write train.json from the translations and the checkpoints; copy the comparison to the results."""
    from fairseq_headprune.evaluation.hypotheses import read_systems
    from fairseq_headprune.files import read_json, write_json

    table = []
    for arch, seed, folder in runs(args):
        scores = {name: _bleu(args, name, read_systems(folder / f"{name}.out").lines) for name in SETS}
        table.append({"arch": arch, "seed": seed, **scores, **_best(folder), **read_json(folder / "done.json")})
    write_json(args.out / "train.json", {"search": WHOLE, **_machine(args, table), "runs": table})
    shutil.copy(args.work / "compare-models.json", args.out)


def _comparison(args: argparse.Namespace, name: str, systems: list[str], after: list[str]) -> Job:
    reference = os.path.relpath(args.prepared / "text" / "test2016.en", args.work)
    return _headprune(args, name, ["compare", reference, *systems], after)


def _headprune(args: argparse.Namespace, name: str, words: list[str], after: list[str]) -> Job:
    command = [sys.executable, "-m", "fairseq_headprune", *words, "--json"]
    # In --work: what --out holds may be of other models.
    return Job(name, command, args.work / f"{name}.json", keep_stdout=True, after=tuple(after))


def _bleu(args: argparse.Namespace, name: str, lines: list[str]) -> dict[str, Any]:
    from sacrebleu.metrics import BLEU

    from fairseq_headprune.files import read_lines

    metric = BLEU()
    score = metric.corpus_score(lines, [read_lines(args.prepared / "text" / f"{name}.en")]).score
    return {"bleu": round(score, 2), "signature": str(metric.get_signature())}


def _best(folder: Path) -> dict[str, Any]:
    """What the best checkpoint says of itself."""
    from fairseq_headprune.checkpoints import read_state, updates_of
    from fairseq_headprune.files import sha256

    path = folder / "checkpoint_best.pt"
    state = read_state(path)
    extra = state["extra_state"]
    # An epoch's checkpoint points at the start of the next epoch.
    position = extra["train_iterator"]
    epoch = position["epoch"] - (position.get("iterations_in_epoch", 0) == 0)
    facts = {"best_epoch": epoch, "best_update": updates_of(state), "valid_loss": round(float(extra["val_loss"]), 4)}
    return {**facts, "checkpoint_sha256": sha256(path)}


def _machine(args: argparse.Namespace, table: list[dict]) -> dict[str, Any]:
    """What the wall times depend on, and the data."""
    from fairseq_headprune.jobs.processes import gpus
    from fairseq_headprune.provenance import script_environment
    from fairseq_headprune.studies.pruners.trainings import Translating

    facts = {"trained_side_by_side": len(table), "gpus": len(gpus()), "environment": script_environment()}
    return {**facts, "data_files": Translating().hashes(args.prepared / "data-bin", ("train", "valid", *SETS.values()))}


def _data(args: argparse.Namespace) -> list[str]:
    return [os.path.relpath(args.prepared / "data-bin", args.work), "--source-lang", "de", "--target-lang", "en"]


def prune(args: argparse.Namespace) -> list[Job]:
    """Return the studies of the gated model of the first seed, and the comparison of steps of the joint curve."""
    folder = f"{GATED}-{args.seeds[0]}"
    model = [*_data(args), "--path", f"{folder}/checkpoint_best.pt"]
    (args.work / "figures").mkdir(parents=True, exist_ok=True)
    verbs = {"scores": ["score", *model, *PAPER, "--figure", "figures/scores"]}
    for name, flags in STUDIES.items():
        verbs[name] = ["prune", *model, *SEARCH, *PAPER, "--gen-subset", "test", "--step", "10%", *flags, "-o", name]
    jobs = [_headprune(args, name, words, [f"train-{folder}"]) for name, words in verbs.items()]
    cells = ("unpruned", "all-01", "all-02", "all-03", "all-04", "all-05")
    steps = [f"prune-all/hyps/{cell}.txt" for cell in cells]
    return [*jobs, _comparison(args, "compare-steps", steps, ["prune-all"])]


def keep_studies(args: argparse.Namespace) -> None:
    """Copy what the studies printed, and their figures, to the results."""
    for name in ("scores", *STUDIES, "compare-steps"):
        shutil.copy(args.work / f"{name}.json", args.out)
    for path in [*args.work.glob("figures/*"), *args.work.glob("prune-*/figures/pruning.*")]:
        study = "" if path.parents[1] == args.work else f"{path.parents[1].name}-"
        shutil.copy(path, args.out / f"{study}{path.name}")


def bench(args: argparse.Namespace) -> None:
    """Measure training and scoring speed, one after the other on an otherwise idle GPU."""
    data = ["--data", str(args.prepared / "data-bin"), *args.bench_flags]
    scripts = {
        "bench-score-gpu": ["bench_score.py"],
        "bench-score-gpu-fp16": ["bench_score.py", "--fp16"],
        "bench-train-gpu": ["bench_train.py", "--variants", "stock,gated,gated-mask,gated-ones"],
    }
    jobs = []
    for name, (script, *flags) in scripts.items():
        output = args.work / f"{name}.json"
        command = [sys.executable, str(ROOT / "scripts" / script), *data, *flags, "--output", str(output)]
        jobs.append(Job(name, command, args.work / f"{name}.done.json"))
    run_jobs(jobs, args, at_once=1)
    for job in jobs:
        shutil.copy(args.work / f"{job.name}.json", args.out)


#: stage -> its jobs, and what is made of their products
STAGES: dict[str, tuple[Callable[[argparse.Namespace], list[Job]], Callable[[argparse.Namespace], None]]] = {
    "train": (train, lambda args: None),
    "prune": (prune, keep_studies),
    "evaluate": (evaluate, keep_scores),
}


def main() -> None:
    """Run the stages."""
    from fairseq_headprune.jobs.processes import gpus

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("stages", nargs="+", choices=[*STAGES, "bench"], metavar="STAGE", help="train, evaluate, prune or bench")
    add("--prepared", type=Path, default=HERE / "out", help="the folder that prepare.sh wrote (default: out/)")
    add("--work", type=Path, default=HERE / "out" / "evidence", help="all else (default: out/evidence)")
    add("--out", type=Path, default=HERE / "results", help="results (default: results/)")
    add("--limit", type=float, default=530, help="seconds that the stages may take (default: 530)")
    add("--seeds", type=int, nargs="+", default=[1, 2, 3], help="seeds of the trainings (default: 1 2 3)")
    add("--train-flags", type=shlex.split, default=[], help="more flags of fairseq-train, as one word")
    add("--bench-flags", type=shlex.split, default=[], help="more flags of every benchmark, as one word")
    args = parser.parse_args()
    args.prepared, args.work, args.out = (p.resolve() for p in (args.prepared, args.work, args.out))
    for folder in (args.work, args.out):
        folder.mkdir(parents=True, exist_ok=True)
    together = [stage for name, stage in STAGES.items() if name in args.stages]
    run_jobs([job for jobs, _ in together for job in jobs(args)], args, at_once=AT_ONCE * max(1, len(gpus())))
    for _, finish in together:
        finish(args)
    if "bench" in args.stages:
        bench(args)
    print(json.dumps({"stages": args.stages, "out": str(args.out)}))


if __name__ == "__main__":
    main()
