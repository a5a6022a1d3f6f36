"""The papers' notations for heads (``888444``, ``14,31,30`` and ``E:1:1,2``), and shares (``90%``).

A configuration gives the number of heads kept in each layer, a triple the number kept in each component, and a
descriptor names single heads. Descriptors are 1-based as in Michel's code and tables; all else here counts from 0.
"""

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction

from fairseq_headprune.parts.components import HEADS, Part
from fairseq_headprune.parts.mask import Mask

#: The names of Budhraja et al. 2020 (ES, ED, DS) and our own.
_CONFIG_KEYS = {"ES": "enc_self", "ED": "enc_dec", "DS": "dec_self", **{c: c for c in HEADS}}

#: The letters in Michel et al. 2019's code: E encoder-encoder, A encoder-decoder, D decoder-decoder.
_DESCRIPTOR_KEYS = {"E": "enc_self", "A": "enc_dec", "D": "dec_self"}


def parse_fraction(text: str) -> Fraction | None:
    """Read a share such as ``90%`` or ``0.9`` exactly; None for anything else."""
    try:
        return Fraction(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    except (ValueError, ZeroDivisionError):
        return None


def parse_count(flag: str, text: str | None) -> int | dict[str, int]:
    """Parse a number of heads: ``24``, or one per component: ``enc_self=8,enc_dec=8,dec_self=8``.

    Raises:
        ValueError: a number is not an integer, or a component is unknown or repeated.
    """
    try:
        if "=" not in str(text):
            return int(str(text))
        pairs = [part.split("=") for part in str(text).split(",")]
        counts = {component.strip(): int(number) for component, number in pairs}
    except ValueError:
        raise ValueError(
            f"{flag} {text}: not a number of heads; give an integer, or one a component as in enc_self=8,enc_dec=8"
        ) from None
    if set(counts) - set(HEADS) or len(counts) != len(pairs):
        raise ValueError(f"{flag} {text}: name each of {', '.join(HEADS)} at most once")
    return counts


def parse_layer_counts(text: str) -> list[int]:
    """Read the number of heads kept per layer: one digit each (``888444``), or comma-separated (``16,16,8``).

    Raises:
        ValueError: not in this form.
    """
    text = text.strip()
    if not re.fullmatch(r"\d+|\d+(,\d+)+,?|\d+,", text):
        raise ValueError(
            f"{text!r} is not a configuration: one digit a layer (888444), or counts separated by commas (16,16,8)"
        )
    return [int(part) for part in (text.split(",") if "," in text else text) if part]


def parse_config(arguments: Iterable[str]) -> dict[str, list[int]]:
    """Read ``ES=777322 ED=233777 DS=777332`` (one or several arguments) as component -> heads kept per layer.

    Raises:
        ValueError: an entry not of the form ``KEY=COUNTS``, or a repeated key.
        KeyError: an unknown key.
    """
    result: dict[str, list[int]] = {}
    for part in " ".join(arguments).split():
        key, equals, counts = part.partition("=")
        if not equals:
            raise ValueError(f"{part!r} is not KEY=COUNTS, as in ES=777322")
        if key not in _CONFIG_KEYS:
            raise KeyError(f"unknown component {key!r} in {part!r}; keys are {', '.join(_CONFIG_KEYS)}")
        component = _CONFIG_KEYS[key]
        if component in result:
            raise ValueError(f"{component} is given twice")
        result[component] = parse_layer_counts(counts)
    if not result:
        raise ValueError("the configuration is empty; write for example ES=777322 ED=233777 DS=777332")
    return result


def parse_triple(text: str) -> dict[str, int]:
    """Read ``14,31,30`` as heads kept in enc_self, enc_dec and dec_self (the papers' order ES, ED, DS).

    Raises:
        ValueError: not exactly three counts.
    """
    if not re.fullmatch(r"\s*\d+\s*,\s*\d+\s*,\s*\d+\s*", text):
        raise ValueError(f"{text!r} is not a triple of counts ES,ED,DS such as 14,31,30")
    return dict(zip(HEADS, map(int, text.split(",")), strict=True))


def parse_descriptor(text: str) -> list[Part]:
    """Read ``E:1:1,2`` (1-based) as heads; several descriptors are separated by spaces or semicolons.

    ``E:1:1,2`` is enc_self layer 0, heads 0 and 1.

    Raises:
        ValueError: not in this form, or a layer or head below 1.
    """
    heads = []
    for part in re.split(r"[\s;]+", text.strip()):
        match = re.fullmatch(r"([A-Za-z]):(\d+):(\d+(?:,\d+)*)", part)
        if not match or match[1] not in _DESCRIPTOR_KEYS:
            raise ValueError(
                f"{part!r} is not a descriptor such as E:1:1,2 (E enc-enc, A enc-dec, D dec-dec; layer; heads; from 1)"
            )
        numbers = [int(match[2]), *map(int, match[3].split(","))]
        if min(numbers) < 1:
            raise ValueError(f"{part!r}: layers and heads of a descriptor count from 1")
        heads += [Part(_DESCRIPTOR_KEYS[match[1]], numbers[0] - 1, head - 1) for head in numbers[1:]]
    return heads


def named_heads(text: str, shape: Mapping[str, list[int]]) -> list[Part]:
    """Read descriptors and check that a model of this shape has these heads.

    Raises:
        ValueError: not in this form, or a head that the model lacks; the message is 1-based, like descriptors.
    """
    heads = parse_descriptor(text)
    for component, layer, head in heads:
        letter = next(letter for letter, name in _DESCRIPTOR_KEYS.items() if name == component)
        counts = shape.get(component, [])
        if layer >= len(counts):
            raise ValueError(f"{letter}:{layer + 1}: {component} has the layers 1 to {len(counts)}, counted from 1")
        if head >= counts[layer]:
            raise ValueError(
                f"{letter}:{layer + 1}:{head + 1}: {component} has the heads 1 to {counts[layer]} there, counted from 1"
            )
    return heads


def format_descriptor(heads: Iterable[Part]) -> str:
    """Write heads as descriptors (1-based), one per layer, separated by spaces."""
    letters = {component: letter for letter, component in _DESCRIPTOR_KEYS.items()}
    layers: dict[tuple[str, int], list[int]] = {}
    for component, layer, head in heads:
        layers.setdefault((component, layer), []).append(head + 1)
    return " ".join(f"{letters[c]}:{layer + 1}:{','.join(map(str, sorted(hs)))}" for (c, layer), hs in layers.items())


def format_config(mask: Mask) -> dict[str, str]:
    """Write the heads kept in each layer as ``{"ES": "888444", …}`` (commas where a layer has more than 9)."""
    result = {}
    for key, component in _CONFIG_KEYS.items():
        if key != component and component in mask.rows:
            rows = mask.rows[component]
            comma = "," if any(len(row) > 9 for row in rows) else ""
            # A single count needs a trailing comma: "16" would be read as two layers.
            result[key] = comma.join(str(sum(row)) for row in rows) + (comma if len(rows) == 1 else "")
    return result


def check_config(config: Mapping[str, list[int]], shape: Mapping[str, list[int]]) -> None:
    """Check that a model of this shape has enough layers and heads for a configuration.

    Raises:
        ValueError: wrong number of layers, or more heads than a layer has.
    """
    for component, counts in config.items():
        layers = shape.get(component, [])
        if len(counts) != len(layers):
            raise ValueError(
                f"the configuration of {component} names {len(counts)} layers, the model has {len(layers)}"
            )
        for layer, (count, total) in enumerate(zip(counts, layers, strict=True)):
            if count > total:
                raise ValueError(f"{component} layer {layer}: cannot keep {count} heads of {total}")
