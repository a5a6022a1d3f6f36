"""Parameters, multiply-adds and operations of a model, counted rather than timed."""

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_headprune.modules.attach import GatedParts


def parameter_shares(model: nn.Module, gates: GatedParts) -> dict[str, Any]:
    """Return the number of parameters in total, in attention, and in one head (Michel et al. 2019, §4.3).

    Tied parameters count once. ``head`` is the mean over the remaining heads, 0 if there are none: rows of the q, k and
    v projections with their biases, and columns of out_proj, whose bias belongs to no head.
    """
    total = sum(parameter.numel() for parameter in {id(p): p for p in model.parameters()}.values())
    attention = heads = in_heads = 0
    for _, _, module in gates.items():
        mine = sum(parameter.numel() for parameter in module.parameters())
        bias = module.out_proj.bias
        attention += mine
        heads += module.num_heads
        in_heads += mine - (0 if bias is None else bias.numel())
    head = in_heads / heads if heads else 0.0
    return {
        "parameters": total,
        "attention_share": attention / total,
        "heads": heads,
        "parameters_per_head": head,
        "head_share": head / total,
    }


def multiply_adds(model: Any, gates: GatedParts, source: int, target: int) -> int:
    """Return the multiply-adds of translating one sentence with beam 1, from a formula that ignores layer norms.

    Encoder layer: S (4 d w + 2 d f) + 2 S² w. Decoder layer, step by step with a cache: T (4 d w + 2 d f) + T (T + 1) w
    for itself, and 2 T d w + 2 S e w + 2 S T w for the encoder's output. Output: T d V, or T times the weights of an
    adaptive softmax, since search computes all of its clusters. S and T are the lengths; d and e the widths of the
    model and its encoder; w the total width of the remaining heads; f the inner feed-forward width; V the vocabulary.

    Args:
        source, target: S and T, in tokens including end of sentence.
    """
    total = 0
    for component, _, module in gates.items():
        width, d = module.num_heads * module.head_dim, module.embed_dim
        if component == "enc_self":
            total += 4 * source * d * width + 2 * source**2 * width
        elif component == "dec_self":
            total += 4 * target * d * width + target * (target + 1) * width
        else:
            total += 2 * target * d * width + 2 * source * module.kdim * width + 2 * source * target * width
    total += source * _feed_forward(model.encoder.layers) + target * _feed_forward(model.decoder.layers)
    return total + target * _projection(model.decoder)


def encoder_multiply_adds(model: Any, gates: GatedParts, length: int) -> int:
    """Return the multiply-adds of classifying one example, from a formula that ignores layer norms.

    A layer: L (4 d w + 2 d f) + 2 L² w, in the notation of :func:`multiply_adds`. Pooler and classifier: d² + d C, for
    C classes.

    Args:
        length: L, in tokens including [CLS] and [SEP].
    """
    total = length * _feed_forward(model.encoder.layers)
    for _, _, module in gates.items():
        width = module.num_heads * module.head_dim
        total += 4 * length * module.embed_dim * width + 2 * length**2 * width
    heads = model.classification_heads.values()
    return total + model.encoder.pooler.weight.numel() + sum(head.out_proj.weight.numel() for head in heads)


def _projection(decoder: Any) -> int:
    """Return the number of weights of the output projection to the vocabulary."""
    if decoder.adaptive_softmax is None:
        return decoder.output_projection.weight.numel()
    return sum(weight.numel() for weight in decoder.adaptive_softmax.parameters() if weight.dim() == 2)


def _feed_forward(layers: Any) -> int:
    """Return the number of feed-forward weights; each is used once per token."""
    weights = [getattr(getattr(layer, name, None), "weight", None) for layer in layers for name in ("fc1", "fc2")]
    return sum(weight.numel() for weight in weights if weight is not None)


class _Counter(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += not func.is_view
        return func(*args, **(kwargs or {}))


def operations(work: Callable[[], object]) -> int:
    """Count the operations that torch runs, except views: roughly the number of kernels launched on a GPU."""
    with _Counter() as counter:
        work()
    return counter.count
