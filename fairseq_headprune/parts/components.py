"""The names of prunable parts: components, parts by original index, and the shape of a model."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

#: The three kinds of attention in an encoder-decoder, in the order of the papers (ES, ED, DS).
HEADS = ("enc_self", "enc_dec", "dec_self")

#: The feed-forward blocks of encoder and decoder.
FFN = ("enc_ffn", "dec_ffn")

COMPONENTS = HEADS + FFN

#: What one part of a feed-forward component is: the whole block, or one of its units.
FFN_PARTS = ("blocks", "units")

#: How the papers name the components (Michel et al. 2019, Figure 4).
PAPER_NAMES = {
    "enc_self": "Enc-Enc",
    "enc_dec": "Enc-Dec",
    "dec_self": "Dec-Dec",
    "enc_ffn": "Enc-FFN",
    "dec_ffn": "Dec-FFN",
}

#: the JSON keys of a part
KEYS = ("component", "layer", "head")

#: component -> number of parts in each layer, by original count.
Shape = dict[str, list[int]]


class Part(NamedTuple):
    """One attention head, feed-forward unit or block: component, layer and ORIGINAL index in the layer, from 0.

    A block is the only part of its layer and has index 0.
    """

    component: str
    layer: int
    index: int  # type: ignore[assignment]  # tuple.index is not needed

    def __str__(self) -> str:
        return f"{self.component} layer {self.layer} {noun(self.component)} {self.index}"

    def facts(self) -> dict[str, Any]:
        """Return the part as JSON values."""
        return dict(zip(KEYS, self, strict=True))

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> "Part":
        """Read what :meth:`facts` returned."""
        return cls(*(facts[key] for key in KEYS))


def by_layer(parts: Iterable[Part]) -> dict[tuple[str, int], list[Part]]:
    """Group parts by component and layer, in their order."""
    layers: dict[tuple[str, int], list[Part]] = {}
    for part in parts:
        layers.setdefault((part.component, part.layer), []).append(part)
    return layers


def noun(component: str) -> str:
    """Return the word for a part of this component."""
    return "head" if component in HEADS else "part"


def check_component(name: str) -> str:
    """Return the name if it is a component.

    Raises:
        KeyError: an unknown name.
    """
    if name not in COMPONENTS:
        raise KeyError(f"unknown component {name!r}; components are {', '.join(COMPONENTS)}")
    return name


def parse_components(text: str) -> list[str]:
    """Read a comma-separated list of components, in the order of ``COMPONENTS``.

    ``all`` means every attention component, ``ffn`` every feed-forward component.

    Raises:
        KeyError: an unknown component.
    """
    groups = {"all": HEADS, "ffn": FFN}
    names = [name.strip() for name in text.split(",")]
    asked = {component for name in names for component in groups.get(name) or (check_component(name),)}
    return [component for component in COMPONENTS if component in asked]


def ffn_parts(components: str | None, asked: str | None) -> str | None:
    """Return ``asked``; if it is None, ``blocks`` if ``--components`` names a feed-forward component."""
    named = {name.strip() for name in (components or "").split(",")}
    return asked or ("blocks" if {"ffn", *FFN} & named else None)


def has_ffn(components: Iterable[str]) -> bool:
    """Whether any of these components is a feed-forward one."""
    return any(component in FFN for component in components)


def attention_place(name: str) -> tuple[str, tuple[int, ...]]:
    """Return the component and the layer numbers (outermost first) encoded in an attention module's name."""
    parts = name.split(".")
    component = "enc_dec" if parts[-1] == "encoder_attn" else "dec_self" if "decoder" in parts else "enc_self"
    return component, tuple(int(part) for part in parts if part.isdecimal())


def all_heads(shape: Mapping[str, list[int]], components: Iterable[str] = HEADS) -> list[Part]:
    """List every part of these components of a model of this shape, in the fixed order component, layer, index."""
    wanted = set(components)
    return [
        Part(c, layer, index)
        for c in COMPONENTS
        if c in wanted
        for layer, count in enumerate(shape.get(c, []))
        for index in range(count)
    ]
