"""The attention weights of every head on a batch, the norms of what is attended to, and the confidence of heads."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_headprune.importance.losses import ScoredTask
from fairseq_headprune.importance.ranks import gather_in_order
from fairseq_headprune.importance.settings import Values
from fairseq_headprune.modules.attach import GatedParts, find_gates, without_attention_weights


@dataclass(frozen=True)
class LayerAttention:
    """The attention of one module on one batch, padding included.

    Attributes:
        component, layer: where the module is.
        heads: original indices of the heads that it has.
        weights: (batch, heads, tgt, src).
        norms: ``||f(x)||`` of each key (batch, heads, src), see :func:`value_norms`;
            None if not asked for.
    """

    component: str
    layer: int
    heads: list[int]
    weights: Tensor
    norms: Tensor | None


def attention_of(model: nn.Module, gates: GatedParts, sample: dict[str, Any], norms: bool) -> list[LayerAttention]:
    """Run the model on one batch and return the attention of every module that has heads.

    Keys that fairseq adds to a sentence (``--add-bias-kv``) are left out where norms are asked for.
    """
    found: list[LayerAttention] = []
    values: dict[int, Tensor] = {}

    def note(component: str, layer: int, module: Any, weights: Tensor) -> None:
        lengths = None
        if norms:
            value = values.pop(id(module))  # (src, batch, heads * head_dim)
            by_head = value.view(*value.shape[:2], module.num_heads, -1).permute(1, 2, 0, 3)
            lengths = value_norms(by_head.float(), module.out_proj.weight.float())
            weights = weights[..., : lengths.size(-1)]
        found.append(LayerAttention(component, layer, list(module.indices), weights, lengths))

    hooks = []
    for component, layer, module in gates.items():
        module.on_weights = lambda m, w, c=component, i=layer: note(c, i, m, w)
        if norms and module.num_heads:
            keep = lambda _, __, output, m=module: values.update({id(m): output})  # noqa: E731
            hooks.append(module.v_proj.register_forward_hook(keep))
    try:
        with torch.no_grad(), without_attention_weights(model):
            model(**sample["net_input"])
    finally:
        for _, _, module in gates.items():
            module.on_weights = None
        for hook in hooks:
            hook.remove()
    return found


def value_norms(values: Tensor, output: Tensor) -> Tensor:
    """Return the norms of the vectors that each head adds for a key: ``||f(x)||`` (Kobayashi et al. 2020).

    f(x) = (x W_V + b_V) W_O of the head; times the attention weight, it is what the key contributes to the output.

    Args:
        values: (batch, heads, src, head_dim), the value vectors.
        output: (d, heads * head_dim), the weight of the output projection.

    Returns:
        (batch, heads, src).
    """
    by_head = output.view(output.size(0), values.size(1), values.size(3))
    return torch.einsum("bhsk,dhk->bhsd", values, by_head).norm(dim=-1)


@dataclass(frozen=True)
class SentenceMaps:
    """The attention maps of one module for one sentence, without padding.

    Attributes:
        sentence: number of the sentence in its split, from 0.
        attention: the module and its heads.
        maps: attention weights (heads, tgt, src).
        normed: weights times norms, likewise; None if not asked for.
        queries, keys: token ids, (tgt,) and (src,).
    """

    sentence: int
    attention: LayerAttention
    maps: Tensor
    normed: Tensor | None
    queries: Tensor
    keys: Tensor


def sentence_maps(
    model: nn.Module, gates: GatedParts, sample: dict[str, Any], task: ScoredTask, norms: bool
) -> Iterator[SentenceMaps]:
    """Yield the attention maps of each module for each sentence of a batch."""
    sides = task.sides(sample)
    for entry in attention_of(model, gates, sample, norms):
        queries, keys = sides[entry.component]
        for row, number in enumerate(sample["id"].tolist()):
            query, key = queries[row].ne(task.pad), keys[row].ne(task.pad)
            maps = entry.weights[row][:, query][:, :, key]
            normed = None if entry.norms is None else maps * entry.norms[row][:, None, key]
            yield SentenceMaps(number, entry, maps, normed, queries[row][query], keys[row][key])


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
    for found, counted in gather_in_order([_of_batch(model, gates, sample, task) for sample in batches]):
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
