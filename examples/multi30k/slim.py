"""Remove heads for real and check that the smaller model translates as the masked one does:  slim.py CHECKPOINT.

The heads that are removed are the least important ones by one estimate (Michel et al. 2019). For each share: a mask,
the slim model, and fairseq-generate's translations of test2016 by both, made by the same command but for --head-mask.
Slim models stay in --work for benchmarks; slim.json goes to --out. Started again, it goes on.
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
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

SEARCH = ["--gen-subset", "test", "--beam", "5", "--post-process", "sentencepiece"]
#: fairseq's default of 8 drops the sentences that are left over.
WHOLE = ["--required-batch-size-multiple", "1"]


def headprune(*words: str) -> Any:
    """Run a verb and return the JSON document that it prints."""
    from fairseq_headprune.jobs.processes import with_package

    command = [sys.executable, "-m", "fairseq_headprune", *words, "--json"]
    done = subprocess.run(command, env=with_package(os.environ), check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)


def make(args: argparse.Namespace, data: list[str]) -> dict[int, dict[str, Any]]:
    """Estimate importance once, then write a mask and a slim model for each share; return what slim says of each."""
    from fairseq_headprune.files import read_json, write_json

    scores = args.work / "scores.json"
    if not scores.exists():
        paper = ["--preset", "michel-2019"]
        headprune("score", *data, "--path", str(args.checkpoint), *paper, *args.flags, "-o", str(scores))
    reports = {}
    for share in args.shares:
        mask, report = args.work / f"mask-{share}.json", args.work / f"slim-{share}.json"
        if not report.exists():
            total = sum(map(len, sum(read_json(scores)["scores"].values(), [])))
            keep = str(total - round(total * share / 100))
            like = ["--like", str(args.checkpoint), "--scores", str(scores), "--heads", keep]
            headprune("mask", *like, "-o", str(mask))
            slim = ["--mask", str(mask), "-o", str(args.work / f"slim-{share}.pt")]
            write_json(report, headprune("slim", str(args.checkpoint), *slim))
        reports[share] = read_json(report)
    return reports


def translate(args: argparse.Namespace, data: list[str]) -> dict[str, str]:
    """Translate with the unpruned, every masked and every slim model; return the commands by name."""
    from fairseq_headprune.jobs.scheduler import Command, run_commands

    task = ["--user-dir", str(ROOT / "fairseq_headprune"), "--task", "translation_headprune"]
    base = [sys.executable, "-m", "fairseq_cli.generate", *data, *task, *SEARCH, *WHOLE, *args.flags]
    words = {"unpruned": [*base, "--path", str(args.checkpoint)]}
    for share in args.shares:
        mask = ["--head-mask", str(args.work / f"mask-{share}.json")]
        words[f"masked-{share}"] = [*base, "--path", str(args.checkpoint), *mask]
        words[f"slim-{share}"] = [*base, "--path", str(args.work / f"slim-{share}.pt")]
    commands = [
        Command(name, command, args.work / f"{name}.log", output=args.work / f"{name}.part")
        for name, command in words.items()
        if not (args.work / f"{name}.out").exists()
    ]
    for name in run_commands(commands, args.jobs, lambda name: print(f"{name} starts", file=sys.stderr)):
        (args.work / f"{name}.part").replace(args.work / f"{name}.out")
    return {name: _shown(args, command) for name, command in words.items()}


def _shown(args: argparse.Namespace, command: list[str]) -> str:
    """A command without this machine's paths."""
    text = shlex.join(["fairseq-generate", *command[3:]])
    for folder in (args.work, args.prepared, args.checkpoint.parent, ROOT):
        text = text.replace(f"{folder}/", "")
    return text


def main() -> None:
    """Run what is missing and write slim.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("checkpoint", type=Path)
    add("--prepared", type=Path, default=HERE / "out", help="the folder that prepare.sh wrote (default: out/)")
    add("--work", type=Path, default=HERE / "out" / "slim", help="all else (default: out/slim)")
    add("--out", type=Path, default=HERE / "results", help="results (default: results/)")
    add("--shares", type=int, nargs="+", default=[25, 50, 75, 90], help="percent of heads removed (25 50 75 90)")
    add("--jobs", type=int, default=4, help="translations at the same time (default: 4)")
    add("--name", default="slim", help="of the result: NAME.json (default: slim)")
    add("--flags", type=shlex.split, default=[], help="more flags of fairseq-generate, as one word, such as --fp16")
    args = parser.parse_args()
    from sacrebleu.metrics import BLEU

    from fairseq_headprune.evaluation.hypotheses import read_systems
    from fairseq_headprune.files import read_lines, sha256, write_json
    from fairseq_headprune.provenance import script_environment

    args.work.mkdir(parents=True, exist_ok=True)
    data = [str(args.prepared / "data-bin"), "--source-lang", "de", "--target-lang", "en"]
    reports, commands = make(args, data), translate(args, data)
    lines = {name: read_systems(args.work / f"{name}.out").lines for name in commands}
    metric, references = BLEU(), [read_lines(args.prepared / "text" / "test2016.en")]
    bleu = {name: metric.corpus_score(found, references).score for name, found in lines.items()}
    rows = []
    for share, report in reports.items():
        masked, slim = lines[f"masked-{share}"], lines[f"slim-{share}"]
        rows.append(
            {
                "percent": share,
                "removed": report["removed"],
                "config": report["config"],
                "parameters": report["parameters"],
                "bytes": {"before": report["checkpoint"]["bytes"], "after": report["output"]["bytes"]},
                "bleu_masked": bleu[f"masked-{share}"],
                "bleu_slim": bleu[f"slim-{share}"],
                "sentences": len(slim),
                "identical": sum(a == b for a, b in zip(masked, slim, strict=True)),
            }
        )
    value = {
        "commands": commands,
        "checkpoint_sha256": sha256(args.checkpoint),
        "bleu_unpruned": bleu["unpruned"],
        "signature": str(metric.get_signature()),
        "rows": rows,
        "environment": script_environment(),
    }
    write_json(args.out / f"{args.name}.json", value)
    print(json.dumps(value["rows"]))


if __name__ == "__main__":
    main()
