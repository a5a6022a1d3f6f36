"""``headprune compare-pruners``: compare pruning methods as in Li et al. 2021, on any prepared data set."""

import argparse
import json
import math
import os
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import Any

from fairseq_headprune.cli import said
from fairseq_headprune.cli.common import (
    Help,
    Parser,
    add_output_flags,
    add_width_flag,
    as_for_paper,
    check_alpha,
    check_least,
    check_once,
    emit,
    numbers,
)
from fairseq_headprune.cli.scale_flags import (
    add_dry_run_flag,
    add_launcher_flags,
    check_launcher_flags,
    helpers,
    trainings_at_once,
)
from fairseq_headprune.cli.study_flags import add_margin_flag, add_test_flags, check_margin
from fairseq_headprune.errors import one_line_error
from fairseq_headprune.jobs.methods import COUNTS, DEFAULT, NAMES
from fairseq_headprune.progress import Progress
from fairseq_headprune.report.tables import render_parts

_DESCRIPTION = """Compare pruning methods as Li et al. 2021 do (§4; Figures 3b and 3d, Tables 1 and 3b), on any
prepared data set.

    headprune compare-pruners DATA_BIN --work WORK --out results/compare --updates 2500 --seeds 1,2,3 --jobs 16

Joint methods (joint-dsp, ste, l0, random-start) train as long as the unpruned model. pipelined-dsp learns its gates on
the trained model in one more epoch, michel scores it anew after every --step heads, as its paper does: normalised by
layer (michel+none: not normalised). The checkpoint of a training is the best on the validation set under its hard mask,
among those of the second half of the run, when gates are settled; learned sets are corrected to exactly K heads (§4.3).
METHOD+OPTION is a variant of a method (see the manual). What is done is not done again: start it again after a stop.
Trainings that were stopped go on from their last epoch; one that dies is started again as long as it gets further.
Status 1: something failed, or --limit came first."""

#: the training of examples/multi30k, except for the number of updates
RECIPE = """--share-all-embeddings --dropout 0.3 --label-smoothing 0.1 --optimizer adam --adam-betas '(0.9, 0.98)'
    --lr 7e-4 --lr-scheduler inverse_sqrt --warmup-updates 1500 --max-tokens 4096 --distributed-world-size 1
    --log-format simple --log-interval 100"""
#: the training of examples/glue
GLUE_RECIPE = """--dropout 0.1 --attention-dropout 0.1 --optimizer adam --adam-betas '(0.9, 0.999)' --adam-eps 1e-8
    --weight-decay 0.01 --clip-norm 1 --lr 5e-5 --lr-scheduler polynomial_decay --batch-size 32
    --required-batch-size-multiple 1 --distributed-world-size 1 --log-format simple --log-interval 100"""
STAGES = ("train", "translate", "report")


class _Help(Help, argparse.RawDescriptionHelpFormatter):
    """The same, with the description as it is written."""


def run(argv: list[str], prog: str = "headprune compare-pruners") -> int:
    """Run the requested stages; return the exit status."""
    parser = _parser(prog)
    args = parser.parse_args(argv)
    words = [Path(word).name if word in (args.data, args.bert) else word for word in argv]
    args.command = f"{f'scripts/{prog}' if prog.endswith('.py') else prog} {shlex.join(words)}"
    try:
        return _run(args, argv)
    except (RuntimeError, TimeoutError) as error:
        print(f"{prog}: {error}; start it again for the rest", file=sys.stderr)
        return 1
    except (ValueError, OSError) as error:
        one_line_error(parser, said(error))


def _run(args: argparse.Namespace, argv: list[str]) -> int:
    from fairseq_headprune.provenance import environment

    if args.gpus_visible is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = args.gpus_visible
    check_launcher_flags(args)
    study = _study(args)
    if args.dry_run:
        return _outlook(args, study)
    folder = study.open(args.work, environment())
    if {"train", "translate"} & set(args.stages):
        with helpers("compare-pruners", argv, args, folder, trains=True):
            _work(args, study)
    if "report" in args.stages and not args.worker:
        _show([_report(args, study, split) for split in args.splits], args)
    return 0


def _work(args: argparse.Namespace, study: Any) -> None:
    """Train and translate, and tell the progress of each."""
    from fairseq_headprune.studies.pruners.flow import Flow

    shown = {"train": ("trainings", len(study.trainings)), "translate": ("translations", None)}
    told = {stage: Progress(*shown[stage], quiet=False) for stage in shown if stage in args.stages}
    for stage, name in Flow(study, trainings_at_once(args), args.jobs).run(args.stages, args.limit):
        told[stage].cell({"id": name})
    for progress in told.values():
        progress.close()


def _outlook(args: argparse.Namespace, study: Any) -> int:
    """Print the trainings' commands, and an estimate of their time and memory."""
    from fairseq_headprune.studies.pruners.outlook import of_comparison

    study.check_folder(args.work)
    found, jobs = of_comparison(study, args.work, trainings_at_once(args))
    value = {"name": study.name, "shape": study.how.shape, **found.document()}
    value["jobs"] = [{"name": job.name, "after": job.after, "command": job.words()} for job in jobs]
    emit(value, args.json, "\n".join([found.text(), *(f"{job.name}: {shlex.join(job.words())}" for job in jobs)]))
    return 0


def _study(args: argparse.Namespace) -> Any:
    """Return the checked study that the flags describe; missing files are reported before anything starts."""
    from fairseq_headprune.generation_flags import parse_generation_args
    from fairseq_headprune.jobs.flags import training_settings
    from fairseq_headprune.studies.pruners.study import ComparePruners, Plan

    fields = ["data", "splits", "methods", "counts", "seeds", "lambdas", "updates", "step", "sentences", "tune"]
    task, train, generate = _task(args)
    chosen = {name: getattr(args, name) for name in [*fields, "tune_flags"]}
    shape = task.shape(args.data, train)
    _check(args, sum(map(sum, shape.values())))
    training_settings([args.data, *task.flags, "--criterion", task.criterion, *train, *args.tune_flags])
    # It ends with one line if a flag is wrong.
    parse_generation_args("compare-pruners", [args.data, *task.flags, *generate], lambda _: None, "", one_model=False)
    resume = not args.no_last_checkpoints
    return ComparePruners(
        Plan(**chosen, shape=shape, train_flags=train, generate_flags=generate, task=task, resume=resume)
    )


def _task(args: argparse.Namespace) -> tuple[Any, list[str], list[str]]:
    """Return the task with its fairseq-train and fairseq-generate flags."""
    from fairseq_headprune.studies.pruners.trainings import Classifying, Translating

    if (args.glue_task is None) != (args.bert is None):
        raise ValueError("--glue-task TASK and --bert DIR go together")
    if args.glue_task is None:
        train = ["--arch", args.arch or "transformer_gated_iwslt_de_en", *(args.recipe or shlex.split(RECIPE))]
        generate = ["--beam", "5", "--post-process", "sentencepiece", *args.generate_flags]
        return Translating(), [*train, *args.train_flags], generate
    bert = str(Path(args.bert).resolve())
    total = ["--warmup-updates", str(args.updates // 10), "--total-num-update", str(args.updates)]
    train = ["--arch", args.arch or "bert_gated", "--bert", bert, *(args.recipe or [*shlex.split(GLUE_RECIPE), *total])]
    return Classifying(args.glue_task, bert, args.metric), [*train, *args.train_flags], list(args.generate_flags)


def _report(args: argparse.Namespace, study: Any, split: str) -> Any:
    """Write the results of a split and return their document."""
    from fairseq_headprune.evaluation.hypotheses import read_references
    from fairseq_headprune.files import sha256, write_json
    from fairseq_headprune.provenance import software
    from fairseq_headprune.studies.mask_study import Comparison
    from fairseq_headprune.studies.pruners import results
    from fairseq_headprune.studies.pruners.figures import comparison_figure, set_figures

    place = args.splits.index(split)
    references = read_references(args.references[place]).lines if args.references else None
    how = Comparison(args.tokenize, args.resamples, args.bootstrap_seed, args.alpha)
    named, found = {cell.id for cell in study.plan()}, study.folder.cells()
    cells = {name: cell for name, cell in found.items() if name in named}
    document = results.document(study, cells, split, references, how, args.margin)
    statistics, made_by = document.data.pop("statistics"), software()
    document.data = {"command": args.command, **document.data, "made_by": made_by}
    stem = args.out if place == 0 else args.out.with_name(f"{args.out.name}-{split}")
    stem.parent.mkdir(parents=True, exist_ok=True)
    # In a file of their own: of thousands of translations they are ten times as large as all the rest.
    counts = stem.with_name(f"{stem.name}-statistics.json")
    write_json(counts, {"statistics": statistics, "made_by": made_by})
    document.data["statistics_file"] = {"name": counts.name, "sha256": sha256(counts)}
    write_json(f"{stem}.json", document.data)
    total = sum(map(sum, study.how.shape.values()))
    with as_for_paper(args):
        comparison_figure(document.data["points"], stem, total, study.how.task.measure)
        set_figures(document.data["rows"], stem, total)
    return document


def _show(documents: list[Any], args: argparse.Namespace) -> None:
    if args.json:
        values = [document.data for document in documents]
        print(json.dumps(values[0] if len(values) == 1 else values, indent=1))
    else:
        closing = [f"look at {args.out}.png; the numbers are in {args.out}.json"]
        print("\n\n".join(render_parts([*d.parts(args.format), *d.findings], args.format) for d in documents))
        print(render_parts(closing, args.format))


def _check(args: argparse.Namespace, total: int) -> None:
    bad = [count for count in args.counts if not 0 <= count <= total]
    if bad:
        raise ValueError(f"--counts {bad[0]}: the model has {total} heads")
    # A duplicate training would count twice in every mean.
    check_once(args, "counts", "seeds", "lambdas", "splits")
    check_least(0, args, "seeds")
    check_least(1, args, "jobs", "updates", "step", "resamples")
    unknown = [stage for stage in args.stages if stage not in STAGES]
    if unknown:
        raise ValueError(f"--stages {unknown[0]}: known are {', '.join(STAGES)}")
    if ("l0-lambda" in args.methods) != bool(args.lambdas):
        raise ValueError("--lambdas and the method l0-lambda go together")
    wrong = [penalty for penalty in args.lambdas if not 0 <= penalty < math.inf]
    if wrong:
        raise ValueError(f"--lambdas {wrong[0]:g}: a penalty must be finite and not below 0")
    _check_report(args)


def _check_report(args: argparse.Namespace) -> None:
    """Check before the trainings whatever would make the last stage fail."""
    from fairseq_headprune.evaluation.statistics import tokeniser_names

    check_alpha(args)
    check_margin(args)
    if args.references and len(args.references) != len(args.splits):
        raise ValueError(f"{len(args.references)} --references for {len(args.splits)} --splits: give one for each")
    for path in args.references:
        if not Path(path).is_file():
            raise FileNotFoundError(f"--references {path}: there is no such file")
    if args.tokenize not in tokeniser_names():
        raise ValueError(f"--tokenize {args.tokenize}: known are {', '.join(tokeniser_names())}")


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = Parser(prog=prog, description=_DESCRIPTION, formatter_class=_Help)
    add, some = parser.add_argument, partial(numbers, may_be_empty=True)
    add("data", help="folder that fairseq-preprocess wrote")
    add("--work", type=Path, required=True, help="study folder: checkpoints, logs, masks and translations")
    add("--out", type=Path, required=True, help="stem of results: OUT.json, OUT.png, OUT.svg")
    add("--methods", type=_words, default=DEFAULT, help=f"of {', '.join(NAMES)} (default: {','.join(DEFAULT)})")
    add("--counts", type=some, default=COUNTS, help=f"heads kept (default: {','.join(map(str, COUNTS))})")
    add("--seeds", type=numbers, default=[1], help="seeds of trainings and random masks (default: 1)")
    add("--lambdas", type=partial(some, kind=float), default=[], help="penalties of the method l0-lambda")
    add("--glue-task", metavar="TASK", help="compare classifiers on this task; data is GLUE's folder")
    add("--bert", metavar="DIR", help="folder of Hugging Face that classifiers start from")
    add("--metric", help="of the GLUE task (default: GLUE's own)")
    add("--arch", help="(default: transformer_gated_iwslt_de_en, or bert_gated)")
    add("--updates", type=int, default=5000, help="of every training but pipelined-dsp's")
    add(
        "--recipe",
        type=shlex.split,
        help=f"of fairseq-train (default: {RECIPE}; for GLUE {GLUE_RECIPE}, and a tenth of the updates as warm-up)",
    )
    add("--train-flags", type=shlex.split, default=[], help="more of them, such as '--fp16'")
    add("--generate-flags", type=shlex.split, default=[], help="beside (translations) beam 5 and sentencepiece")
    add("--tune", type=int, default=0, help="updates of fine-tuning, for variants +tuned and +long")
    add(
        "--tune-flags",
        type=shlex.split,
        default=[],
        help="more flags of fairseq-train for variants +tuned, such as '--lr 3e-4'",
    )
    add("--splits", type=_words, default=["test"], help="that are translated (default: test)")
    add("--references", type=_words, default=[], help="their raw references (default: the data's target side)")
    add("--step", type=int, default=4, help="heads that michel removes between two estimates")
    add("--sentences", type=int, default=2000, help="of train, for each estimate; 0 takes all")
    add("--jobs", type=int, default=1, help="processes at the same time, spread over the GPUs")
    add("--gpus", dest="gpus_visible", help="as in CUDA_VISIBLE_DEVICES (default: all that are visible)")
    add_launcher_flags(parser, "--gpus-per-job")
    add("--limit", type=float, help="seconds after which what still runs is ended")
    add("--tokenize", default="13a", help="sacrebleu's tokeniser, or tok")
    add_test_flags(parser)
    add_margin_flag(parser)
    add("--stages", type=_words, default=list(STAGES), help=f"which to run (default: {','.join(STAGES)})")
    add(
        "--no-last-checkpoints",
        action="store_true",
        help="trainings write nothing to go on from, which takes time and room; one that is stopped begins anew",
    )
    add_dry_run_flag(parser)
    add_output_flags(parser, "print the results as JSON, a list for several splits")
    add_width_flag(parser)
    return parser
