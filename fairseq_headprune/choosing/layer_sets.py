"""Sets of layers that lose all their heads (Budhraja et al. 2020, Tables 5 and 6)."""

import re
from collections.abc import Sequence

from fairseq_headprune.parts import Mask


def parse_layers(text: str, count: int) -> list[int]:
    """Read ``top:3``, ``bottom:3``, ``middle:4``, ``even``, ``odd``, ``1,2`` or parts joined by commas.

    The parts are 1-based as in the paper: ``bottom:1`` is layer 1, next to the embeddings, ``even`` is 2, 4, ….

    Args:
        count: number of layers of the component.

    Returns:
        The layers, ascending, from 0.

    Raises:
        ValueError: anything else, a layer that is not there or named twice, or a middle that is not centred.
    """
    layers: list[int] = []
    for part in text.split(","):
        layers += _part(part.strip(), text, count)
    twice = sorted({layer + 1 for layer in layers if layers.count(layer) > 1})
    if twice:
        raise ValueError(f"--layers {text}: layer {twice[0]} is named twice, of {count} layers")
    return sorted(layers)


def _part(part: str, text: str, count: int) -> list[int]:
    every = list(range(count))
    if part in ("even", "odd"):
        return every[1::2] if part == "even" else every[::2]
    match = re.fullmatch(r"(?:(top|bottom|middle):)?(\d+)", part)
    if not match:
        raise ValueError(
            f"--layers {text!r}: {part!r} is none of top:N, bottom:N, middle:N, even, odd or a layer from 1"
        )
    which, number = match[1], int(match[2])
    if not 1 <= number <= count:
        raise ValueError(f"--layers {text}: {part} is out of range, there are {count} layers (1 to {count})")
    if which is None:
        return [number - 1]
    if which == "middle":
        if (count - number) % 2:
            raise ValueError(f"--layers {text}: the middle {number} of {count} layers is not defined; name the layers")
        return every[(count - number) // 2 :][:number]
    return every[:number] if which == "bottom" else every[-number:]


def prune_layers(mask: Mask, text: str, components: Sequence[str]) -> tuple[Mask, dict[str, list[int]]]:
    """Prune all heads of a set of layers of each component; return the mask and the layers, from 0.

    Raises:
        ValueError: as for :func:`parse_layers`.
    """
    layers = {component: parse_layers(text, len(mask.rows[component])) for component in components}
    gone = [head for head in mask.kept(components) if head.layer in layers[head.component]]
    return mask.without(gone), layers
