"""Redraw the figures of the stored results from the JSON files under examples/*/results (``make pictures``).

The repository only keeps the few figures that a README shows or names; this script draws all of them, beside their JSON
files or under ``--out``, and the README's picture, ``docs/front.png``. If files are given, only those are drawn. The
importance scores of a pruning study are in its folder, not in its JSON file, so their head map is not drawn.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fairseq_headprune.files import read_json  # noqa: E402
from fairseq_headprune.parts import PAPER_NAMES  # noqa: E402
from fairseq_headprune.report.document import (  # noqa: E402
    Curves,
    EpochCurves,
    HeadMap,
    Histogram,
    Scatter,
    number_components,
)
from fairseq_headprune.report.drawings import draw_figure  # noqa: E402
from fairseq_headprune.report.speed import accuracy_figure, speed_figure  # noqa: E402
from fairseq_headprune.report.tables import mark_of  # noqa: E402
from fairseq_headprune.studies.curves import curve_name  # noqa: E402
from fairseq_headprune.studies.gate_runs import gates_document  # noqa: E402
from fairseq_headprune.studies.pruners.figures import comparison_figure, set_figures  # noqa: E402

_EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def _measure(value: dict[str, Any]) -> str:
    return value.get("settings", {}).get("metric") or "BLEU"


def curves(value: dict[str, Any], stem: str) -> None:
    """The curves of ``headprune prune``."""
    curves = [{"name": curve_name(label), "points": points} for label, points in value["curves"].items()]
    chart = Curves("", _measure(value), value["baseline"]["score"], curves, alpha=value["alpha"])
    draw_figure(chart, f"{stem}-pruning")


def heads(value: dict[str, Any], stem: str) -> None:
    """Histogram and head map of ``headprune ablate``."""
    measure, baseline, cells = _measure(value), value["baseline"]["score"], value["cells"][1:]
    draw_figure(Histogram("", measure, [cell["score"] for cell in cells], baseline), f"{stem}-histogram")
    components: dict[str, list[list[dict[str, Any]]]] = {}
    for cell in cells:
        layers = components.setdefault(cell["component"], [])
        layers.extend([] for _ in range(cell["layer"] + 1 - len(layers)))
        layers[cell["layer"]].append({**cell, "mark": mark_of(cell["p"], cell["p_holm"], value["alpha"])})
    drawn = [{"component": component, "layers": layers} for component, layers in components.items()]
    caption, label = f"Difference in {measure} without each head", f"difference in {measure}"
    draw_figure(HeadMap(caption, "delta", drawn, label, alpha=value["alpha"]), f"{stem}-deltas")


def effects(value: dict[str, Any], stem: str) -> None:
    """The scatter plot of ``headprune correlate``."""
    unpruned = tuple(study["baseline"] for study in value["studies"])
    unpruned = tuple(score["score"] if isinstance(score, dict) else score for score in unpruned)
    points: dict[str, list[tuple[float, ...]]] = {}
    for head in value["effects"]:
        scores = tuple(start + delta for start, delta in zip(unpruned, head["delta"], strict=True))
        points.setdefault(head["component"], []).append(scores)
    names = tuple(f"{study['measure']} on {study['data']['split']}" for study in value["studies"])
    caption = f"Head ablation scores (Pearson r = {value['pearson']['value']:.2f})"
    draw_figure(Scatter("", caption, names, points, unpruned), stem)


def epochs(value: dict[str, Any], stem: str) -> None:
    """The curves of ``headprune sweep-epochs``; the right panel has the first two and the last two epochs."""
    numbers = [row["epoch"] for row in value["epochs"]]
    for label in value["ranking"]:
        found = [{"epoch": row["epoch"], "points": row["curves"][label]} for row in value["epochs"]]
        chosen, title = sorted({*numbers[:2], *numbers[-2:]}), f"Heads pruned: {PAPER_NAMES.get(label, label)}"
        draw_figure(EpochCurves("", _measure(value), title, found, chosen), f"{stem}-epochs-{label}")


def by_chance(value: dict[str, Any], stem: str) -> None:
    """The curve of ``headprune random-study``."""
    points = [item for item in value["items"] if item["kind"] == "random"]
    baseline = value["baseline"]["score"]
    if points:
        curve = [{"percent": 0.0, "score": baseline}, *points]
        chart = Curves("", _measure(value), baseline, [{"name": "Random", "points": curve}], alpha=value["alpha"])
        draw_figure(chart, stem)


def changes(value: dict[str, Any], stem: str) -> None:
    """The head map of ``headprune weight-change``."""
    change = value["quantities"]["change"]
    components = number_components(change["heads"], "importance")
    draw_figure(HeadMap("Change of each head's q, k and v weights", "importance", components, change["what"]), stem)


def importance(value: dict[str, Any], stem: str) -> None:
    """The head map of ``headprune score``."""
    components = number_components(value["scores"], "importance")
    draw_figure(HeadMap(f"Importance of heads ({value['estimator']})", "importance", components), stem)


def methods(value: dict[str, Any], stem: str) -> None:
    """The figures of ``compare-pruners``."""
    whole = next(row for row in value["rows"] if row["method"] == "unpruned")
    total = sum(layer.count("1") for layers in whole["kept"].values() for layer in layers)
    comparison_figure(value["points"], stem, total, value["measure"])
    set_figures(value["rows"], stem, total)


def dynamics(value: dict[str, Any], stem: str) -> None:
    """The first figure of ``headprune dynamics``: one training by update, or heads by lambda."""
    draw_figure(gates_document(value).panels[0], stem)


def speed(value: dict[str, Any], stem: str) -> None:
    """The figures of ``headprune bench-heads``."""
    speed_figure(value, stem)
    if value["points"]:
        accuracy_figure(value["points"], value["settings"]["batch_sizes"][0], value["metric"], f"{stem}-accuracy")


#: keys of a file -> the function that draws it; the first match is used
DRAWN: list[tuple[set[str], Callable[[dict[str, Any], str], None]]] = [
    ({"curves", "baseline"}, curves),
    ({"items", "baseline"}, by_chance),
    ({"found", "cells"}, heads),
    ({"effects", "studies"}, effects),
    ({"epochs", "ranking"}, epochs),
    ({"quantities"}, changes),
    ({"scores", "estimator"}, importance),
    ({"points", "costs", "rows"}, methods),
    ({"by_update"}, dynamics),
    ({"heads_by_penalty"}, dynamics),
    ({"levels", "masks", "unpruned"}, speed),
]


def drawable(paths: list[Path]) -> Iterator[tuple[Path, Callable[[], None]]]:
    """Yield each file that can be drawn, with the function that draws it to a path without extension."""
    for path in paths:
        value = read_json(path)
        draw = next((draw for keys, draw in DRAWN if isinstance(value, dict) and keys <= set(value)), None)
        if draw:
            yield path, lambda stem, draw=draw, value=value: draw(value, str(stem))


def front(path: Path) -> None:
    """The README's picture: the head map and the pruning curves of one model of Multi30k, side by side."""
    results = _EXAMPLES / "multi30k" / "results"
    with TemporaryDirectory() as folder:
        importance(read_json(results / "scores.json"), f"{folder}/scores")
        curves(read_json(results / "prune-each.json"), f"{folder}/prune")
        sides = [Image.open(f"{folder}/{name}.png").convert("RGB") for name in ("scores", "prune-pruning")]
    height = max(side.height for side in sides)
    sides = [side.resize((round(side.width * height / side.height), height)) for side in sides]
    picture = Image.new("RGB", (sum(side.width for side in sides), height), "white")
    picture.paste(sides[0], (0, 0))
    picture.paste(sides[1], (sides[0].width, 0))
    picture.save(path, optimize=True)


def main() -> None:
    """Draw the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, help="JSON files of results (default: all of examples/)")
    parser.add_argument("--out", type=Path, help="folder to write to (default: beside each file)")
    args = parser.parse_args()
    paths = args.files or sorted(_EXAMPLES.glob("*/results/**/*.json"))
    for path, draw in drawable(paths):
        stem = path.with_suffix("")
        if args.out:
            stem = args.out / (stem.relative_to(_EXAMPLES) if path.is_relative_to(_EXAMPLES) else stem.name)
            stem.parent.mkdir(parents=True, exist_ok=True)
        draw(stem)
        print(stem)
    if not args.files and not args.out:
        front(_EXAMPLES.parent / "docs" / "front.png")


if __name__ == "__main__":
    main()
