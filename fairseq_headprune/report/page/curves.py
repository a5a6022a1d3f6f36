"""What the report page shows of pruning studies: ``headprune prune`` and ``headprune sweep-epochs``."""

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from fairseq_headprune.cli.comparison_flags import epoch_legend, legend
from fairseq_headprune.parts import PAPER_NAMES, Mask
from fairseq_headprune.parts.scores import Scores
from fairseq_headprune.pruning import curves, steps
from fairseq_headprune.report import study_tables as tables
from fairseq_headprune.studies.curves import read_sweep, summary
from fairseq_headprune.studies.epochs import epoch_list
from fairseq_headprune.studies.finished import finished_cells
from fairseq_headprune.studies.folder import StudyFolder
from fairseq_headprune.studies.results import UNPRUNED, mean_curves, seeded_curves

#: What must agree for curves to be drawn into one plot.
_SAME = ("checkpoint", "start", "data", "generation", "metric", "tokenize")

_POINT = ("id", "step", "percent", "pruned", "score", "sd", "seeds", "ci", "p", "p_holm", "relative")


def pruning(folder: StudyFolder) -> dict[str, Any]:
    """Collect a study of ``headprune prune``, finished or not."""
    settings, done = folder.settings, finished_cells(folder)
    start, split, alpha = Mask(settings["start"]), settings["data"]["split"], settings["alpha"]
    parts = seeded_curves(curves(settings["components"], list(start.shape)), settings.get("seeds", []))
    plan = {label: steps(len(start.kept(part)), Fraction(settings["step"])) for label, part in parts.items()}
    planned = 1 + sum(len(points) - 1 for points in plan.values())
    unpruned = done.pop(UNPRUNED, None)
    finished = unpruned is not None and len(done) == planned - 1
    found = _curves(unpruned, list(done.values()), list(plan), alpha, finished) if unpruned else {}
    means = mean_curves(found) if finished else {}
    order, measure = _order(settings), tables.measure_of(settings)
    return {
        "heading": f"Pruning step by step, on {split} (order: {order})",
        "baseline": unpruned,
        "done": len(done) + bool(unpruned),
        "planned": planned,
        "comparisons": planned - 1,
        "missing": [] if finished else [_unfinished(len(done) + bool(unpruned), planned)],
        "found": [tables.curve_found(*curve, alpha, measure) for curve in found.items()] if finished else [],
        "maps": [] if settings.get("seeds") else _importance(folder),
        "charts": [
            {
                "kind": "pruning",
                "caption": f"{measure} on {split} by share of heads pruned",
                "baseline": unpruned["score"],
                "curves": [line(tables.curve_name(label), points) for label, points in (means or found).items()],
            }
        ]
        if unpruned
        else [],
        "parts": [
            tables.curve_caption(measure),
            tables.curve_table(found | means, alpha),
            legend(alpha, settings["resamples"], settings["seed"], tested=tables.pruned_points(found)),
        ]
        if unpruned
        else [],
        "order": order,
    }


def sweep(folder: StudyFolder) -> dict[str, Any]:
    """Collect the finished epochs of a study of ``headprune sweep-epochs``."""
    settings = folder.settings
    split, alpha, measure = settings["data"]["split"], settings["alpha"], tables.measure_of(settings)
    epochs = sorted(folder.cells().values(), key=lambda cell: cell["epoch"])
    value = read_sweep(folder, epochs) if epochs else {"epochs": [], "ranking": {}, "kept_within": {}}
    rows, parts, charts = value["epochs"], [], []
    for label in value["ranking"]:
        parts += tables.epoch_parts(value, label, alpha, measure)
        charts += [_epoch_chart(kind, rows, label, f"{measure} on {split}") for kind in ("relative", "score", "share")]
    begun = {int(path.name) for path in (folder.path / "epochs").glob("[0-9]*") if (path / "study.json").is_file()}
    begun -= {cell["epoch"] for cell in epochs}
    missing = [f"epoch {epoch} is begun and not finished" for epoch in sorted(begun)]
    missing += [] if epochs else ["no epoch is finished yet"]
    done = [cell["epoch"] for cell in epochs]
    gaps = sorted(set(range(min(done), max(done))) - {*done, *begun}) if done else []
    missing += [f"no result for epochs {epoch_list(gaps)}"] if gaps else []
    return {
        "heading": f"Pruning at every epoch, on {split} (order: {_order(settings)})",
        "baseline": rows[-1]["baseline"] if rows else None,
        "done": len(epochs),
        "planned": None,
        "comparisons": max((len(points) - 1 for row in rows for points in row["curves"].values()), default=1),
        "missing": missing,
        "found": tables.epoch_found(rows, value["kept_within"]) if rows else [],
        "maps": [],
        "charts": charts,
        "parts": [*parts, epoch_legend(rows, alpha, settings["resamples"], settings["seed"])] if rows else [],
    }


def together(studies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return charts of the curves of several pruning studies of the same model, data and settings.

    Args:
        studies: entries of the document; those of ``headprune prune`` with a chart are looked at.
    """
    groups: list[list[dict[str, Any]]] = []
    for study in studies:
        if study["kind"] != "prune" or not study["charts"]:
            continue
        same = (g for g in groups if all(_setting(g[0], name) == _setting(study, name) for name in _SAME))
        group = next(same, None)
        groups.append([study]) if group is None else group.append(study)
    return [_joined(group) for group in groups if len(group) > 1]


def _setting(study: dict[str, Any], name: str) -> Any:
    return study["provenance"]["settings"].get(name)


def _joined(group: list[dict[str, Any]]) -> dict[str, Any]:
    named = [(f"{curve['name']} ({study['order']})", study, curve) for study in group for curve in _own(study)]
    names = [name for name, _, _ in named]
    curves_ = [
        {**curve, "name": name if names.count(name) == 1 else f"{name}, {study['name']}"}
        for name, study, curve in named
    ]
    first = group[0]
    measure = first["measure"]
    return {
        "kind": "pruning",
        "measure": measure,
        "caption": f"{measure} on {_setting(first, 'data')['split']} by share of heads pruned, several studies",
        "baseline": first["charts"][0]["baseline"],
        "curves": curves_,
        "studies": [study["name"] for study in group],
        "alpha": first["alpha"],
        "resamples": first["resamples"],
    }


def _own(study: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**curve, "comparisons": study["comparisons"]} for curve in study["charts"][0]["curves"]]


def _order(settings: dict[str, Any]) -> str:
    return settings["order"] + (", re-estimated" if settings.get("reestimate") else "")


def _unfinished(done: int, planned: int) -> str:
    return (
        f"{done} of {planned} steps are done; p is corrected when all are: run headprune prune again with its settings"
    )


def _curves(
    unpruned: dict, cells: list[dict], labels: list[str], alpha: float, finished: bool
) -> dict[str, list[dict]]:
    cells = sorted(cells, key=lambda cell: cell["step"])
    if finished:
        return summary([unpruned, *cells], dict.fromkeys(labels), alpha)["curves"]
    found = {label: [{**unpruned, "p_holm": 1.0}] for label in labels}
    for cell in cells:
        found[cell["curve"]].append({**cell, "p_holm": None})
    return found


def line(name: str, points: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return one curve of a chart, with what the page tells of a point and nothing else."""
    return {"name": name, "points": [{key: point[key] for key in _POINT if key in point} for point in points]}


def _importance(folder: StudyFolder) -> list[dict[str, Any]]:
    """Return the map of the scores that the order comes from, if they are there yet."""
    path = folder.path / "scores.json"
    if not path.is_file():
        return []
    scores = Scores.load(path)
    drawn = [
        {
            "component": component,
            "name": PAPER_NAMES[component],
            "layers": [
                [
                    {"layer": layer, "head": head, **({"state": "pruned"} if value is None else {"importance": value})}
                    for head, value in enumerate(row)
                ]
                for layer, row in enumerate(rows)
            ],
        }
        for component, rows in scores.rows.items()
    ]
    return [
        {
            "caption": f"Scores that heads are pruned by ({scores.estimator}), the lowest first",
            "scale": "importance",
            "components": drawn,
            "sentences": {},
            "measure": None,
        }
    ]


def _epoch_chart(kind: str, rows: list[dict], label: str, score: str) -> dict[str, Any]:
    name = PAPER_NAMES.get(label, label)
    captions = {
        "relative": f"Share of the epoch's unpruned {score}, by epoch ({name})",
        "score": f"{score}, by epoch ({name})",
        "share": f"Share of the epoch's unpruned {score}, by share of heads pruned ({name})",
    }
    return {
        "kind": f"epochs-{kind}",
        "caption": captions[kind],
        "epochs": [
            {
                "epoch": row["epoch"],
                "unpruned": row["baseline"]["score"],
                "points": line("", row["curves"][label])["points"],
            }
            for row in rows
        ],
    }
