"""Summaries of measured masks, and measured masks joined with the scores they have."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return median, smallest and largest."""
    return {"median": median(values), "min": min(values), "max": max(values)}


def level(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Summarise masks that keep equally many heads: each mask counts once, with its median over rounds.

    Args:
        entries: as :func:`~fairseq_headprune.speed.by_heads.measure_masks` gives them.
    """
    return {
        "heads": entries[0]["heads"],
        "masks": len(entries),
        "parameters": spread([entry["parameters"] for entry in entries]),
        "bytes": spread([entry["bytes"] for entry in entries]),
        "batches": {
            size: {
                "examples_per_second": spread([e["batches"][size]["examples_per_second"] for e in entries]),
                "ratio": spread([e["batches"][size]["ratio"]["median"] for e in entries]),
            }
            for size in entries[0]["batches"]
        },
    }
