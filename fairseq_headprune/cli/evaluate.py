"""``headprune evaluate``: GLUE scores and predictions of a BERT checkpoint, and the file for the GLUE server."""

import argparse
import logging
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_headprune.cli.common import emit, refuse_overwriting
from fairseq_headprune.cli.model_flags import parse_model_flags
from fairseq_headprune.files import identified
from fairseq_headprune.report.tables import Table

logger = logging.getLogger(__name__)

_DESCRIPTION = """Score a checkpoint of the task glue on the development set (MNLI: both), or on --gen-subset, with
GLUE's metrics, under the checkpoint's own mask or --head-mask. What the flags leave open is as in training."""


def run(argv: list[str]) -> int:
    """Run the verb."""
    args = parse_model_flags("evaluate", argv, _add_flags, _DESCRIPTION)
    from fairseq_headprune.glue.predictions import submission_paths, write_submission
    from fairseq_headprune.provenance import environment
    from fairseq_headprune.session import Session

    session = Session(args)
    task = session.task.glue
    if task is None:
        raise ValueError(f"{args.path}: not a checkpoint of the task glue; fairseq-generate is for translation")
    files = submission_paths(task, args.submission) if args.submission else {}
    splits = list(task.dev) if args.gen_subset == "dev" else args.gen_subset.split(",")
    prediction_files = _prediction_paths(task, splits, args.predictions)
    _refuse_overwriting(session, splits, prediction_files, files)
    scored = {split: _scored(session, split) for split in splits}
    value = {
        "task": task.name,
        "metric": session.task.metric,
        "checkpoint": session.checkpoint,
        "mask": _mask(args, session),
        "results": [result for result, _ in scored.values()],
        "predictions": [],
        "submission": [],
        **session.origin(),
        "environment": environment(args.headprune_command),
    }
    for split, path in prediction_files.items():
        _write_predictions(path, session, value, *scored[split])
        value["predictions"].append(identified(path) | {"split": split})
    for stem, path in files.items():
        predictor: Any = session.evaluator(stem)
        write_submission(path, task, predictor.split.numbers, predictor.predict())
        value["submission"].append(identified(path) | {"data": session.data(stem)})
    emit(value, args.json, _text(value))
    return 0


def _add_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("output")
    text = "write the predictions for the test set here, as GLUE's server takes them; a folder: under GLUE's own names"
    group.add_argument("--submission", metavar="FILE", help=text)
    text = "write the predictions of the scored split here, for headprune compare; a folder: a file for each split"
    group.add_argument("--predictions", metavar="FILE", help=text)
    group.add_argument("--json", action="store_true", help="print one JSON document")


def _mask(args: Any, session: Any) -> dict[str, Any]:
    mask = session.gates.mask()
    return {"given": args.head_mask, "source": mask.source, "components": mask.counts(), "heads": mask.rows}


def below_chance(task: Any, predicted: np.ndarray, targets: np.ndarray) -> str:
    """Return a warning if a classifier is worse than random guessing (binomial test, p < 0.001), or an empty string."""
    from scipy.stats import binomtest

    if task.is_regression:
        return ""
    right, chance = int((predicted == targets).sum()), 1 / len(task.labels)
    if binomtest(right, len(targets), chance, alternative="less").pvalue >= 0.001:
        return ""
    return (
        f"{right} of {len(targets)} labels are right, fewer than by chance ({100 * chance:.1f}%): are the "
        f"classifier's labels those of {task.name} ({', '.join(task.labels)}), in this order?"
    )


def _scored(session: Any, split: str) -> tuple[dict[str, Any], np.ndarray]:
    """Return the scores on a split and the predictions (examples,)."""
    predictor = session.evaluator(split)
    targets, predicted = predictor.targets, predictor.predict()
    result = {"split": split, "scores": session.task.score(predicted, targets), "data": session.data(split)}
    below = below_chance(session.task.glue, predicted, targets)
    if below:
        result["warning"] = below
        logger.warning(f"{split}: {below}")
    return result, predicted


def _prediction_paths(task: Any, splits: list[str], path: str | None) -> dict[str, Path]:
    from fairseq_headprune.glue.predictions import output_paths

    names = {split: f"{task.name}-{split}.json" for split in splits}
    return output_paths("--predictions", path, names, f"there are {len(names)} splits to score") if path else {}


def _refuse_overwriting(
    session: Any, splits: list[str], predictions: dict[str, Path], submission: dict[str, Path]
) -> None:
    """Check before predicting that no output is the model, its mask, the data, or another output."""
    read = [session.dataset(split).split.about["path"] for split in [*splits, *submission]]
    for path in [*predictions.values(), *submission.values()]:
        refuse_overwriting(str(path), session.args.path, session.args.head_mask, *map(str, read))
    twice = {path.resolve() for path in predictions.values()} & {path.resolve() for path in submission.values()}
    if twice:
        raise ValueError(f"--predictions and --submission are the same file {min(twice)}; choose two names")


def _write_predictions(path: Path, session: Any, value: dict, result: dict, predicted: np.ndarray) -> None:
    from fairseq_headprune.glue.predictions import Predictions, plain_values

    task, dataset = session.task.glue, session.dataset(result["split"])
    stem = "train" if "holdout" in result["data"] else task.stem(result["split"])
    about = {name: value[name] for name in ("checkpoint", "mask", "environment")}
    about |= {"scores": result["scores"], "data": result["data"]}
    columns = (dataset.split.numbers, plain_values(task, dataset.targets), plain_values(task, predicted))
    Predictions(task, stem, value["metric"], *columns, about).save(path)


def _text(value: dict) -> str:
    names = list(value["results"][0]["scores"])
    rows = [[r["split"], r["data"]["examples"], *(f"{r['scores'][n]:.2f}" for n in names)] for r in value["results"]]
    kept = ", ".join(f"{component} {n['kept']}/{n['total']}" for component, n in value["mask"]["components"].items())
    lines = [
        Table(["split", "examples", *names], rows).render(),
        f"{value['task']}; score: {value['metric']}, in percent; heads kept: {kept}; "
        f"checkpoint {value['checkpoint']['sha256'][:12]}",
    ]
    for result in value["results"]:
        data = result["data"]
        left_out = sum(data["faults"]["left_out"].values())
        said = [f"{left_out} faulty lines were left out"] if left_out else []
        said += [result["warning"]] if "warning" in result else []
        said += [f"{data['cut']} examples were cut at {data['limit']} pieces"] if data["cut"] else []
        lines += [f"{result['split']}: {what}" for what in said]
    lines += [f"wrote {written['path']}" for written in value["predictions"] + value["submission"]]
    return "\n".join(lines)
