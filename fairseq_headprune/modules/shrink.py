"""The weights of pruned parts: cut out of a model, with what layers compute only for these parts, or held unchanged."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase, TransformerEncoderLayerBase
from torch import Tensor, nn

from fairseq_headprune.modules.attach import GatedParts
from fairseq_headprune.modules.cutting import ALONG, BLOCK_BIAS, cut
from fairseq_headprune.modules.ffn import NoUnits
from fairseq_headprune.parts import COMPONENTS, FFN, HEADS, noun
from fairseq_headprune.parts.layout import Layout

_KNOWN = (TransformerEncoderLayerBase.forward, TransformerDecoderLayerBase.forward)

#: component -> name of the attention module in its layer, from which the name of its layer norm is derived
_NAMES = {"enc_self": "self_attn", "enc_dec": "encoder_attn", "dec_self": "self_attn"}


class UnreadNorm(nn.Module):
    """A layer norm whose output is not used: it returns its input, and keeps its parameters for the checkpoint.

    They are frozen, since distributed training would otherwise wait for their gradients.
    """

    @classmethod
    def adopt(cls, norm: nn.Module) -> None:
        """Turn a layer norm into one that computes nothing, in place."""
        norm.__class__ = cls
        norm.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the input."""
        return x


def skip_attention(layer: Any, component: str) -> None:
    """Skip the computations that a layer does only for an attention module without heads.

    This omits the layer norm before it (pre-norm layers), the concatenation of encoder output and decoder input
    (``cross_self_attention``), and attention weights that are not used. Layers other than fairseq's own transformer
    layers are unchanged.
    """
    if type(layer).forward not in _KNOWN:
        return
    name = _NAMES[component]
    if layer.normalize_before:
        UnreadNorm.adopt(getattr(layer, f"{name}_layer_norm"))
    if component == "enc_dec":
        layer.need_attn = False
    elif component == "dec_self":
        layer.cross_self_attention = False


def skip_ffn(layer: Any) -> None:
    """Skip the computations that a layer does only for a feed-forward block that is removed or has no units.

    This omits the layer norm before it (pre-norm layers). A removed block adds nothing: in evaluation mode its output
    has width 0.
    """
    if type(layer).forward not in _KNOWN:
        return
    if layer.normalize_before:
        UnreadNorm.adopt(layer.final_layer_norm)
    if not layer.fc2.has_block:
        layer.fc2.width_without_block = 0
        layer.residual_connection = _add_unless_nothing


def _add_unless_nothing(x: Tensor, residual: Tensor) -> Tensor:
    return residual + x if x.size(-1) else residual


def shrink(gates: GatedParts, layout: Layout) -> None:
    """Remove the parts that a layout does not have; the remaining ones keep their weights.

    Feed-forward components missing from the layout stay complete. Parameters become new objects: an optimizer created
    before does not update them. Layers no longer compute anything for modules without parts.

    Raises:
        ValueError: the layout does not fit the model, or has a part that was already removed.
    """
    _check(gates, layout)
    layout = layout.completed(gates.original)
    for component, layer, module in gates.items(HEADS):
        kept = layout.indices(component, layer)
        if kept != module.indices:
            _cut_module(module, module, kept, module.head_dim)
            module.head_gate, module.num_heads = None, len(kept)
            if not kept:
                module.q_proj = module.k_proj = module.v_proj = None
        if not kept and component in gates.layers:
            skip_attention(gates.layers[component][layer], component)
    for component, layer, module in gates.items(FFN):
        kept, whole = layout.indices(component, layer), layout.has_block(component, layer)
        owner = gates.layers[component][layer]
        if kept != module.indices or whole != module.has_block:
            _cut_module(owner, module, kept, 1, dropped=not whole)
            module.has_block, module.ffn_keep = whole, None if not whole else module.ffn_keep
            if not kept:
                owner.fc1 = NoUnits()
        if not kept:
            skip_ffn(owner)


def _check(gates: GatedParts, layout: Layout) -> None:
    original = gates.original
    for component in [c for c in COMPONENTS if c in layout.original or c in gates.shape]:
        mine, found = original.get(component, []), layout.original.get(component, [])
        if len(mine) != len(found):
            raise ValueError(f"{component}: the layout is of {len(found)} layers, the model has {len(mine)}")
        for layer, (count, expected) in enumerate(zip(mine, found, strict=True)):
            if count != expected:
                raise ValueError(
                    f"{component} layer {layer}: the layout expects {expected} {noun(component)}s before removal, the "
                    f"model's settings say {count}"
                )
    gates.layout().check(layout.mask())


def _cut_module(root: nn.Module, module: Any, kept: list[int], width: int, dropped: bool = False) -> None:
    """Cut the parameters of a gated module, stored in ``root`` under the names in ``ALONG``."""
    places = {index: place for place, index in enumerate(module.indices)}
    positions = [places[index] for index in kept]
    before = {n: p for n, p in root.named_parameters() if n in ALONG or n == BLOCK_BIAS}
    after = cut({name: parameter.detach() for name, parameter in before.items()}, positions, width, dropped)
    for name, parameter in before.items():
        owner, _, kind = name.rpartition(".")
        holder: Any = root.get_submodule(owner)
        if name not in after:
            setattr(holder, kind, None)
        elif not positions and kind == "weight":
            # Delete it: optimizers and distributed training would wait for the gradient of an empty parameter.
            del holder.weight
            holder.register_buffer("weight", after[name])
        elif name in ALONG:
            setattr(holder, kind, nn.Parameter(after[name], parameter.requires_grad))
        if name in after and kind == "weight":
            setattr(holder, "in_features" if ALONG[name] == 1 else "out_features", after[name].size(ALONG[name]))
    module.shrink_keep(positions)
    module.indices = list(kept)


@dataclass(frozen=True)
class _Held:
    parameter: nn.Parameter
    dim: int
    index: Tensor
    values: Tensor


class PrunedWeights:
    """The weights of a model's pruned parts: rows of q, k, v and fc1, columns of ``out_proj`` and fc2.

    Their gradient is exactly 0, but weight decay still shrinks them, and momentum from before the mask still moves
    them. So their values are restored after each step, whatever the optimizer. (In fp16 training this concerns the
    model's weights; the optimizer's float32 copies are made from these when training resumes.)
    """

    def __init__(self, gates: GatedParts) -> None:
        self._gates = gates
        self._known: dict[Any, tuple[Tensor, list[_Held]]] = {}

    @contextmanager
    def held(self) -> Iterator[None]:
        """Context manager: on exit, restore these weights."""
        held = [part for place in self._gates.items(COMPONENTS) for part in self._held(*place)]
        yield
        with torch.no_grad():
            for part in held:
                part.parameter.index_copy_(part.dim, part.index, part.values)

    def _held(self, component: str, layer: int, module: Any) -> list[_Held]:
        keep = module.keep
        if keep is None:
            return []
        known = self._known.get(module)
        # The tensor is another one if the mask changed, or the model was moved to another device or dtype.
        if known is None or known[0] is not keep:
            ffn = component in FFN
            root = self._gates.layers[component][layer] if ffn else module
            known = self._known[module] = (
                keep,
                _slices(root, keep, len(module.indices), 1 if ffn else module.head_dim),
            )
        return known[1]


def _slices(root: nn.Module, keep: Tensor, count: int, width: int) -> list[_Held]:
    block = not keep.dim()
    every = torch.arange(count * width, device=keep.device)
    index = every if block else (~keep).repeat_interleave(width).nonzero().flatten()
    held = []
    for name, parameter in root.named_parameters():
        if name in ALONG:
            dim = ALONG[name]
            held.append(_Held(parameter, dim, index, parameter.detach().index_select(dim, index)))
        elif block and name == BLOCK_BIAS:
            held.append(
                _Held(parameter, 0, torch.arange(len(parameter), device=keep.device), parameter.detach().clone())
            )
    return held
