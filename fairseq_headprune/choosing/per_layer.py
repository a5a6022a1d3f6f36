"""Choose heads by layer: a given number in each, or none in some (Budhraja et al. 2020, Tables 2, 5 and 6)."""

import re
from collections.abc import Callable, Sequence

from fairseq_headprune.choosing.random_heads import lowest, numbered
from fairseq_headprune.choosing.scored import ranked
from fairseq_headprune.parts import Mask, Part
from fairseq_headprune.parts.notation import check_config
from fairseq_headprune.parts.scores import Scores

#: picks the given number of heads from the kept heads of one layer
Pick = Callable[[list[Part], int], list[Part]]


def keep_per_layer(mask: Mask, config: dict[str, list[int]], pick: Pick | None = None) -> Mask:
    """Keep the given number of heads in each layer; components that the configuration omits are unchanged.

    Args:
        config: component -> heads to keep in each layer.
        pick: how to choose them; default: the first ones.

    Raises:
        ValueError: wrong number of layers, or more heads than a layer still has.
    """
    check_config(config, mask.shape)
    chosen: list[Part] = []
    for component, counts in config.items():
        for layer, count in enumerate(counts):
            here = [head for head in mask.kept([component]) if head.layer == layer]
            if count > len(here):
                raise ValueError(
                    f"{component} layer {layer}: cannot keep {count} heads, {len(here)} are not pruned yet"
                )
            chosen += pick(here, count) if pick else here[:count]
    return mask.keeping(chosen, config)


def picking_highest(mask: Mask, scores: Scores, config: dict[str, list[int]]) -> Pick:
    """Return a function that picks the highest-scored heads of a layer.

    Raises:
        ValueError: a component without scores; when the function is called, too few scored heads.
    """
    missing = [component for component in config if component not in scores.rows]
    if missing:
        raise ValueError(f"the score file has no scores of {missing[0]}, which --config names")
    order = ranked(mask, scores)

    def pick(heads: list[Part], count: int) -> list[Part]:
        here = [head for head in order if head in heads]
        if count > len(here):
            where = f"{heads[0].component} layer {heads[0].layer}"
            raise ValueError(f"{where}: cannot keep {count} heads, {len(here)} of the kept ones have a score")
        return here[:count]

    return pick


def picking_by_chance(mask: Mask, seed: int) -> Pick:
    """Return a function that picks heads of a layer of a model at random.

    Raises:
        ValueError: a negative seed.
    """
    numbers = numbered(mask, seed)
    return lambda heads, count: lowest(heads, count, numbers)


def mirrored(config: dict[str, list[int]]) -> dict[str, list[int]]:
    """Return the adversarial twin of a configuration: the counts of each component reversed (Table 2)."""
    return {component: counts[::-1] for component, counts in config.items()}


def parse_layers(text: str, count: int) -> list[int]:
    """Read ``top:3``, ``bottom:3``, ``middle:4``, ``even``, ``odd``, ``1,2``, or a comma-separated list of these.

    Layers are 1-based as in the paper: ``bottom:1`` is layer 1, next to the embeddings; ``even`` is 2, 4, ….

    Args:
        count: number of layers of the component.

    Returns:
        The layers, ascending, from 0.

    Raises:
        ValueError: not in this form, a missing or repeated layer, or a middle that cannot be centred.
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
