"""The prunable parts of a model: their names, and tables with one entry per part (masks, scores, gates, layouts)."""

from fairseq_headprune.parts.components import COMPONENTS as COMPONENTS
from fairseq_headprune.parts.components import FFN as FFN
from fairseq_headprune.parts.components import FFN_PARTS as FFN_PARTS
from fairseq_headprune.parts.components import HEADS as HEADS
from fairseq_headprune.parts.components import KEYS as KEYS
from fairseq_headprune.parts.components import PAPER_NAMES as PAPER_NAMES
from fairseq_headprune.parts.components import Part as Part
from fairseq_headprune.parts.components import Shape as Shape
from fairseq_headprune.parts.components import all_heads as all_heads
from fairseq_headprune.parts.components import attention_place as attention_place
from fairseq_headprune.parts.components import by_layer as by_layer
from fairseq_headprune.parts.components import check_component as check_component
from fairseq_headprune.parts.components import ffn_parts as ffn_parts
from fairseq_headprune.parts.components import has_ffn as has_ffn
from fairseq_headprune.parts.components import noun as noun
from fairseq_headprune.parts.components import parse_components as parse_components
from fairseq_headprune.parts.mask import Mask as Mask
from fairseq_headprune.parts.table import PartTable as PartTable
