"""What the report page shows of the studies of single heads: ``headprune ablate`` and ``headprune keep-one``."""

from collections.abc import Iterable, Mapping
from typing import Any

from fairseq_headprune.cli.comparison_flags import legend
from fairseq_headprune.parts import PAPER_NAMES, Mask, Part
from fairseq_headprune.report import study_tables as tables
from fairseq_headprune.report.page.examples import Changes
from fairseq_headprune.single_heads import one_kept, one_removed, passed_over
from fairseq_headprune.studies.finished import finished_cells
from fairseq_headprune.studies.folder import StudyFolder
from fairseq_headprune.studies.results import UNPRUNED, best_of_layers, found, with_delta, with_holm

_VALUES = ("id", "score", "delta", "p", "p_holm", "ci")


def ablation(folder: StudyFolder, examples: int) -> dict[str, Any]:
    """Collect a study of ``headprune ablate``, finished or not.

    Args:
        examples: how many sentences are shown a head.
    """
    settings = folder.settings
    start, split, alpha = Mask(settings["start"]), settings["data"]["split"], settings["alpha"]
    heads, measure = list(one_removed(start, settings["components"])), tables.measure_of(settings)
    baseline, cells, missing = _cells(folder, "", heads, split)
    changes = Changes(folder, split, UNPRUNED, examples if baseline and measure == tables.BLEU else 0)
    head_map = _head_map(start, settings["components"], cells, changes, alpha)
    parts: list[Any] = []
    if cells:
        parts = tables.ablation_tables(tables.by_head(list(cells.values()), start.shape, alpha), measure)
        parts.append(f"{measure} of the unpruned model on {split}: {baseline['score']:.2f}")
        parts.append(legend(alpha, settings["resamples"], settings["seed"], tested=cells.values()))
    return {
        "heading": f"Every head masked alone, on {split}",
        "baseline": baseline,
        "done": len(cells) + bool(baseline),
        "planned": len(heads) + 1,
        "comparisons": len(heads),
        "missing": missing + changes.lacking,
        "found": [] if missing else [tables.ablation_found(found(list(cells.values()), alpha), measure)],
        "maps": [
            {
                "caption": f"Difference in {measure} on {split} when one head is masked",
                "masked": "Without the head",
                **head_map,
            }
        ],
        "parts": parts,
    }


def kept_heads(folder: StudyFolder, examples: int) -> dict[str, Any]:
    """Collect a study of ``headprune keep-one``, finished or not.

    Args:
        examples: how many sentences are shown a head.
    """
    settings = folder.settings
    start, components, alpha = Mask(settings["start"]), settings["components"], settings["alpha"]
    selected, reported = settings["select_data"]["split"], settings["data"]["split"]
    layers = one_kept(start, components)
    heads, measure = [head for candidates in layers.values() for head in candidates], tables.measure_of(settings)
    first, tried, missing = _cells(folder, f"{selected}@", heads, selected)
    baseline, chosen = None, {}
    if not missing:
        best = [Part.of(cell) for cell in best_of_layers(tried.values())]
        if selected == reported:
            baseline, chosen = first, {head: tried[head] for head in best}
        else:
            baseline, chosen, missing = _cells(folder, f"{reported}@", best, reported)
    changes = Changes(folder, selected, f"{selected}@{UNPRUNED}", examples if first and measure == tables.BLEU else 0)
    head_map = _head_map(start, components, tried, changes, alpha)
    _add_reported(head_map, chosen, reported)
    skipped, cells = passed_over(start, components), list(chosen.values())
    tests = len(heads if selected == reported else layers)
    parts: list[Any] = []
    if cells:
        parts = [
            tables.keep_one_caption(selected, reported, measure),
            tables.keep_one_table(cells, skipped, alpha),
            f"{measure} of the unpruned model on {reported}: {baseline['score']:.2f}",
            legend(alpha, settings["resamples"], settings["seed"], tested=cells, tests=tests),
            *map(tables.passed_text, skipped),
            *([tables.optimistic(len(tried))] if selected == reported else []),
        ]
    both = selected != reported
    return {
        "heading": f"One head kept in a layer, on {reported}" + (f" (chosen on {selected})" if both else ""),
        "baseline": baseline or first,
        "done": len(tried) + bool(first) + (len(chosen) + bool(baseline) if both else 0),
        "planned": len(heads) + 1 + (len(layers) + 1 if both else 0),
        "comparisons": len(heads),
        "comparisons_reported": tests,
        "missing": missing + changes.lacking,
        "found": [] if missing else [tables.keep_one_found(cells, alpha, measure)],
        "maps": [
            {
                "caption": f"Difference in {measure} on {selected} when a layer keeps one head only",
                "masked": "With this head only in its layer",
                **head_map,
            }
        ],
        "parts": parts,
    }


def _cells(
    folder: StudyFolder, prefix: str, heads: list[Part], split: str
) -> tuple[dict | None, dict[Part, dict], list[str]]:
    """Return the unpruned cell, the finished cells of these heads, and what is missing of them."""
    done = finished_cells(folder)
    baseline = done.get(prefix + UNPRUNED)
    names = {head: prefix + "-".join(map(str, head)) for head in heads}
    cells = {head: with_delta(done[name], baseline) for head, name in names.items() if baseline and name in done}
    if len(cells) == len(heads):
        return baseline, dict(zip(cells, with_holm(list(cells.values())), strict=True)), []
    missing = (
        f"{len(cells)} of {len(heads)} masks are done on {split}; p is corrected when all are: run headprune "
        f"{folder.settings['study']} again with its settings"
    )
    return baseline, {head: {**cell, "p_holm": None} for head, cell in cells.items()}, [missing]


def _head_map(
    start: Mask, components: Iterable[str], cells: Mapping[Part, dict], changes: Changes, alpha: float
) -> dict[str, Any]:
    """Arrange cells as component -> layers -> heads; a head without a cell is pruned from the start, or missing."""
    drawn = []
    for component in components:
        layers: list[list[dict[str, Any]]] = []
        for layer, row in enumerate(start.rows[component]):
            layers.append([])
            for head, kept in enumerate(row):
                entry: dict[str, Any] = {"layer": layer, "head": head}
                cell = cells.get(Part(component, layer, head))
                if cell is None:
                    entry["state"] = "missing" if kept else "pruned"
                else:
                    entry |= {name: cell[name] for name in _VALUES if name in cell}
                    entry |= {"mark": tables.mark(cell, alpha), "examples": changes.of(cell["id"])}
                layers[-1].append(entry)
        drawn.append({"component": component, "name": PAPER_NAMES[component], "layers": layers})
    return {"scale": "delta", "components": drawn, "sentences": changes.sentences, "measure": changes.measure}


def _add_reported(head_map: dict[str, Any], chosen: Mapping[Part, dict], split: str) -> None:
    """Tell at the best head of each layer what it does on the split that is reported."""
    for part in head_map["components"]:
        for layer in part["layers"]:
            for entry in layer:
                cell = chosen.get(Part(part["component"], entry["layer"], entry["head"]))
                if cell:
                    entry["reported"] = {"split": split, **{name: cell[name] for name in _VALUES if name in cell}}
