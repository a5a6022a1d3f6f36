"""The names of prunable parts: components, parts by original index, and the shape of a model."""

from collections.abc import Mapping
from typing import Any, NamedTuple

#: The three kinds of attention in an encoder-decoder, in the order of the papers (ES, ED, DS).
HEADS = ("enc_self", "enc_dec", "dec_self")

#: How the papers write them (Michel et al. 2019, Figure 4).
PAPER_NAMES = {"enc_self": "Enc-Enc", "enc_dec": "Enc-Dec", "dec_self": "Dec-Dec"}

#: the components of whole models; for now the attention components
COMPONENTS = HEADS

#: how a part is written in JSON
KEYS = ("component", "layer", "head")

#: component -> number of heads of each layer, by original count.
Shape = dict[str, list[int]]


class Part(NamedTuple):
    """One attention head: component, layer and ORIGINAL head index, both from 0."""

    component: str
    layer: int
    index: int  # type: ignore[assignment]  # tuple.index is not needed

    def __str__(self) -> str:
        return f"{self.component} layer {self.layer} head {self.index}"

    def facts(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return dict(zip(KEYS, self, strict=True))

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> "Part":
        """Read what :meth:`facts` returned."""
        return cls(*(facts[key] for key in KEYS))


def check_component(name: str) -> str:
    """Return the name if it is a component.

    Raises:
        KeyError: it is not.
    """
    if name not in HEADS:
        raise KeyError(f"unknown component {name!r}; components are {', '.join(HEADS)}")
    return name


def parse_components(text: str) -> list[str]:
    """Read a comma-separated list of components (``all`` means every one), in the order of ``HEADS``.

    Raises:
        KeyError: an unknown component.
    """
    if text == "all":
        return list(HEADS)
    asked = {check_component(part.strip()) for part in text.split(",")}
    return [component for component in HEADS if component in asked]


def attention_place(name: str) -> tuple[str, tuple[int, ...]]:
    """Return the component and the layer numbers (outermost first) that an attention module's name tells."""
    parts = name.split(".")
    component = "enc_dec" if parts[-1] == "encoder_attn" else "dec_self" if "decoder" in parts else "enc_self"
    return component, tuple(int(part) for part in parts if part.isdecimal())


def all_heads(shape: Mapping[str, list[int]]) -> list[Part]:
    """List every head of a model of this shape, in the fixed order component, layer, head."""
    return [Part(c, layer, head) for c in HEADS for layer, n in enumerate(shape.get(c, [])) for head in range(n)]
