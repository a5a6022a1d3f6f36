"""Compare pruning methods as Li et al. 2021 do (§4, Figures 3b and 3d, Tables 1 and 3b), on any prepared data set.

    compare_pruners.py DATA_BIN --references test.en --work WORK --out results/compare --updates 2500 --jobs 16

Joint methods (joint-dsp, ste, l0, random-start) train as long as the unpruned model. pipelined-dsp learns its gates on
the trained model in one more epoch, michel scores it anew after every --step heads. Every model is the checkpoint that
is best on the validation set under its hard mask; learned sets are corrected to exactly K heads (§4.3). What is done is
not done again.
"""

import argparse
import os
import shlex
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fairseq_headprune.comparison import results  # noqa: E402
from fairseq_headprune.comparison.methods import NAMES  # noqa: E402

#: the recipe of examples/multi30k, which is that of fairseq's IWSLT14 example with a shorter warm-up
RECIPE = """--arch transformer_gated_iwslt_de_en --share-all-embeddings --dropout 0.3 --label-smoothing 0.1
    --optimizer adam --adam-betas (0.9,0.98) --lr 7e-4 --lr-scheduler inverse_sqrt --warmup-updates 1000
    --max-tokens 4096 --distributed-world-size 1 --log-format simple --log-interval 100 --num-workers 1"""
COUNTS = [68, 60, 48, 36, 24, 20, 16, 12, 8, 4, 3, 2, 1]
METHODS = [name for name in NAMES if name not in ("joint-dsp-constant", "l0-lambda")]


def main() -> None:
    """Run the stages that are asked for."""
    args = _arguments()
    from fairseq_headprune.comparison.driver import Driver

    driver = Driver(args)
    if args.dry_run:
        for training in driver.trainings:
            print(shlex.join(driver.command(training)))
        return
    driver.write_random_masks({c: [args.heads] * args.layers for c in ("enc_self", "enc_dec", "dec_self")})
    if "train" in args.stages:
        driver.train()
    if "translate" in args.stages:
        driver.translate()
    if "report" in args.stages:
        _report(args, driver)


def _report(args: argparse.Namespace, driver) -> None:
    from fairseq_headprune.comparison.figure import comparison_figure
    from fairseq_headprune.evaluation.hypotheses import read_references
    from fairseq_headprune.files import write_json
    from fairseq_headprune.report.tables import Table
    from fairseq_headprune.studies.provenance import environment

    rows = driver.translate()
    references = read_references(args.references).lines
    rows = results.test_against_unpruned(
        rows, Path(args.work) / "hyps", references, args.resamples, args.bootstrap_seed
    )
    points = results.summary(rows)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    command = " ".join(["scripts/compare_pruners.py", *map(os.path.basename, sys.argv[1:2]), *sys.argv[2:]])
    settings = {name: getattr(args, name) for name in ("updates", "step", "sentences", "resamples", "bootstrap_seed")}
    document = {"command": command, "settings": settings, "environment": environment(), "points": points, "rows": rows}
    write_json(f"{args.out}.json", document)
    comparison_figure(points, args.out)
    for header, body in (results.table_3b(rows), results.table_1(rows)):
        print(Table(header, body).render("text"))
        print()


def _numbers(kind):
    return lambda text: [kind(part) for part in text.split(",") if part]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("data", help="folder that fairseq-preprocess wrote")
    add("--references", required=True, help="plain text of the test set's target side")
    add("--work", required=True, help="checkpoints, logs, masks and translations")
    add("--out", type=Path, required=True, help="stem of results: OUT.json, OUT.png, OUT.svg")
    add("--methods", type=lambda text: text.split(","), default=METHODS, help=f"default: {','.join(METHODS)}")
    add("--counts", type=_numbers(int), default=COUNTS, help="numbers of heads kept (default: 68,60,…,1)")
    add("--seeds", type=_numbers(int), default=[1], help="seeds of the trainings (default: 1)")
    add("--lambdas", type=_numbers(float), default=[], help="fixed penalties for the method l0-lambda (default: none)")
    add("--updates", type=int, default=5000, help="updates of every training but pipelined ones (default: 5000)")
    add("--jobs", type=int, default=1, help="processes at the same time, spread over the GPUs (default: 1)")
    add("--train-flags", type=shlex.split, default=RECIPE.split(), help="flags of fairseq-train (default: a recipe)")
    add("--add-train-flags", type=shlex.split, default=[], help="more of them, such as '--fp16' (default: none)")
    add(
        "--generate-flags", type=shlex.split, default=[], help="flags of fairseq-generate beside beam 5 (default: none)"
    )
    add("--split", default="test", help="split that is translated (default: test)")
    add("--layers", type=int, default=6, help="layers of encoder and decoder (default: 6)")
    add("--heads", type=int, default=4, help="heads of each layer (default: 4)")
    add("--step", type=int, default=4, help="heads that michel removes between two estimates (default: 4)")
    add("--sentences", type=int, default=2000, help="training sentences of an estimate (default: 2000)")
    add("--resamples", type=int, default=1000, help="of the paired bootstrap (default: 1000)")
    add("--bootstrap-seed", type=int, default=12345, help="of the paired bootstrap (default: 12345)")
    add("--stages", type=lambda text: text.split(","), default=["train", "translate", "report"], help="which to run")
    add("--dry-run", action="store_true", help="print the commands of the trainings, and end")
    args = parser.parse_args()
    unknown = set(args.methods) - set(NAMES)
    if unknown:
        parser.error(f"--methods {sorted(unknown)[0]}: known are {', '.join(NAMES)}")
    total = 3 * args.layers * args.heads
    bad = [count for count in args.counts if not 0 <= count <= total]
    if bad:
        parser.error(f"--counts {bad[0]}: the model has {total} heads")
    if min(args.jobs, args.updates, args.step) < 1:
        parser.error("--jobs, --updates and --step must be at least 1")
    args.train_flags = [*args.train_flags, *args.add_train_flags]
    args.generate_flags = ["--beam", "5", "--post-process", "sentencepiece", *args.generate_flags]
    return args


if __name__ == "__main__":
    main()
