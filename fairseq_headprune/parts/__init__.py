"""The prunable parts of a model: their names, and tables with one entry a part (masks, scores, gates, layouts)."""

from fairseq_headprune.parts.components import (
    COMPONENTS,
    HEADS,
    KEYS,
    PAPER_NAMES,
    Part,
    Shape,
    all_heads,
    attention_place,
    check_component,
    parse_components,
)
from fairseq_headprune.parts.mask import FORMAT, Mask

__all__ = [
    "COMPONENTS",
    "FORMAT",
    "HEADS",
    "KEYS",
    "Mask",
    "PAPER_NAMES",
    "Part",
    "Shape",
    "all_heads",
    "attention_place",
    "check_component",
    "parse_components",
]
