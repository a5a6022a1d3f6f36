"""How gates were learned, as numbers and as a document, from the logs of trainings (Li et al. 2021, §5)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fairseq_headprune.files import PathLike, read_json, sha256
from fairseq_headprune.gates import log
from fairseq_headprune.gates.log import NAME, GateRun
from fairseq_headprune.parts import PAPER_NAMES
from fairseq_headprune.report.document import Document
from fairseq_headprune.report.pictures import GateCurves, HeadsByLayer, HeadsByPenalty, Picture, Points
from fairseq_headprune.report.tables import Table

_METHODS = {"l0": "L0", "dsp": "DSP", "ste": "STE"}

#: validation results that serve as the score, in order of preference
SCORES = ("bleu", "score", "nll_loss", "loss")

#: what a JSON document of ``headprune dynamics`` has
_KEYS = {"runs", "distribution", "score"}


def gates_value(runs: Sequence[GateRun], score: str | None = None, at: Sequence[int] | None = None) -> dict[str, Any]:
    """Return the numbers of some trainings as JSON values.

    Args:
        score: name of the validation result to show (default: the first there is of ``SCORES``).
        at: updates at which to tell how much of the set is in the final one (default: 25, 50, 75% of each run).

    Raises:
        ValueError: a log has no such validation result, or gates on other heads than the first.
    """
    name = _score_name(runs, score)
    groups: dict[str, list[GateRun]] = {}
    for run in runs:
        groups.setdefault(run.description["kind"], []).append(run)
    value: dict[str, Any] = {"score": name, "runs": [_described(run, name, at) for run in runs]}
    value["distribution"] = {
        kind: [{"kept": kept, "layers": layers} for kept, layers in log.distribution(group).items()]
        for kind, group in groups.items()
    }
    if len(runs) == 1:
        value["by_update"] = _by_update(runs[0], name)
    else:
        value["heads_by_penalty"] = [{"penalty": p, "kept": kept} for p, kept in log.heads_by_penalty([*runs])]
    return value


def holds_gates(path: PathLike) -> bool:
    """Whether a path is a training with a log of gates, such a log, or a JSON document of ``headprune dynamics``."""
    place = Path(path)
    if place.is_file():
        return place.suffix in (".json", ".jsonl")
    return (place / NAME).is_file() and not (place / "study.json").exists()


def read_gates(path: PathLike) -> Document:
    """Return the document of what :func:`holds_gates` accepts.

    Raises:
        ValueError: the log is damaged or empty, or the JSON document is of another verb.
    """
    if Path(path).suffix != ".json":
        return gates_document(gates_value([log.read_run(path)]), str(path))
    value = read_json(path)
    if not isinstance(value, dict) or not set(value) >= _KEYS:
        lacks = isinstance(value, dict) and "resamples" in value and not value.get("statistics")
        old = "; without sentence statistics, as here, its p cannot be computed again" if lacks else ""
        raise ValueError(
            f"{path} is not what headprune dynamics --json prints; of other verbs name the study folder{old}"
        )
    try:
        return gates_document(value, str(path))
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"{path} is damaged ({error!r}); make it again with headprune dynamics --json") from error


def gates_document(value: Mapping[str, Any], place: str = "") -> Document:
    """Report the runs, the distribution of their heads by method and, for several runs, heads by lambda.

    Args:
        value: of :func:`gates_value`.
        place: where it comes from.
    """
    tables = [_runs_table(value)]
    for kind, columns in value["distribution"].items():
        names = list(columns[0]["layers"])
        rows = [[str(c["kept"]), *(_layers(c["layers"][name]) for name in names)] for c in columns]
        header = [f"{_METHODS[kind]}: kept", *(f"{PAPER_NAMES[name]}, by layer" for name in names)]
        tables.append(Table(header, rows, "r" + "l" * len(names), notes=[""]))
    if value.get("heads_by_penalty"):
        rows = [[f"{point['penalty']:g}", str(point["kept"])] for point in value["heads_by_penalty"]]
        tables.append(Table(["lambda", "heads kept"], rows, "rr", notes=[""]))
    notes = [_settled_text(run) for run in value["runs"]]
    logs = {
        run["run"]: {"sha256": run["sha256"], **{name: of for name, of in run["gates"].items() if name != "heads"}}
        for run in value["runs"]
    }
    settings = {"study": "dynamics", "data": {"split": "valid"}, "logs": logs}
    made_by = [value[name] for name in ("made_by", "environment", "environment_of_the_report") if name in value]
    return Document(
        "How gates were learned",
        tables,
        notes=notes,
        panels=_panels(value),
        data=dict(value),
        state={"measure": shown(value["score"]), "unpruned": None, "done": 1, "planned": 1},
        provenance={"settings": settings, "runs": made_by, **({"study": place} if place else {})},
    )


def shown(score: str | None) -> str:
    """Return the name of a validation result for readers."""
    return "BLEU" if score == "bleu" else score or "score"


def _score_name(runs: Sequence[GateRun], asked: str | None) -> str | None:
    """Return the name of the validation result to show; None if there was no validation yet."""
    names = {name for found in runs for _, values in found.validations for name in values}
    if asked is None:
        return next((name for name in SCORES if name in names), None)
    for found in runs:
        if not log.scores(found, asked):
            known = ", ".join(sorted(names)) or "none, as there was no validation yet"
            raise ValueError(f"{found.path}: the log has no {asked!r} of a validation; there are {known}")
    return asked


def _described(run: GateRun, score: str | None, at: Sequence[int] | None) -> dict[str, Any]:
    """Describe a run by JSON values: its settings and the numbers of §5.6."""
    updates = at or [round(share * run.last_update) for share in (0.25, 0.5, 0.75)]
    first, before = log.settled(run)
    scores = log.scores(run, score) if score else []
    return {
        "run": str(run.path),
        "sha256": sha256(run.path),
        "gates": run.description,
        "heads": len(run.heads),
        "target": run.description.get("heads_kept"),
        "expected": run.expected,
        "kept": len(run.final),
        **({"sampled_as_learned": run.sampled[-1][1]} if run.sampled else {}),
        "final_set_of_update": run.sets[-1][0],
        "components": {c: sum(layers) for c, layers in log.layer_counts(run).items()},
        "settled": {"from_update": first, "other_at_update": before},
        "overlap": [{"update": n, "percent": log.overlap_at(run, n)} for n in updates],
        "score": {"update": scores[-1][0], "value": scores[-1][1]} if scores else None,
    }


def _by_update(run: GateRun, score: str | None) -> dict[str, list[dict[str, Any]]]:
    """Return the data of the figure of one run."""
    return {
        "sets": [
            {"update": n, "kept": len(chosen), "percent": log.overlap(chosen, run.final)} for n, chosen in run.sets
        ],
        "temperature": [{"update": n, "value": tau} for n, tau in run.temperatures],
        "sampled_as_learned": [{"update": n, "value": share} for n, share in run.sampled],
        "score": [{"update": n, "value": found} for n, found in (log.scores(run, score) if score else [])],
    }


def _panels(value: Mapping[str, Any]) -> list[Picture]:
    """Return the curves of one run; of several, heads by lambda and the layers of each method's heads."""
    runs = value["runs"]
    if len(runs) == 1:
        return [_curves(runs[0], value["by_update"], value["score"])]
    found: list[Picture] = []
    points = [(point["penalty"], point["kept"]) for point in value["heads_by_penalty"]]
    if points:
        total = max(run["heads"] for run in runs if "penalty" in run["gates"])
        found.append(HeadsByPenalty("heads-against-lambda", "Heads that L0 keeps, by lambda", points, total))
    for kind, columns in value["distribution"].items():
        counts = {column["kept"]: column["layers"] for column in columns}
        found.append(HeadsByLayer(f"distribution-{kind}", f"{_METHODS[kind]}: where the kept heads are", counts))
    return found


def _curves(run: Mapping[str, Any], drawn: Mapping[str, Any], score: str | None) -> GateCurves:
    def points(name: str, scale: float = 1.0) -> Points:
        return [(point["update"], scale * point["value"]) for point in drawn.get(name, [])]

    return GateCurves(
        "dynamics",
        f"{_name(run)}: {_METHODS[run['gates']['kind']]}, {run['kept']} of {run['heads']} heads",
        shown(score),
        [(point["update"], point["percent"]) for point in drawn["sets"] if point["percent"] is not None],
        points("score"),
        points("temperature"),
        [(point["update"], 100 * point["kept"] / run["heads"]) for point in drawn["sets"]],
        points("sampled_as_learned", 100.0),
    )


def _runs_table(value: Mapping[str, Any]) -> Table:
    """Tabulate the runs, one per row."""
    components = [c for c in PAPER_NAMES if any(c in run["components"] for run in value["runs"])]
    count = len(value["runs"][0]["overlap"])
    header = ["run", "method", "lambda", "target", "expected", "kept", "of", *(PAPER_NAMES[c] for c in components)]
    header += [f"overlap {number}" for number in range(1, count + 1)]
    sampled = any("sampled_as_learned" in run for run in value["runs"])
    header += ["sampled = learned"] * sampled + [shown(value["score"])]
    rows = []
    for run in value["runs"]:
        price = run["gates"].get("penalty")
        row: list[Any] = [_name(run), _METHODS[run["gates"]["kind"]]]
        target, expected = run.get("target"), run.get("expected")  # not in results of older versions
        row += [None if price is None else f"{price:g}"]
        row += [None if target is None else str(sum(target.values()) if isinstance(target, dict) else target)]
        row += [None if expected is None else f"{expected:.1f}", str(run["kept"]), str(run["heads"])]
        row += [run["components"].get(c) for c in components]
        row += [None if o["percent"] is None else f"{o['percent']:.1f}% ({o['update']})" for o in run["overlap"]]
        share = run.get("sampled_as_learned")
        row += [None if share is None else f"{100 * share:.0f}%"] * sampled
        row += [None if run["score"] is None else f"{run['score']['value']:.2f} ({run['score']['update']})"]
        rows.append(row)
    return Table(header, rows, "ll" + "r" * (len(header) - 2), notes=[""])


def _name(run: Mapping[str, Any]) -> str:
    return Path(run["run"]).resolve().parent.name or run["run"]


def _settled_text(run: Mapping[str, Any]) -> str:
    first, before = run["settled"]["from_update"], run["settled"]["other_at_update"]
    line = f"{run['run']}: the set of update {run['final_set_of_update']} is there from update {first} on"
    return line + (f"; at update {before} it was another" if before else ", the first in the log")


def _layers(counts: Sequence[float]) -> str:
    return " ".join(f"{count:.0f}" if count == int(count) else f"{count:.1f}" for count in counts)
