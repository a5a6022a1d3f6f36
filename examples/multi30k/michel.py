"""The figures of Michel et al. 2019 on one model, from training to the last study, timed:  michel.py [flags].

Trains one model and keeps the checkpoints of some epochs; masks every head alone (Tables 1 and 3), keeps one head of a
layer (Tables 2 and 4), prunes all heads jointly and each component by itself (Figure 3), and prunes at these epochs
(Figure 5). Each step's seconds go to --results as soon as it is done; its log and document are in --out. Started again,
it goes on after the last finished step.
"""

import argparse
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))


def steps(args: argparse.Namespace, device: str) -> dict[str, list[str]]:
    """Return name -> command, in the order in which they are run."""
    graphs = ["--cuda-graphs", "auto", "--num-workers", "4"] if device == "--fp16" else []
    train = ["bash", str(HERE / "train.sh"), "--task", "translation_headprune", *graphs, "--max-update", "0"]
    train += ["--max-epoch", str(max(args.epochs)), "--no-last-checkpoints", "--no-save-optimizer-state"]
    model = str(args.out / "model")
    search = [str(args.prepared / "data-bin"), *shlex.split("--source-lang de --target-lang en --beam 5 --json")]
    search += ["--post-process", "sentencepiece", "--gen-subset", "test", device, *shlex.split(args.study_flags)]
    one = ["--path", f"{model}/checkpoint_best.pt"]
    epochs, paper = ",".join(map(str, args.epochs)), ["--preset", "michel-2019"]
    studies = {
        "ablate": ["ablate", *search, *one],
        "keep-one": ["keep-one", *search, *one, "--select-subset", "valid"],
        "prune-all": ["prune", *search, *one, *paper, "--components", "all"],
        "prune-each": ["prune", *search, *one, *paper, "--components", "each"],
        "sweep": ["sweep-epochs", *search, *paper, "--checkpoints", model, "--epochs", epochs],
    }
    verbs = {name: [*words, "-o", str(args.out / name)] for name, words in studies.items()}
    python = [sys.executable, "-m", "fairseq_headprune"]
    return {
        "train": [*train, *shlex.split(args.train_flags)],
        **{name: [*python, *words] for name, words in verbs.items()},
    }


def main() -> None:
    """Run the steps that are not done, and note their times."""
    from fairseq_headprune.files import read_json, write_json
    from fairseq_headprune.jobs.processes import with_package
    from fairseq_headprune.provenance import script_environment

    args = arguments()
    import torch

    device = "--fp16" if torch.cuda.is_available() else "--cpu"
    args.out.mkdir(parents=True, exist_ok=True)
    noted = args.out / "times.json"
    done = read_json(noted)["seconds"] if noted.exists() else {}
    settings = with_package(os.environ) | {"PYTHON": sys.executable, "PREPARED": str(args.prepared), "EPOCHS": "1"}
    settings |= {"OUT": str(args.out / "model")}
    for name, command in steps(args, device).items():
        if name in done:
            continue
        print(f"{name} starts", file=sys.stderr, flush=True)
        began = time.perf_counter()
        with open(args.out / f"{name}.log", "w") as log, open(args.out / f"{name}.json", "w") as output:
            subprocess.run(command, env=settings, stdout=log if name == "train" else output, stderr=log, check=True)
        done[name] = round(time.perf_counter() - began, 1)
        gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
        value = {"seconds": done, "total": round(sum(done.values()), 1), "epochs": args.epochs, "gpu": gpu}
        for path in (noted, args.results):
            write_json(path, {**value, "environment": script_environment()})
        print(f"{name}: {done[name]:.0f} s", file=sys.stderr, flush=True)


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--prepared", type=Path, default=HERE / "out", help="folder that prepare.sh wrote (default: out)")
    add("--out", type=Path, default=HERE / "out" / "michel", help="model and studies (default: out/michel)")
    add(
        "--results",
        type=Path,
        default=HERE / "results" / "michel-times.json",
        help="seconds of each step (default: results/michel-times.json)",
    )
    add(
        "--epochs",
        type=lambda text: [int(part) for part in text.split(",")],
        default=[1, 2, 3, 5, 8, 12, 16, 20, 25, 30],
        help="epochs of the sweep; training ends with the last one (default: 1,2,3,5,8,12,16,20,25,30)",
    )
    add("--train-flags", default="", help="more flags of fairseq-train, as one word (default: none)")
    add("--study-flags", default="", help="more flags of each study, as one word (default: none)")
    args = parser.parse_args()
    for name in ("prepared", "out", "results"):
        setattr(args, name, getattr(args, name).resolve())
    return args


if __name__ == "__main__":
    main()
