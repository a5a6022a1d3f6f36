"""Checks that every mask takes effect: that pruning heads changes the model's output."""

from typing import Any

import torch
from torch import Tensor, nn

from fairseq_headprune.modules.attach import GatedParts, find_gates, without_attention_weights
from fairseq_headprune.modules.multihead import GatedMultiheadAttention
from fairseq_headprune.parts import FFN, Mask


def check_connected(model: nn.Module, net_input: dict[str, Any]) -> None:
    """Compare the output on one batch with and without each component's mask (evaluation mode, no gradients).

    The other components are unmasked meanwhile: without encoder-decoder heads the encoder legitimately has no effect.

    Raises:
        RuntimeError: the pruned heads of a component have no effect on the output.
    """
    gates = find_gates(model)
    mask = gates.mask()
    full = gates.full()
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad(), without_attention_weights(model):
            with gates.masked(full):
                whole = _logits(model, net_input)
            for component, modules in gates.modules.items():
                # Heads whose columns of out_proj are zero do not affect the output in any case.
                silent = [m for m in modules if m.head_keep is not None and not _already_zero(m, m.head_keep)]
                if component == "enc_self" and not _encoder_is_read(gates):
                    continue
                with gates.masked(full.without(mask.dropped([component]))):
                    if silent and torch.equal(_logits(model, net_input), whole):
                        raise RuntimeError(
                            f"the pruned heads of {component} have no effect on the output: its gates are not connected"
                            f" to this model ({type(model).__name__}); results under it would be the full model's"
                        )
            ffn = [module for _, _, module in gates.items(FFN)]
            if any(module.keep is not None and bool(module.weight.any()) for module in ffn):
                # All blocks at once: a single pruned unit may have no effect on one batch (activation 0).
                blocks = {c: [[0] for _ in modules] for c, modules in gates.ffn.items()}
                with gates.masked(Mask({**full.rows, **blocks})):
                    if torch.equal(_logits(model, net_input), whole):
                        raise RuntimeError(
                            "feed-forward blocks have no effect on the output: their gates are not connected to this "
                            f"model ({type(model).__name__}); results under the mask would be the full model's"
                        )
    finally:
        model.train(was_training)


def _logits(model: nn.Module, net_input: dict[str, Any]) -> Tensor:
    output = model(**net_input)
    return output[0] if isinstance(output, tuple) else output


def _encoder_is_read(gates: GatedParts) -> bool:
    """Whether the decoder reads the encoder: without encoder-decoder heads, the encoder legitimately has no effect."""
    if "dec_self" not in gates.modules:
        return True
    return _joined(gates) or any(module.num_heads for module in gates.modules.get("enc_dec", []))


def _joined(gates: GatedParts) -> bool:
    """Whether the decoder's self-attention also reads the source (``--cross-self-attention``)."""
    return any(getattr(layer, "cross_self_attention", False) for layer in gates.layers["dec_self"])


def check_source_is_read(path: str, gates: GatedParts) -> None:
    """Refuse a model whose decoder was built without access to its encoder.

    Raises:
        ValueError: the model was built with ``--no-cross-attention``.
    """
    if {"enc_self", "dec_self"} <= gates.modules.keys() and "enc_dec" not in gates.modules and not _joined(gates):
        raise ValueError(
            f"{path}: a model of --no-cross-attention does not read its source, so the encoder's heads have no effect: "
            "not supported"
        )


def _already_zero(module: GatedMultiheadAttention, keep: Tensor) -> bool:
    """Whether the pruned heads do not affect the output in any case (their columns of ``out_proj`` are zero)."""
    columns = module.out_proj.weight.view(-1, module.num_heads, module.head_dim)
    return not bool(columns[:, ~keep].any())
