"""Confidence of a head: its mean maximum attention weight (Voita et al. 2019, §4)."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_headprune.importance.attention_maps import attention_of
from fairseq_headprune.importance.losses import ScoredTask
from fairseq_headprune.importance.ranks import in_order
from fairseq_headprune.importance.settings import Values
from fairseq_headprune.modules.attach import find_gates


def confidence(model: nn.Module, batches: Iterable[dict[str, Any]], task: ScoredTask) -> tuple[Values, dict[str, int]]:
    """Return each head's maximum attention weight, ignoring the end-of-sentence key, averaged over non-padding queries.

    For BERT the keys [CLS] and [SEP] are ignored. A query whose only key is the end-of-sentence symbol (the decoder's
    first step) does not count.

    Raises:
        ValueError: there are no sentences.
    """
    gates = find_gates(model)
    sums = {c: [torch.zeros(len(m.indices), dtype=torch.float64) for m in ms] for c, ms in gates.modules.items()}
    queries = {c: 0 for c in gates.modules}
    counts = {"sentences": 0, "tokens": 0, "batches": 0}
    for found, counted in in_order([_of_batch(model, gates, sample, task) for sample in batches]):
        counts = {name: number + counted[name] for name, number in counts.items()}
        for component, layer, maxima, number in found:
            sums[component][layer] += maxima
            queries[component] += number if layer == 0 else 0
    if not counts["sentences"]:
        raise ValueError("there is no sentence to estimate confidence from")
    return {c: [(layer / max(queries[c], 1)).tolist() for layer in layers] for c, layers in sums.items()}, counts


def _of_batch(
    model: nn.Module, gates: Any, sample: dict[str, Any], task: ScoredTask
) -> tuple[list[tuple[str, int, Tensor, int]], dict[str, int]]:
    """Return one batch's component, layer, sum of maxima (heads,) and number of queries; and its counts."""
    sides = task.sides(sample)
    found = []
    for entry in attention_of(model, gates, sample, norms=False):
        causal = entry.component == "dec_self"
        maxima = _sum_of_maxima(entry.weights, *sides[entry.component], task, causal)
        found.append((entry.component, entry.layer, *maxima))
    counts = {"sentences": sample["target"].size(0), "batches": 1}
    return found, {**counts, "tokens": task.losses("sum", 0.0).counts(sample)["tokens"]}


def _sum_of_maxima(weights: Tensor, query: Tensor, key: Tensor, task: ScoredTask, causal: bool) -> tuple[Tensor, int]:
    outside = torch.tensor([task.pad, *task.edges], device=key.device)
    usable = ~torch.isin(key, outside)
    reachable = usable.cumsum(dim=1).gt(0) if causal else usable.any(dim=1, keepdim=True)
    counted = query.ne(task.pad) & reachable
    largest = weights.masked_fill(~usable[:, None, None, :], 0.0).amax(dim=-1)
    return (largest * counted[:, None]).sum(dim=(0, 2)).double().cpu(), int(counted.sum())
