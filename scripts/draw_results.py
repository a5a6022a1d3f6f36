"""Redraw the figures of the stored results from the JSON files under examples/*/results (``make pictures``).

The repository only keeps the few figures that a README shows or names; this script draws all of them, beside their JSON
files or under ``--out``, and the README's picture, ``docs/front.png``. If files are given, only those are drawn. The
importance scores of a pruning study are in its folder, not in its JSON file, so their head map is not drawn.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import script_flags
from draw_masks import mask_figure
from PIL import Image
from shown_trainings import heads_by_component

from fairseq_headprune.cli.results import effects_scatter
from fairseq_headprune.files import read_json
from fairseq_headprune.jobs.methods import estimates, options
from fairseq_headprune.report.document import HeadMap, number_components
from fairseq_headprune.report.drawings import draw, draw_figure
from fairseq_headprune.report.speed import accuracy_figure, speed_figure
from fairseq_headprune.studies.ablate import Ablate
from fairseq_headprune.studies.curves import share_chart
from fairseq_headprune.studies.gate_runs import gates_document
from fairseq_headprune.studies.prune import importance_map
from fairseq_headprune.studies.pruners.figures import comparison_figure, set_figures
from fairseq_headprune.studies.sweep_result import epochs_chart

_EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def _measure(value: dict[str, Any]) -> str:
    return value.get("settings", {}).get("metric") or "BLEU"


def curves(value: dict[str, Any], stem: str) -> None:
    """The curves of ``headprune prune``; of several random orders their mean."""
    found = value.get("means") or value["curves"]
    draw_figure(share_chart(_measure(value), value["data"]["split"], found, value["alpha"]), f"{stem}-pruning")


def heads(value: dict[str, Any], stem: str) -> None:
    """Histogram and head map of ``headprune ablate``."""
    folder = SimpleNamespace(path=Path(value["study"]), runs=[])
    document = Ablate(value["settings"], folder=folder).result({cell["id"]: cell for cell in value["cells"]})
    draw(document, lambda name: Path(f"{stem}-{name}"))


def effects(value: dict[str, Any], stem: str) -> None:
    """The scatter plot of ``headprune correlate``."""
    first, second = (study["data"]["split"] for study in value["studies"])
    draw_figure(effects_scatter(value, (first, second)), stem)


def epochs(value: dict[str, Any], stem: str) -> None:
    """The curves of ``headprune sweep-epochs``; the right panel has the first two and the last two epochs."""
    for label in value["ranking"]:
        chart = epochs_chart(value["epochs"], label, _measure(value), "", value["alpha"])
        draw_figure(chart, f"{stem}-{chart.name}")


def by_chance(value: dict[str, Any], stem: str) -> None:
    """The curve of ``headprune random-study``."""
    random = [item for item in value["items"] if item["kind"] == "random"]
    if random:
        points = [{"percent": 0.0, "score": value["baseline"]["score"]}, *random]
        draw_figure(share_chart(_measure(value), value["data"]["split"], {"Random": points}, value["alpha"]), stem)


def changes(value: dict[str, Any], stem: str) -> None:
    """The head map of ``headprune weight-change``."""
    change = value["quantities"]["change"]
    components = number_components(change["heads"], "importance")
    draw_figure(HeadMap("Change of each head's q, k and v weights", "importance", components, change["what"]), stem)


def importance(value: dict[str, Any], stem: str) -> None:
    """The head map of ``headprune score``."""
    draw_figure(importance_map(value), stem)


def methods(value: dict[str, Any], stem: str) -> None:
    """The figures of ``compare-pruners``."""
    whole = next(row for row in value["rows"] if row["method"] == "unpruned")
    total = sum(heads_by_component(whole["kept"]))
    comparison_figure(value["points"], stem, total, value["measure"])
    set_figures(value["rows"], stem, total)
    mask_figure(value["rows"], f"{stem}-masks", value["measure"])


def trainings(value: dict[str, Any], stem: str) -> None:
    """The means over trainings that over_trainings.py found; of variants of importance, a figure for each reduction."""
    points = [{**row, "score": row["mean"], "seeds": range(row["n"])} for row in value["rows"]]
    total = max(point["heads"] or 0 for point in points)
    reductions = {options(point["method"])[0] for point in points if estimates(point["method"])}
    for name in sorted(reductions) or [None]:
        mine = [p for p in points if not estimates(p["method"]) or options(p["method"])[0] == name]
        comparison_figure(mine, f"{stem}-{name}" if name else stem, total, "BLEU")


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
    ({"of", "against", "rows"}, trainings),
    ({"by_update"}, dynamics),
    ({"heads_by_penalty"}, dynamics),
    ({"levels", "masks", "unpruned"}, speed),
]


def drawable(paths: list[Path]) -> Iterator[tuple[Path, Callable[[], None]]]:
    """Yield each file that can be drawn, with the function that draws it to a path without extension."""
    for path in paths:
        value = read_json(path)
        found = next((drawn for keys, drawn in DRAWN if isinstance(value, dict) and keys <= set(value)), None)
        if found:
            yield path, lambda stem, found=found, value=value: found(value, str(stem))


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
    parser = script_flags.new_parser(__doc__)
    parser.add_argument("files", nargs="*", type=Path, help="JSON files of results (default: all of examples/)")
    parser.add_argument("--out", type=Path, help="folder to write to (default: beside each file)")
    args = parser.parse_args()
    paths = args.files or sorted(_EXAMPLES.glob("*/results/**/*.json"))
    for path, drawn in drawable(paths):
        stem = path.with_suffix("")
        if args.out:
            stem = args.out / (stem.relative_to(_EXAMPLES) if path.is_relative_to(_EXAMPLES) else stem.name)
            stem.parent.mkdir(parents=True, exist_ok=True)
        drawn(stem)
        print(stem)
    if not args.files and not args.out:
        front(_EXAMPLES.parent / "docs" / "front.png")


if __name__ == "__main__":
    script_flags.run(main)
