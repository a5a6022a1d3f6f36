"""The masks of the one-head experiments (Michel et al. 2019, §3.2 and §3.3), one independent mask a head."""

from collections.abc import Iterable
from typing import Any

from fairseq_headprune.parts import Mask, Part


def one_removed(start: Mask, components: Iterable[str]) -> dict[Part, Mask]:
    """Return for every head that ``start`` keeps in these components the mask without just that head (§3.2).

    Raises:
        ValueError: there is no head to remove.
    """
    masks = {head: start.without([head]) for head in start.kept(components)}
    if not masks:
        raise ValueError("there is no head to ablate: all heads of the chosen components are pruned already")
    return masks


def one_kept(start: Mask, components: Iterable[str]) -> dict[tuple[str, int], dict[Part, Mask]]:
    """Return for every layer of these components, and every head that ``start`` keeps there, its mask (§3.3).

    In that mask the head is the only one of its layer; other layers and components are as in ``start``. Layers with
    fewer than two heads have nothing to choose from and are left out.

    Raises:
        ValueError: no layer has two heads.
    """
    layers: dict[tuple[str, int], list[Part]] = {}
    for head in start.kept(components):
        layers.setdefault((head.component, head.layer), []).append(head)
    masks = {
        layer: {head: start.without(other for other in heads if other != head) for head in heads}
        for layer, heads in layers.items()
        if len(heads) > 1
    }
    if not masks:
        raise ValueError("no layer of the chosen components keeps more than one head: there is nothing to choose from")
    return masks


def passed_over(start: Mask, components: Iterable[str]) -> list[dict[str, Any]]:
    """List the layers that keep fewer than two heads, with the heads they keep."""
    return [
        {"component": c, "layer": layer, "heads": [head for head, kept in enumerate(row) if kept]}
        for c in components
        for layer, row in enumerate(start.rows[c])
        if sum(row) < 2
    ]
