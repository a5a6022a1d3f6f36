"""The prunable parts of a model: their names, and tables with one entry per part (masks, scores, gates, layouts)."""

from fairseq_headprune.parts.components import (
    COMPONENTS,
    FFN,
    FFN_PARTS,
    HEADS,
    KEYS,
    PAPER_NAMES,
    Part,
    Shape,
    all_heads,
    attention_place,
    check_component,
    ffn_parts,
    has_ffn,
    noun,
    parse_components,
)
from fairseq_headprune.parts.mask import Mask
from fairseq_headprune.parts.table import Table

__all__ = [
    "COMPONENTS",
    "FFN",
    "FFN_PARTS",
    "HEADS",
    "KEYS",
    "Mask",
    "PAPER_NAMES",
    "Part",
    "Shape",
    "Table",
    "all_heads",
    "attention_place",
    "check_component",
    "ffn_parts",
    "has_ffn",
    "noun",
    "parse_components",
]
