"""Is every mask connected: does pruning the heads it names change the model's output?"""

from typing import Any

import torch
from torch import Tensor, nn

from fairseq_headprune.modules.attach import find_gates, without_attention_weights
from fairseq_headprune.modules.multihead import GatedMultiheadAttention


def check_connected(model: nn.Module, net_input: dict[str, Any]) -> None:
    """Compare the output on one batch with and without each component's mask (evaluation mode, no gradients).

    Raises:
        RuntimeError: the pruned heads of a component have no effect on the output.
    """
    gates = find_gates(model)
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad(), without_attention_weights(model):
            masked = _logits(model, net_input)
            for component, modules in gates.modules.items():
                silent = [module for module in modules if module.head_keep is not None and not _already_zero(module)]
                if silent and not _differs_without(silent, masked, model, net_input):
                    raise RuntimeError(
                        f"the pruned heads of {component} have no effect on the output: its gates are not connected to "
                        f"this model ({type(model).__name__}); results under this mask would be those of the full model"
                    )
    finally:
        model.train(was_training)


def _differs_without(modules: list[GatedMultiheadAttention], masked: Tensor, model: nn.Module, net_input: dict) -> bool:
    keeps = [module.head_keep for module in modules]
    try:
        for module in modules:
            module.head_keep = None
        return not torch.equal(_logits(model, net_input), masked)
    finally:
        for module, keep in zip(modules, keeps, strict=True):
            module.head_keep = keep


def _logits(model: nn.Module, net_input: dict[str, Any]) -> Tensor:
    output = model(**net_input)
    return output[0] if isinstance(output, tuple) else output


def _already_zero(module: GatedMultiheadAttention) -> bool:
    """Whether the pruned heads could not reach the output anyway (their columns of ``out_proj`` are zero)."""
    columns = module.out_proj.weight.view(-1, module.num_heads, module.head_dim)
    return not bool(columns[:, ~module.head_keep].any())
