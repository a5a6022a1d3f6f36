"""The heads pruned in each cell of a study: step by step, or one at a time (Michel et al. 2019, §3 to §5)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from fairseq_headprune.parts import HEADS, Mask, Part, by_layer, parse_components
from fairseq_headprune.parts.notation import parse_fraction
from fairseq_headprune.parts.scores import Scores


@dataclass(frozen=True)
class Step:
    """One point of a pruning curve.

    Attributes:
        number: k, from 0 (the unpruned model).
        percent: requested percentage of the prunable heads, 0 to 100.
        pruned: the resulting number of heads.
    """

    number: int
    percent: float
    pruned: int


def parse_step(text: str) -> Fraction:
    """Read a step such as ``10%`` or ``0.1`` exactly.

    Raises:
        ValueError: not a number, or not between 0.1% and 100%.
    """
    value = parse_fraction(text)
    if value is None:
        raise ValueError(f"--step {text!r} is not a share of the heads such as 10% or 0.1")
    if not Fraction(1, 1000) <= value <= 1:
        raise ValueError(f"--step {text} is out of range: a step is at least 0.1% and at most 100% of the heads")
    return value


def steps(heads: int, step: Fraction) -> list[Step]:
    """List the points of a curve over ``heads`` prunable heads: the k-th prunes round(k x step x heads), the last all.

    Raises:
        ValueError: there is no prunable head.
    """
    if heads < 1:
        raise ValueError("there is no head to prune: all heads of the chosen components are pruned already")
    points, number = [], 0
    while number * step < 1:
        points.append(Step(number, float(100 * number * step), round(number * step * heads)))
        number += 1
    return [*points, Step(number, 100.0, heads)]


def curves(choice: str, present: Sequence[str]) -> dict[str, list[str]]:
    """Return the curves for ``--components``: name -> the components whose heads it prunes.

    Args:
        choice: ``all``: one curve over all heads jointly; ``each``: one per attention component, with the others
            unpruned; or comma-separated components: one curve over their parts jointly.
        present: the components the model has.

    Raises:
        KeyError: an unknown component.
        ValueError: a component that the model does not have.
    """
    if choice == "each":
        return {c: [c] for c in HEADS if c in present}
    chosen = chosen_components(choice, present)
    return {"all" if choice == "all" else "+".join(chosen): chosen}


def chosen_components(choice: str, present: Sequence[str]) -> list[str]:
    """Return those of the comma-separated components that the model has, in the order of ``COMPONENTS``.

    The list may contain ``all`` (the attention components) and ``ffn`` (the feed-forward components).

    Raises:
        KeyError: an unknown component.
        ValueError: a component that the model does not have.
    """
    asked = parse_components(choice)
    named = [name.strip() for name in choice.split(",")]
    missing = [c for c in asked if c in named and c not in present]
    if missing:
        raise ValueError(f"the model has no {', '.join(missing)}; it has {', '.join(present)}")
    return [c for c in asked if c in present]


def next_heads(mask: Mask, scores: Scores, components: Sequence[str], start: Mask, pruned: int) -> list[Part]:
    """Return which heads to prune next so that ``pruned`` of the heads in ``start`` are pruned in total.

    Args:
        mask: the current mask; ``start`` is the mask at the start of the curve.
        scores: heads that ``mask`` already prunes are ignored.

    Raises:
        ValueError: too few heads have scores.
    """
    gone = len(start.kept(components)) - len(mask.kept(components))
    kept = set(mask.kept(components))
    order = [head for head in scores.pruning_order(components) if head in kept]
    missing = kept - set(order)
    if missing:
        raise ValueError(
            f"the scores do not rank {min(missing)} and {len(missing) - 1} more heads that the model keeps"
        )
    return order[: pruned - gone]


def one_removed(start: Mask, components: Iterable[str]) -> dict[Part, Mask]:
    """Return, for every head that ``start`` keeps in these components, the mask without that head (§3.2).

    Raises:
        ValueError: there is no head to remove.
    """
    masks = {head: start.without([head]) for head in start.kept(components)}
    if not masks:
        raise ValueError("there is no head to ablate: all heads of the chosen components are pruned already")
    return masks


def one_kept(start: Mask, components: Iterable[str]) -> dict[tuple[str, int], dict[Part, Mask]]:
    """Return, for every layer of these components and every head that ``start`` keeps there, a mask (§3.3).

    In that mask the head is the only one in its layer; other layers and components are as in ``start``. Layers with
    fewer than two heads are skipped.

    Raises:
        ValueError: no layer has two heads.
    """
    masks = {
        layer: {head: start.without(other for other in heads if other != head) for head in heads}
        for layer, heads in by_layer(start.kept(components)).items()
        if len(heads) > 1
    }
    if not masks:
        raise ValueError("no layer of the chosen components keeps more than one head: there is nothing to choose from")
    return masks


def passed_over(start: Mask, components: Iterable[str]) -> list[dict[str, Any]]:
    """List the layers that keep fewer than two heads, with these heads."""
    return [
        {"component": c, "layer": layer, "heads": [head for head, kept in enumerate(row) if kept]}
        for c in components
        for layer, row in enumerate(start.rows[c])
        if sum(row) < 2
    ]
