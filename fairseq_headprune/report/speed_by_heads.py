"""Tables of speed and size by heads kept, and of pruners' masks with their scores."""

from collections.abc import Mapping, Sequence
from typing import Any

from fairseq_headprune.report.tables import Table


def levels_table(value: Mapping[str, Any], device: str | None = None) -> Table:
    """One row per head count, with medians over masks; first the unpruned model, timed with every group of masks.

    Args:
        value: the JSON document of ``headprune bench-heads``.
        device: shown in an additional first column.
    """
    whole = value["unpruned"]
    batches = {size: f"{found['examples_per_second']:,.0f} (1.00x)" for size, found in whole["batches"].items()}
    rows = [_row("unpruned", str(whole["heads"]), whole["parameters"], whole["bytes"], batches.values())]
    for level in value["levels"]:
        cells = [
            f"{found['examples_per_second']['median']:,.0f} ({found['ratio']['median']:.2f}x)"
            for found in level["batches"].values()
        ]
        parameters, size = level["parameters"]["median"], level["bytes"]["median"]
        rows.append(_row(str(level["masks"]), str(level["heads"]), parameters, size, cells))
    header = ["masks", "heads kept", "parameters", "file MB", *(f"batch {size}" for size in batches)]
    if device is not None:
        return Table(["device", *header], [[device, *row] for row in rows], "ll" + "r" * (len(header) - 1))
    return Table(header, rows)


def masks_table(entries: Sequence[Mapping[str, Any]]) -> Table:
    """One row per mask: named masks, or those of pruning methods with method and score."""
    rows = []
    for entry in entries:
        cells = [
            f"{found['examples_per_second']:,.0f} ({found['ratio']['median']:.2f}x)"
            for found in entry["batches"].values()
        ]
        score = f"{entry['score']:.2f}" if "score" in entry else None
        who = entry.get("method", entry.get("name"))
        rows.append([*_row(who, str(entry["heads"]), entry["parameters"], entry["bytes"], cells), score])
    sizes = entries[0]["batches"] if entries else {}
    return Table(
        ["masks of", "heads kept", "parameters", "file MB", *(f"batch {size}" for size in sizes), "score"], rows
    )


def levels_note(*values: Mapping[str, Any]) -> str:
    """Describe how the numbers of one or more documents were measured."""
    rounds = " and ".join(dict.fromkeys(str(value["settings"]["rounds"]) for value in values))
    examples = " and ".join(
        dict.fromkeys(
            f"{value['settings']['examples']} examples of {value['data']['task']} {value['data']['split']}"
            for value in values
        )
    )
    return (
        f"Examples a second (and speed to the unpruned model): median over random masks, timed in turn with it, "
        f"{rounds} rounds; {examples}; file: as headprune slim writes it, in 10^6 bytes."
    )


def _row(masks: str | None, heads: str, parameters: float, size: float, cells: Any) -> list[Any]:
    return [masks, heads, f"{parameters:,.0f}", f"{size / 1e6:.1f}", *cells]
