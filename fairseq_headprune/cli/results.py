"""Verbs that read results alone: ``correlate`` the studies of two test sets, and ``dynamics`` of learned gates."""

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fairseq_headprune.cli.common import Parser, add_figure_flag, add_output_flags, add_width_flag, check_least, numbers
from fairseq_headprune.cli.study import show_document
from fairseq_headprune.errors import errors_of
from fairseq_headprune.evaluation.correlation import correlations
from fairseq_headprune.gates.log import read_run
from fairseq_headprune.report.document import Document, Scatter
from fairseq_headprune.report.marks import p_said, small
from fairseq_headprune.report.tables import Table
from fairseq_headprune.studies.ablation import Ablation
from fairseq_headprune.studies.gate_runs import SCORES, gates_document, gates_value

_CORRELATE = """The effect of each head (difference in the score without it) in one study of headprune ablate against
another one: of the same checkpoint on another test set (Michel et al. 2019, §3.4, Figure 2), or of the same encoder
fine-tuned on another task of GLUE. Pearson's and Spearman's correlation with 95% confidence intervals (Fisher z; for
Spearman with Bonett and Wright's standard error) and p. Studies are named by their folders, or by files with what
headprune ablate --json printed."""

_DYNAMICS = """How the set of kept heads came about while gates were learned (Li et al. 2021, §5.2, §5.5, §5.6), from
the log gates.jsonl of trainings. The final set is the one of the last logged update, so a training may still be
running. One training is drawn by update (Figures 7 and 8); of several, heads against lambda (Figure 2, L0 penalties)
and the distribution of the kept heads over layers (Figure 6, one figure a method)."""


def correlate(argv: list[str]) -> int:
    """Run ``headprune correlate``: are the important heads the same on two test sets?"""
    args = _correlate_parser().parse_args(argv)
    first, second = Ablation(args.first), Ablation(args.second)
    check_comparable(first, second)
    names = tuple(args.names) if args.names else _names(first, second)
    found = document(first, second, names)
    for notice in _doubts(first, second):
        print(f"headprune correlate: warning: {notice}", file=sys.stderr)
    return show_document(found, args, (lambda _: args.figure) if args.figure else None)


def _correlate_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="headprune correlate", description=_CORRELATE)
    parser.add_argument("first", metavar="STUDY_A", help="study of headprune ablate: its folder, or its JSON document")
    parser.add_argument("second", metavar="STUDY_B", help="another one, on another test set")
    add_figure_flag(parser)
    parser.add_argument("--names", nargs=2, metavar=("A", "B"), help="names of the test sets (default: their splits)")
    add_output_flags(parser)
    return parser


def check_comparable(first: Ablation, second: Ablation) -> None:
    """Check that two studies are of the same heads of the same model.

    Models of two GLUE tasks are always two checkpoints; the user must make sure that both come from the same encoder.

    Raises:
        ValueError: different checkpoints, initial masks or heads.
    """
    hashes = [study.settings["checkpoint"] for study in (first, second)]
    if hashes[0] != hashes[1] and not _two_tasks(first, second):
        raise ValueError(
            f"the studies are of different checkpoints: {first.path} of {hashes[0]}, {second.path} of {hashes[1]}"
        )
    if first.start != second.start:
        raise ValueError(f"{first.path} and {second.path} start from different masks; ablate both from the same one")
    if list(first.cells) != list(second.cells):
        raise ValueError(
            f"{first.path} ablates {', '.join(first.settings['components'])}, {second.path} "
            f"{', '.join(second.settings['components'])}; ablate the same components in both"
        )


def _two_tasks(first: Ablation, second: Ablation) -> bool:
    tasks = [study.settings["data"].get("task") for study in (first, second)]
    return None not in tasks and tasks[0] != tasks[1]


def _doubts(first: Ablation, second: Ablation) -> list[str]:
    notices = []
    if first.settings["data"] == second.settings["data"]:
        notices.append("both studies are of the same test set")
    if first.baseline["signature"] != second.baseline["signature"] and not _two_tasks(first, second):
        notices.append("the studies compute their scores in different ways")
    if first.settings.get("generation") != second.settings.get("generation"):
        notices.append("the studies translate with different settings")
    return notices


def _described(study: Ablation) -> dict[str, Any]:
    return {
        "study": str(study.path),
        "checkpoint": study.settings["checkpoint"],
        "data": study.settings["data"],
        "baseline": study.baseline["score"],
        "measure": study.measure,
        "signature": study.baseline["signature"],
        **study.origin,
    }


def _names(first: Ablation, second: Ablation) -> tuple[str, str]:
    """Names of the test sets: task and split, with the study's folder if these are equal."""
    splits = [_set(study.settings["data"]) for study in (first, second)]
    if splits[0] == splits[1]:
        splits = [f"{split} ({study.path.name})" for split, study in zip(splits, (first, second), strict=True)]
    return splits[0], splits[1]


def _set(data: dict[str, Any]) -> str:
    return f"{data['task']} {data['split']}" if "task" in data else data["split"]


def document(first: Ablation, second: Ablation, names: tuple[str, str]) -> Document:
    """Correlate the effects of the same heads in two studies.

    Raises:
        ValueError: too few heads, or all effects are equal.
    """
    heads = list(first.cells)
    effects = [[study.cells[head]["delta"] for head in heads] for study in (first, second)]
    with errors_of(f"{first.path} (first) and {second.path} (second)"):
        found = correlations(effects[0], effects[1])
    data: dict[str, Any] = {name: asdict(result) | {"ci": list(result.ci)} for name, result in found.items()}
    data["heads"] = len(heads)
    data |= {} if _two_tasks(first, second) else {"checkpoint": first.settings["checkpoint"]}
    data["studies"] = [_described(study) for study in (first, second)]
    data["effects"] = [{**head.facts(), "delta": [x, y]} for head, x, y in zip(heads, *effects, strict=True)]
    rows = [
        [name.capitalize(), f"{r.value:.3f}", f"{r.ci[0]:.3f} to {r.ci[1]:.3f}", small(r.p)]
        for name, r in found.items()
    ]
    notes = [f"{name.capitalize()}: {result.method}" for name, result in found.items()]
    for name, study in zip(names, (first, second), strict=True):
        notes.append(f"{name}: {study.path}, unpruned {study.measure} {study.baseline['score']:.2f}")
    pearson, spearman = found["pearson"], found["spearman"]
    finding = (
        f"the effects of {len(heads)} heads on the two test sets correlate with r = {pearson.value:.2f} "
        f"({p_said(small(pearson.p))}; Spearman {spearman.value:.2f})"
    )
    drawn = effects_scatter(data, names)
    table = Table(["", "coefficient", "95% interval", "p"], rows)
    return Document(drawn.caption, [table], [finding], notes=notes, scatters=[drawn], data=data)


def effects_scatter(data: dict[str, Any], names: tuple[str, str]) -> Scatter:
    """Return the figure of two studies' scores without each head, from the JSON of ``headprune correlate``."""
    baselines = tuple(study["baseline"] for study in data["studies"])
    points: dict[str, list[tuple[float, float]]] = {}
    for head in data["effects"]:
        x, y = (start + delta for start, delta in zip(baselines, head["delta"], strict=True))
        points.setdefault(head["component"], []).append((x, y))
    first, second = (f"{study['measure']} on {name}" for study, name in zip(data["studies"], names, strict=True))
    pearson, spearman = (data[name]["value"] for name in ("pearson", "spearman"))
    caption = f"Head ablation scores (Pearson {pearson:.2f}, Spearman {spearman:.2f})"
    return Scatter("correlation", caption, (first, second), points, baselines)


def dynamics(argv: list[str]) -> int:
    """Run ``headprune dynamics``: how gates were learned, from training logs."""
    args = _dynamics_parser().parse_args(argv)
    check_least(0, args, "at")
    document = gates_document(gates_value([read_run(path, args.until) for path in args.runs], args.score, args.at))
    if args.output is None:
        return show_document(document, args, None)
    folder = Path(args.output)
    folder.mkdir(parents=True, exist_ok=True)
    return show_document(document, args, lambda name: folder / name)


def _dynamics_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="headprune dynamics", description=_DYNAMICS)
    parser.add_argument("runs", metavar="RUN", nargs="+", help="--save-dir of a training, or its gates.jsonl")
    parser.add_argument(
        "-o", "--output", metavar="FOLDER", help="draw figures into this folder, as PNG and SVG (default: no figures)"
    )
    parser.add_argument(
        "--until",
        metavar="N",
        type=int,
        help="read the logs up to this update, as where runs are compared that have come to different ones (default: "
        "all of them)",
    )
    parser.add_argument(
        "--at",
        metavar="N,N…",
        type=numbers,
        help="updates at which to tell how much of the set is in the final one (default: 25%%, 50%%, 75%% of each run)",
    )
    parser.add_argument(
        "--score",
        metavar="NAME",
        help="result of the validations to show, by its name in the log (default: the first there is of "
        + ", ".join(SCORES)
        + ")",
    )
    add_output_flags(parser)
    add_width_flag(parser)
    return parser
