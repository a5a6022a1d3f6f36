"""How much each head's weights changed between two checkpoints (Budhraja et al. 2020, Figure 2)."""

from collections.abc import Mapping
from typing import Any

import torch
from scipy import stats

from fairseq_headprune.checkpoints import State, part_modules, stored_layout, stored_mask
from fairseq_headprune.evaluation.p_values import positive
from fairseq_headprune.parts import HEADS, PAPER_NAMES, Mask
from fairseq_headprune.removal.surgery import split_joined
from fairseq_headprune.report.document import Document, HeadMap, number_components
from fairseq_headprune.report.marks import small
from fairseq_headprune.report.tables import Table, paper_head_table

#: quantity -> what it is
QUANTITIES = {
    "change": "mean absolute change of the weights",
    "relative": "mean absolute change of the weights / mean absolute weight before",
    "magnitude": "change of the mean absolute weight",
}

_PARTS = ("q_proj.weight", "k_proj.weight", "v_proj.weight")

#: component -> one list per layer -> one number per head; None if the head is not in both checkpoints
Values = dict[str, list[list[float | None]]]


def weight_change(before: State, after: State) -> dict[str, Values]:
    """Compare the q, k and v weights (W^q, W^k, W^v of a head together, no biases) of two checkpoints of one model.

    Heads that are masked or removed in ``after`` have no value: they were not trained. Heads keep their original
    numbers, so ``after`` may be a slim model.

    Returns:
        quantity of :data:`QUANTITIES` -> values.

    Raises:
        ValueError: checkpoints of different shapes, or weights that are not finite.
    """
    shape, other = stored_layout(before).original, stored_layout(after).original
    if shape != other:
        raise ValueError(f"the checkpoints are of different models: heads {shape} before, {other} after")
    kept = (stored_mask(after) or Mask.full(shape)).rows
    old, new = _heads(before), _heads(after)
    result: dict[str, Values] = {
        name: {c: [[None] * n for n in shape[c]] for c in HEADS if c in shape} for name in QUANTITIES
    }
    for (component, layer, head), weights in old.items():
        if (component, layer, head) not in new or not kept[component][layer][head]:
            continue
        for name, value in _compare(weights, new[component, layer, head], f"{component} layer {layer}").items():
            result[name][component][layer][head] = value
    return result


def _heads(state: State) -> dict[tuple[str, int, int], torch.Tensor]:
    """Return the q, k and v weights of each existing head, one flat float64 tensor per head, by original number."""
    layout = stored_layout(state)
    found = {}
    for component, layer, prefix in part_modules(state["model"], HEADS):
        mine = {n.removeprefix(prefix): t for n, t in state["model"].items() if n.startswith(prefix)}
        attention = split_joined(mine)
        heads = layout.indices(component, layer)
        for place, head in enumerate(heads):
            rows = [attention[part].chunk(len(heads))[place].flatten() for part in _PARTS]
            found[component, layer, head] = torch.cat(rows).double()
    return found


def _compare(before: torch.Tensor, after: torch.Tensor, where: str) -> dict[str, float]:
    if before.shape != after.shape:
        raise ValueError(f"{where}: heads have {before.numel()} weights before and {after.numel()} after")
    size = before.abs().mean()
    change = (after - before).abs().mean()
    values = {"change": change, "relative": change / size, "magnitude": after.abs().mean() - size}
    if not all(torch.isfinite(value) for value in values.values()):
        raise ValueError(f"{where}: there are weights that are not finite, or all are 0")
    return {name: float(value) for name, value in values.items()}


def layer_effects(values: Values) -> dict[str, dict[str, Any]]:
    """Test each component for differences between its layers (Kruskal-Wallis), and measure their spread.

    Returns:
        component -> ``h``, ``p`` and ``layers`` (those with heads); the ``mean`` of each layer (None without heads),
        and ``spread``: (largest - smallest) / smallest layer mean, if these are above 0. The paper claims a spread
        below 0.1. ``h`` and ``p`` are None for fewer than two layers with heads, or if all heads are equal.
    """
    result = {}
    for component, layers in values.items():
        groups = [[value for value in layer if value is not None] for layer in layers]
        means = [sum(group) / len(group) if group else None for group in groups]
        full = [group for group in groups if group]
        known = [mean for mean in means if mean is not None]
        h, p = _kruskal(full)
        spread = (max(known) - min(known)) / min(known) if known and min(known) > 0 else None
        result[component] = {"h": h, "p": p, "layers": len(full), "mean": means, "spread": spread}
    return result


def _kruskal(groups: list[list[float]]) -> tuple[float | None, float | None]:
    if len(groups) < 2 or len({value for group in groups for value in group}) < 2:
        return None, None
    result = stats.kruskal(*groups)
    return float(result.statistic), positive(float(result.pvalue))


def overall(values: Mapping[str, Any]) -> dict[str, float]:
    """Return mean, minimum and maximum over all heads, and their number.

    Raises:
        ValueError: there are no values.
    """
    found = [value for layers in values.values() for layer in layers for value in layer if value is not None]
    if not found:
        raise ValueError("the two checkpoints have no head in common that is not pruned")
    return {"mean": sum(found) / len(found), "min": min(found), "max": max(found), "heads": len(found)}


def document(before: State, after: State, files: dict[str, Any], shown: str = "relative") -> Document:
    """Compare two checkpoints; report all quantities as data, and one of them as tables and a figure.

    Args:
        files: description of the checkpoints, added to the data.
        shown: one of :data:`QUANTITIES`.
    """
    values = weight_change(before, after)
    told: dict[str, dict[str, Any]] = {
        name: {"what": what, "heads": heads, "overall": overall(heads), "layers": layer_effects(heads)}
        for (name, what), heads in zip(QUANTITIES.items(), values.values(), strict=True)
    }
    data = files | {
        "weights": "q, k and v of a head together, without biases",
        "quantities": told,
        "test": "Kruskal-Wallis over the layers of a component, a value a head",
    }
    what, form = QUANTITIES[shown], "+.4f" if shown == "magnitude" else ".4f"
    captions = {c: f"{PAPER_NAMES[c]} ({c}): {what}, counted from 1" for c in values[shown]}
    tables = [paper_head_table(heads, fmt=form, caption=captions[c]) for c, heads in values[shown].items()]
    rows = [[PAPER_NAMES[component], *_layer_cells(found)] for component, found in told[shown]["layers"].items()]
    caption = "Do layers differ? Means of the layers, their spread (largest over smallest), and Kruskal-Wallis"
    tables.append(Table(["Component", "Smallest", "Largest", "Spread", "H", "p"], rows, caption=caption))
    scale = "delta" if shown == "magnitude" else "importance"
    drawn = number_components(values[shown], scale)
    title = "Change of each head's q, k and v weights"
    return Document(title, tables, maps=[HeadMap(title, scale, drawn, what, name="change")], data=data)


def _layer_cells(found: dict[str, Any]) -> list[str | None]:
    means = [mean for mean in found["mean"] if mean is not None]
    numbers = [(min(means, default=None), ".4f"), (max(means, default=None), ".4f"), (found["spread"], ".1%")]
    numbers += [(found["h"], ".2f")]
    return [*(None if number is None else format(number, style) for number, style in numbers), small(found["p"])]
