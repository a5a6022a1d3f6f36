"""Make the modules of a model as small as its head layout: heads are cut out of the parameters in place."""

import torch
from torch import Tensor, nn

from fairseq_headprune.modules.attach import GatedParts
from fairseq_headprune.modules.empty_parts import skip_attention
from fairseq_headprune.modules.multihead import GatedMultiheadAttention
from fairseq_headprune.parts.layout import Layout
from fairseq_headprune.removal.surgery import take_heads


def shrink(gates: GatedParts, layout: Layout) -> None:
    """Remove the heads that a layout does not have; the remaining ones keep their weights.

    Parameters become new objects: an optimizer made before does not know them. What a layer computed for a module that
    has no heads left is not computed any more.

    Raises:
        ValueError: the layout does not fit the model, or has a head that was removed before.
    """
    shape = gates.shape
    for component in {**shape, **layout.original}:
        mine, found = shape.get(component, []), layout.original.get(component, [])
        if len(mine) != len(found):
            raise ValueError(f"{component}: the layout is of {len(found)} layers, the model has {len(mine)}")
        for layer, (count, expected) in enumerate(zip(mine, found, strict=True)):
            if count != expected:
                raise ValueError(
                    f"{component} layer {layer}: the layout expects {expected} heads before removal, the model's "
                    f"settings say {count}"
                )
    gates.layout().check_absent(layout.mask().kept())
    for component, layer, module in gates.items():
        _keep(module, layout.kept[component][layer])
        if not module.num_heads and component in gates.layers:
            skip_attention(gates.layers[component][layer], component)


def _keep(module: GatedMultiheadAttention, heads: list[int]) -> None:
    if heads == module.original_heads:
        return
    positions = [module.original_heads.index(head) for head in heads]
    for name in ("q_proj", "k_proj", "v_proj"):
        setattr(module, name, _with_rows(getattr(module, name), positions, module.head_dim) if heads else None)
    for name in ("bias_k", "bias_v"):
        if getattr(module, name) is not None:
            setattr(module, name, _cut(getattr(module, name), positions, module.head_dim, 2) if heads else None)
    out = module.out_proj
    weight = _cut(out.weight, positions, module.head_dim, 1)
    if not heads:
        # No parameter without elements: optimizers and distributed training would wait for its gradient.
        del out.weight
        out.register_buffer("weight", weight.detach())
    else:
        out.weight = weight
    out.in_features = len(heads) * module.head_dim
    if module.head_keep is not None:
        keep = module.head_keep[torch.tensor(positions, dtype=torch.long, device=module.head_keep.device)]
        module.head_keep = None if bool(keep.all()) else keep
    module.head_gate = None
    module.num_heads, module.original_heads = len(heads), list(heads)


def _with_rows(projection: nn.Linear, positions: list[int], head_dim: int) -> nn.Linear:
    projection.weight = _cut(projection.weight, positions, head_dim, 0)
    if projection.bias is not None:
        projection.bias = _cut(projection.bias, positions, head_dim, 0)
    projection.out_features = projection.weight.size(0)
    return projection


def _cut(parameter: Tensor, positions: list[int], head_dim: int, dim: int) -> nn.Parameter:
    return nn.Parameter(take_heads(parameter.detach(), positions, head_dim, dim), parameter.requires_grad)
