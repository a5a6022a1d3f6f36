"""``headprune dynamics``: how gates were learned, from training logs."""

import argparse
from pathlib import Path
from typing import Any

from fairseq_headprune.cli.common import Parser, add_output_flags, add_width_flag, as_for_paper, emit
from fairseq_headprune.files import sha256
from fairseq_headprune.gates import dynamics
from fairseq_headprune.gates.dynamics import GateRun
from fairseq_headprune.parts import PAPER_NAMES
from fairseq_headprune.report.document import Document
from fairseq_headprune.report.tables import Table

_DESCRIPTION = """How the set of kept heads came about while gates were learned (Li et al. 2021, §5.2, §5.5, §5.6), from
the log gates.jsonl of trainings. The final set is the one of the last logged update, so a training may still be
running. One training is drawn by update (Figures 7 and 8); of several, heads against lambda (Figure 2, L0 penalties)
and the distribution of the kept heads over layers (Figure 6, one figure a method)."""

_METHODS = {"l0": "L0", "dsp": "DSP", "ste": "STE"}

#: validation results that serve as the score, in order of preference
_SCORES = ("bleu", "score", "nll_loss", "loss")


def run(argv: list[str]) -> int:
    """Run the verb."""
    args = _parser().parse_args(argv)
    runs = [dynamics.read_run(path, args.until) for path in args.runs]
    score = _score_name(runs, args.score)
    groups: dict[str, list[GateRun]] = {}
    for found in runs:
        groups.setdefault(found.description["kind"], []).append(found)
    distributions = {kind: dynamics.distribution(group) for kind, group in groups.items()}
    value: dict[str, Any] = {"score": score, "runs": [_described(found, score, args.at) for found in runs]}
    value["distribution"] = {
        kind: [{"kept": kept, "layers": layers} for kept, layers in found.items()]
        for kind, found in distributions.items()
    }
    if len(runs) == 1:
        value["by_update"] = _by_update(runs[0], score)
    else:
        value["heads_by_penalty"] = [{"penalty": p, "kept": kept} for p, kept in dynamics.heads_by_penalty(runs)]
    value["figures"] = []
    if args.output is not None:
        folder = Path(args.output)
        folder.mkdir(parents=True, exist_ok=True)
        with as_for_paper(args):
            written = _draw_one(runs[0], value, folder) if len(runs) == 1 else _draw_many(runs, distributions, folder)
        value["figures"] = [str(path) for path in written]
    emit(value, args.json, _document(value).render(args.format, value["figures"]))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="headprune dynamics", description=_DESCRIPTION)
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
        type=_updates,
        help="updates at which to tell how much of the set is in the final one (default: 25%%, 50%%, 75%% of each run)",
    )
    parser.add_argument(
        "--score",
        metavar="NAME",
        help="result of the validations to show, by its name in the log (default: the first there is of "
        + ", ".join(_SCORES)
        + ")",
    )
    add_output_flags(parser)
    add_width_flag(parser)
    return parser


def _updates(text: str) -> list[int]:
    try:
        updates = [int(part) for part in text.split(",")]
    except ValueError:
        updates = [-1]
    if min(updates) < 0:
        raise argparse.ArgumentTypeError(f"{text!r}: give updates as in 1000,16000")
    return updates


def _score_name(runs: list[GateRun], asked: str | None) -> str | None:
    """Return the name of the validation result to show; None if there was no validation yet."""
    names = {name for found in runs for _, values in found.validations for name in values}
    if asked is None:
        return next((name for name in _SCORES if name in names), None)
    for found in runs:
        if not dynamics.scores(found, asked):
            known = ", ".join(sorted(names)) or "none, as there was no validation yet"
            raise ValueError(f"{found.path}: the log has no {asked!r} of a validation; there are {known}")
    return asked


def _described(run: GateRun, score: str | None, at: list[int] | None) -> dict[str, Any]:
    """Describe a run by JSON values: its settings and the numbers of §5.6."""
    updates = at or [round(share * run.last_update) for share in (0.25, 0.5, 0.75)]
    first, before = dynamics.settled(run)
    scores = dynamics.scores(run, score) if score else []
    return {
        "run": str(run.path),
        "sha256": sha256(run.path),
        "gates": run.description,
        "heads": len(run.heads),
        "target": run.description.get("heads_kept"),
        "expected": run.expected,
        "kept": len(run.final),
        **({} if run.sampled is None else {"sampled_as_learned": run.sampled}),
        "final_set_of_update": run.sets[-1][0],
        "components": {c: sum(layers) for c, layers in dynamics.layer_counts(run).items()},
        "settled": {"from_update": first, "other_at_update": before},
        "overlap": [{"update": n, "percent": dynamics.overlap_at(run, n)} for n in updates],
        "score": {"update": scores[-1][0], "value": scores[-1][1]} if scores else None,
    }


def _by_update(run: GateRun, score: str | None) -> dict[str, list[dict[str, Any]]]:
    """Return the data of the figure of one run."""
    return {
        "sets": [
            {"update": n, "kept": len(chosen), "percent": dynamics.overlap(chosen, run.final)} for n, chosen in run.sets
        ],
        "temperature": [{"update": n, "value": tau} for n, tau in run.temperatures],
        "score": [{"update": n, "value": found} for n, found in (dynamics.scores(run, score) if score else [])],
    }


def _draw_one(run: GateRun, value: dict[str, Any], folder: Path) -> list[Path]:
    from fairseq_headprune.report.gate_figures import dynamics_figure  # matplotlib: not for --help

    drawn = value["by_update"]
    overlap = [(point["update"], point["percent"]) for point in drawn["sets"] if point["percent"] is not None]
    score, temperature = ([(p["update"], p["value"]) for p in drawn[name]] for name in ("score", "temperature"))
    title = f"{run.name}: {_METHODS[run.description['kind']]}, {len(run.final)} of {len(run.heads)} heads"
    return dynamics_figure(overlap, score, temperature, _shown(value["score"]), title, folder / "dynamics")


def _draw_many(
    runs: list[GateRun], distributions: dict[str, dict[int, dict[str, list[float]]]], folder: Path
) -> list[Path]:
    from fairseq_headprune.report.gate_figures import head_distribution, heads_against_penalty

    written = []
    points = dynamics.heads_by_penalty(runs)
    if points:
        total = max(len(run.heads) for run in runs if "penalty" in run.description)
        written += heads_against_penalty(points, total, folder / "heads-against-lambda")
    for kind, counts in distributions.items():
        title = f"{_METHODS[kind]}: where the kept heads are"
        written += head_distribution(counts, title, folder / f"distribution-{kind}")
    return written


def _document(value: dict[str, Any]) -> Document:
    """Report the runs, the distribution of their heads by method and, for several runs, heads by lambda."""
    tables = [_runs_table(value)]
    for kind, columns in value["distribution"].items():
        names = list(columns[0]["layers"])
        rows = [[str(c["kept"]), *(_layers(c["layers"][name]) for name in names)] for c in columns]
        header = [f"{_METHODS[kind]}: kept", *(f"{PAPER_NAMES[name]}, by layer" for name in names)]
        tables.append(Table(header, rows, "r" + "l" * len(names), notes=[""]))
    if value.get("heads_by_penalty"):
        rows = [[f"{point['penalty']:g}", str(point["kept"])] for point in value["heads_by_penalty"]]
        tables.append(Table(["lambda", "heads kept"], rows, "rr", notes=[""]))
    return Document("How gates were learned", tables, notes=[_settled_text(run) for run in value["runs"]], data=value)


def _runs_table(value: dict[str, Any]) -> Table:
    """Tabulate the runs, one per row."""
    shown = [c for c in PAPER_NAMES if any(c in run["components"] for run in value["runs"])]
    count = len(value["runs"][0]["overlap"])
    header = ["run", "method", "lambda", "target", "expected", "kept", "of", *(PAPER_NAMES[c] for c in shown)]
    header += [f"overlap {number}" for number in range(1, count + 1)]
    sampled = any("sampled_as_learned" in run for run in value["runs"])
    header += ["sampled = learned"] * sampled + [_shown(value["score"])]
    rows = []
    for run in value["runs"]:
        price = run["gates"].get("penalty")
        row = [Path(run["run"]).parent.name or run["run"], _METHODS[run["gates"]["kind"]]]
        target, expected = run["target"], run["expected"]
        row += [None if price is None else f"{price:g}"]
        row += [None if target is None else str(sum(target.values()) if isinstance(target, dict) else target)]
        row += [None if expected is None else f"{expected:.1f}", str(run["kept"]), str(run["heads"])]
        row += [run["components"].get(c) for c in shown]
        row += [None if o["percent"] is None else f"{o['percent']:.1f}% ({o['update']})" for o in run["overlap"]]
        share = run.get("sampled_as_learned")
        row += [None if share is None else f"{100 * share:.0f}%"] * sampled
        row += [None if run["score"] is None else f"{run['score']['value']:.2f} ({run['score']['update']})"]
        rows.append(row)
    return Table(header, rows, "ll" + "r" * (len(header) - 2), notes=[""])


def _settled_text(run: dict[str, Any]) -> str:
    first, before = run["settled"]["from_update"], run["settled"]["other_at_update"]
    line = f"{run['run']}: the set of update {run['final_set_of_update']} is there from update {first} on"
    return line + (f"; at update {before} it was another" if before else ", the first in the log")


def _layers(counts: list[float]) -> str:
    return " ".join(f"{count:.0f}" if count == int(count) else f"{count:.1f}" for count in counts)


def _shown(score: str | None) -> str:
    return "BLEU" if score == "bleu" else score or "score"
