"""Check that everything runs on this GPU with the CPU's results.  check_gpu.py [--work DIR] [--output FILE]

Small models are trained on the GPU in half precision: translation on the embedded corpus, also with learned gates, and
a BERT on a made-up task. Then every verb that runs a model is run on the CPU, and on the GPU in float32 and in half
precision, and the GPU's results are compared with the CPU's: importance (normalised to 1 per layer) and scores (0-100).
Training in CUDA graphs is compared with eager training (check_graphs.py).
Needs no data. Exit status 1: something failed or differs by more than its limit; --work DIR keeps the logs.
"""

import argparse
import contextlib
import json
import os
import random
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import benchmarks
import script_flags

from fairseq_headprune.corpus import Settings, make_corpus
from fairseq_headprune.files import write_json
from fairseq_headprune.jobs.scheduler import Command, run_commands

#: Side -> its flag; the first side is the reference.
SIDES = {"cpu": "--cpu", "gpu-fp32": "", "gpu-fp16": "--fp16"}
#: Largest acceptable differences by side, in importance and in scores. Rounding can change a few translations.
LIMITS = {"gpu-fp32": {"scores": 1e-3, "score": 0.5}, "gpu-fp16": {"scores": 0.05, "score": 3.0}}

_USER_DIR = Path(__file__).resolve().parent.parent / "fairseq_headprune"
_PAIR = "--source-lang de --target-lang en"
_ADAM = "--optimizer adam --num-workers 0 --log-format simple --distributed-world-size 1"
_MODEL = (
    "--arch transformer_gated_tiny --share-all-embeddings --encoder-layers 2 --decoder-layers 2 --encoder-embed-dim 64 "
    "--decoder-embed-dim 64 --encoder-ffn-embed-dim 128 --decoder-ffn-embed-dim 128 --encoder-attention-heads 4 "
    f"--decoder-attention-heads 4 --lr 5e-3 --lr-scheduler inverse_sqrt --warmup-updates 50 --max-tokens 4000 {_ADAM}"
)
_BERT = f"--arch bert_gated_mini --criterion sentence_prediction --lr 5e-4 --batch-size 32 {_ADAM}"
_TRANSLATE = f"corpus/data-bin {_PAIR} --gen-subset valid --beam 5 --max-len-b 30 --remove-bpe sentencepiece"
_BEST, _CLASSIFIER = "--path model/checkpoint_best.pt", "glue --path bert/checkpoint_best.pt"
#: The limits are for scores that are normalised to 1 per layer.
_BY_LAYER = "--preset michel-2019"
#: translates in validation, by the decoder of many masks
_BLEU = """--eval-bleu --eval-bleu-args '{"beam": 2, "max_len_a": 1.2, "max_len_b": 10}'"""
#: Criteria of the trainings with learned gates.
_LEARNED = {
    "l0": "label_smoothed_cross_entropy_l0 --l0-target-heads 12",
    "dsp": "label_smoothed_cross_entropy_dsp --heads-kept 12",
    "ste": "label_smoothed_cross_entropy_dsp --heads-kept 12 --straight-through",
}
#: Name -> verb and flags; FOLDER and FILE are replaced by paths of the run's own, DEVICE by the side's flag. The
#: results of the second table are not compared: they are times, or depend on a training.
COMPARED = {
    "score": f"score {_TRANSLATE} {_BEST} {_BY_LAYER} --score-sentences 500",
    "prune": f"prune {_TRANSLATE} {_BEST} --order file.json --step 25% -o FOLDER",
    "prune-jobs": f"prune {_TRANSLATE} {_BEST} --order file.json --components each --step 50% --jobs 2 -o FOLDER",
    "ablate": f"ablate {_TRANSLATE} {_BEST} -o FOLDER",
    "keep-one": f"keep-one {_TRANSLATE} {_BEST} --components enc_dec --select-subset valid -o FOLDER",
    "sweep-epochs": f"sweep-epochs {_TRANSLATE} {_BY_LAYER} --checkpoints model --step 50% --score-sentences 500 "
    "-o FOLDER",
    "evaluate": f"evaluate {_CLASSIFIER} --gen-subset dev",
    "score-bert": f"score {_CLASSIFIER} {_BY_LAYER} --score-sentences 200",
    "ablate-bert": f"ablate {_CLASSIFIER} --gen-subset dev -o FOLDER",
    "keep-one-bert": f"keep-one {_CLASSIFIER} --select-subset train --gen-subset dev -o FOLDER",
}
RUN = {
    "bench": f"bench {_TRANSLATE} {_BEST} --models slim.pt --sentences 8 --batch-sizes 4 --rounds 1",
    "profile": f"profile {_TRANSLATE} {_BEST} --batch-size 4 --rounds 1 -o FILE",
    "bench-heads": f"bench-heads {_CLASSIFIER} --heads 16,8 --masks 1 --examples 8 --batch-sizes 4 -o FILE",
    "random-study": f"random-study {_TRANSLATE} {_BEST} --random 25% --seeds 1 --epochs 1 -o FOLDER "
    f"--train-flags '{_MODEL} --criterion label_smoothed_cross_entropy DEVICE'",
}
#: Name of the comparison of training in CUDA graphs, done by check_graphs.py.
GRAPHS = "graphs"


def main() -> int:
    """Run everything and print a table; return the exit status."""
    args, start = _arguments(), time.monotonic()
    with contextlib.ExitStack() as stack:
        work = Path(args.work or stack.enter_context(tempfile.TemporaryDirectory())).resolve()
        work.mkdir(parents=True, exist_ok=True)
        failed = _run(work, args)
        checks = list(_checks(work, args.verbs, failed))
    versions = benchmarks.environment("torch", "ve-fairseq", "numpy")
    about = {"check": "gpu", "command": benchmarks.command(), "seconds": round(time.monotonic() - start, 1)}
    value = {**about, "checks": checks, "environment": versions}
    if args.output:
        write_json(args.output, value)
    return benchmarks.told(checks, value if args.json else None)


def _arguments() -> argparse.Namespace:
    parser = script_flags.new_parser(__doc__)
    add = parser.add_argument
    add("--work", help="folder for data, models and logs (default: one that is deleted)")
    names = [*COMPARED, *RUN, GRAPHS]
    add("--verbs", type=script_flags.some_of(names), default=",".join(names), help="only these, comma-separated")
    add("--epochs", type=int, default=2, help="of the trainings")
    half = max(1, (os.cpu_count() or 1) // 2)
    add("--jobs", type=int, default=half, help="processes at once (default: half the cores)")
    add("--output", help="write the result to this JSON file")
    add("--json", action="store_true", help="print one JSON document")
    args = parser.parse_args()
    script_flags.check(args, "epochs", "jobs")
    if args.work and Path(args.work).is_dir() and any(Path(args.work).iterdir()):
        raise ValueError(f"--work {args.work}: the folder is not empty; give a new one")
    if any(flag != "--cpu" for flag in SIDES.values()) and benchmarks.environment("torch")["gpu"] is None:
        raise ValueError("there is no GPU that PyTorch can use")
    return args


def _run(work: Path, args: argparse.Namespace) -> list[str]:
    """Train and run everything; return the names of what failed."""
    with contextlib.redirect_stdout(sys.stderr):
        make_corpus(work / "corpus", Settings(), binarise=True)
    _write_task(work)
    half = list(SIDES.values())[-1]
    train = (
        f"-m fairseq_cli.train corpus/data-bin --user-dir {_USER_DIR} {_PAIR} --task translation_headprune {_MODEL} "
    )
    train += f"--seed 1 --max-epoch {args.epochs} --save-dir {{0}} {half} --criterion {{1}}"
    bert = f"-m fairseq_cli.train glue --user-dir {_USER_DIR} --task glue --glue-task SST-2 --vocabulary vocab.txt "
    bert += f"{_BERT} --seed 1 --max-epoch {args.epochs} --save-dir bert {half}"
    learned = [_command(work, f"train-{name}", train.format(name, flags)) for name, flags in _LEARNED.items()]
    first = [
        _command(work, "train", train.format("model", f"label_smoothed_cross_entropy {_BLEU}")),
        _command(work, "train-bert", bert),
        *learned,
    ]
    failed = _all(first, args.jobs)
    if "train" in failed or "train-bert" in failed:
        return failed
    like = f"{_verb('mask')} --like model/checkpoint_best.pt --random 50% --seed 1 -o"
    failed += _all([_command(work, "mask", f"{like} mask.json")], 1)
    slim = f"{_verb('slim')} model/checkpoint_best.pt --mask mask.json -o slim.pt"
    order = f"{_verb('score')} {_TRANSLATE} {_BEST} {_BY_LAYER} --score-sentences 500 {SIDES['cpu']} -o file.json"
    failed += _all([_command(work, "slim", slim), _command(work, "order", order)], args.jobs)
    verbs = {name: (COMPARED | RUN)[name] for name in args.verbs if name != GRAPHS}
    commands = []
    if GRAPHS in args.verbs:
        commands.append(_command(work, GRAPHS, f"{Path(__file__).with_name('check_graphs.py')} --json"))
    for side, flag in SIDES.items():
        (work / side).mkdir(exist_ok=True)
        for name, words in verbs.items():
            own = f"{side}/{name}"
            commands.append(_command(work, own, f"{_verb(words_of(words, flag, own))} --json"))
    return failed + _all(commands, args.jobs)


def words_of(words: str, flag: str, own: str) -> str:
    """Complete a line of the tables for a side: fill in its flag, and a folder and a file of its own."""
    return f"{words} {flag}".replace("DEVICE", flag).replace("FOLDER", own).replace("FILE", f"{own}.file")


def _verb(name: str) -> str:
    return f"-m fairseq_headprune {name}"


def _command(work: Path, name: str, words: str) -> Command:
    log = work / "logs" / f"{name.replace('/', '-')}.log"
    return Command(name, [sys.executable, *shlex.split(words)], log, cwd=work, output=log.with_suffix(".out"))


def _all(commands: list[Command], jobs: int) -> list[str]:
    """Run all commands, even if some fail; return the names of those that failed."""
    done = set()
    try:
        for name in run_commands(commands, jobs, lambda name: None):
            done.add(name)
            print(f"{name} done", file=sys.stderr)
    except RuntimeError as error:
        print(error, file=sys.stderr)
    return [command.name for command in commands if command.name not in done]


def _write_task(work: Path) -> None:
    """Write a task in GLUE's format: most sentences with more good than bad words have label 1."""
    draw, words = random.Random(1), ["good", "bad", "a", "film", "plot", "with", "and", "of"]
    folder = work / "glue" / "SST-2"
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", 2000), ("dev", 200)):
        lines = ["sentence\tlabel"]
        while len(lines) <= count:
            sentence = draw.choices(words, k=draw.randint(3, 12))
            good, bad = sentence.count("good"), sentence.count("bad")
            if good != bad:
                lines.append(f"{' '.join(sentence)}\t{int((good > bad) != (draw.random() < 0.1))}")
        (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    (work / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]) + "\n")


def _checks(work: Path, verbs: list[str], failed: list[str]) -> Iterator[dict[str, Any]]:
    base, *others = SIDES
    for name in ("train", "train-bert", *(f"train-{name}" for name in _LEARNED), "mask", "slim", "order"):
        yield _check(name, name not in failed, "ran" if name not in failed else _end(work, name))
    if GRAPHS in verbs:
        # The script prints its checks even if one of them failed.
        yield from _printed(work, GRAPHS) or [_check(GRAPHS, False, _end(work, GRAPHS))]
    for name in verbs:
        if name == GRAPHS:
            continue
        runs = {side: f"{side}/{name}" not in failed and _printed(work, f"{side}-{name}") for side in SIDES}
        for side, value in runs.items():
            if not value:
                yield _check(f"{name} {side}", False, _end(work, f"{side}-{name}"))
            elif side in others and name in COMPARED and runs[base]:
                yield _difference(f"{name} {side}", runs[base], value, LIMITS[side])
            else:
                yield _check(f"{name} {side}", True, "ran")


def _check(name: str, ok: bool, why: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "ok": ok, "why": why, **more}


def _end(work: Path, name: str) -> str:
    """Return the last line of a log."""
    log = work / "logs" / f"{name}.log"
    lines = log.read_text(errors="replace").split("\n") if log.exists() else []
    return "did not run: " + next((line for line in reversed(lines) if line.strip()), "it was not started")


def _printed(work: Path, name: str) -> Any:
    file = work / "logs" / f"{name}.out"
    return json.loads(file.read_text()) if file.exists() and file.stat().st_size else None


def _difference(name: str, expected: Any, found: Any, limits: dict[str, float]) -> dict[str, Any]:
    """Compare two documents by importance if they have it, otherwise by scores."""
    key = "scores" if isinstance(expected, dict) and "scores" in expected else "score"
    mine, other = list(numbers(found, key)), list(numbers(expected, key))
    if not mine or len(mine) != len(other):
        return _check(name, False, f"{len(mine)} numbers, the CPU printed {len(other)}")
    worst = max(abs(a - b) for a, b in zip(mine, other, strict=True))
    why = f"{len(mine)} numbers, largest difference {worst:.2g} (limit {limits[key]:g})"
    return _check(name, worst <= limits[key], why, difference=worst, limit=limits[key])


def numbers(value: Any, key: str, inside: bool = False) -> Iterator[float]:
    """Yield the numbers under a key, in document order."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield from numbers(part, key, inside or name == key)
    elif isinstance(value, list):
        for part in value:
            yield from numbers(part, key, inside)
    elif inside and isinstance(value, int | float) and not isinstance(value, bool):
        yield float(value)


if __name__ == "__main__":
    script_flags.run(main)
