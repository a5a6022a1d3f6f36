"""Attach gates to any fairseq model made of ``MultiheadAttention``, and find them again."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Optional

from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from fairseq_headprune.modules.ffn import FeedForwards
from fairseq_headprune.modules.gate_state import GateState
from fairseq_headprune.modules.multihead import GatedMultiheadAttention
from fairseq_headprune.parts import HEADS, Mask, Shape
from fairseq_headprune.parts.layout import Layout


class GatedParts:
    """The gated attention modules of one model, by component and layer.

    Attributes:
        modules: component -> gated modules in layer order; components the model lacks are absent.
        ffn: the gated feed-forward blocks.
        layers: component -> the layers that the modules are in; empty if they are in none.
    """

    def __init__(
        self,
        modules: dict[str, list[GatedMultiheadAttention]],
        ffn: Optional[FeedForwards] = None,
        layers: Optional[dict[str, list[nn.Module]]] = None,
    ) -> None:
        self.modules, self.ffn, self.layers = modules, ffn or FeedForwards({}), layers or {}

    @property
    def shape(self) -> Shape:
        """Number of heads of each layer, by component; heads that were removed count, too."""
        return {c: [m.original_count for m in modules] for c, modules in self.modules.items()}

    def layout(self) -> Layout:
        """Return which original heads the modules still have."""
        return Layout(self.shape, {c: [m.original_heads for m in modules] for c, modules in self.modules.items()})

    def full(self) -> Mask:
        """Return the mask that keeps every head that was not removed."""
        return self.layout().mask()

    def in_original_numbers(self, values: dict[str, list[list[float]]]) -> dict[str, list[list[float]]]:
        """Return values of the present heads as values of the original ones; heads that were removed get 0."""
        result = {}
        for component, modules in self.modules.items():
            result[component] = [[0.0] * module.original_count for module in modules]
            for row, module, found in zip(result[component], modules, values[component], strict=True):
                for head, value in zip(module.original_heads, found, strict=True):
                    row[head] = value
        return result

    def items(self) -> Iterator[tuple[str, int, GatedMultiheadAttention]]:
        """Iterate over (component, layer, module) in the fixed order."""
        for component, modules in self.modules.items():
            for layer, module in enumerate(modules):
                yield component, layer, module

    def set_mask(self, mask: Optional[Mask], fixed: bool = False) -> None:
        """Silence the heads that the mask prunes (None keeps all), checking first, so that a misfit changes nothing.

        Args:
            fixed: loading a checkpoint afterwards does not replace this mask by the checkpoint's own.

        Raises:
            ValueError: the mask does not fit the model, or keeps a head that was removed.
        """
        if mask is not None:
            self.check(mask)
        self.ffn.set_mask(None if mask is None else mask.ffn, fixed)
        for component, layer, module in self.items():
            keep, source = None, None
            if mask is not None:
                row = mask.rows[component][layer]
                keep, source = [row[head] for head in module.original_heads], mask.source
            module.set_keep(keep, fixed, source)

    def check(self, mask: Mask) -> None:
        """Make sure that a mask fits the model.

        Raises:
            ValueError: it does not, or it keeps a head that was removed.
        """
        mask.check_shape(self.shape)
        self.layout().check_absent(mask.kept())

    def mask(self) -> Mask:
        """Return the mask in force (all heads kept where none was set), with its source; removed heads are 0."""
        heads = self.full().rows
        for component, layer, module in self.items():
            if module.head_keep is not None:
                for head, keep in zip(module.original_heads, module.head_keep.int().tolist(), strict=True):
                    heads[component][layer][head] = keep
        ffn = self.ffn.entry()
        sources = [module.keep_source for _, _, module in self.items() if module.head_keep is not None or ffn]
        return Mask(heads, sources[0] if sources else None, ffn)

    def mask_is_fixed(self) -> bool:
        """Whether heads are pruned by a mask that a checkpoint does not replace."""
        return any(module.keep_is_fixed and module.head_keep is not None for _, _, module in self.items())

    @contextmanager
    def masked(self, mask: Optional[Mask]) -> Iterator[None]:
        """Set a mask for a while; afterwards the one in force before is back."""
        before = [(m, m.head_keep, m.keep_is_fixed, m.keep_source) for _, _, m in self.items()]
        try:
            with self.ffn.unchanged():
                self.set_mask(mask)
                yield
        finally:
            for module, keep, fixed, source in before:
                module.head_keep, module.keep_is_fixed, module.keep_source = keep, fixed, source

    @contextmanager
    def leaf_gates(self, shape: Callable[[str, int], tuple[int, ...]]) -> Iterator[dict[str, list[Tensor]]]:
        """Put a gate of ones that requires gradients on every head, for a while.

        Args:
            shape: the shape of a gate from component and number of heads; see :func:`apply_gate` for what fits.

        Yields:
            component -> one tensor a layer, in the type and on the device of the weights.
        """
        gates: dict[str, list[Tensor]] = {}
        before = [(module, module.head_gate) for _, _, module in self.items()]
        for component, _, module in self.items():
            gate = module.out_proj.weight.new_ones(shape(component, module.num_heads)).requires_grad_()
            gates.setdefault(component, []).append(gate)
            module.head_gate = gate
        try:
            yield gates
        finally:
            for module, gate in before:
                module.head_gate = gate


def component_of(name: str, module: nn.Module) -> str:
    """Return the component of an attention module from its name in the model and its kind."""
    if getattr(module, "encoder_decoder_attention", False):
        return "enc_dec"
    return "dec_self" if "decoder" in name.split(".") else "enc_self"


def attach_gates(model: nn.Module) -> GatedParts:
    """Make every attention module of a fairseq model gated, in place, and return the handle.

    Parameters, their names, their values and the model's output stay as they are until a gate or mask is set. A
    model that has gates already is left as it is.

    Raises:
        ValueError: there is no attention module, or one that cannot be gated; the model is unchanged then.
    """
    stock = [m for m in model.modules() if type(m) is MultiheadAttention]
    if not stock and not any(isinstance(m, GatedMultiheadAttention) for m in model.modules()):
        raise ValueError(f"{type(model).__name__} holds no fairseq MultiheadAttention: nothing to gate")
    if any(getattr(m, "use_xformers", False) for m in stock):
        raise ValueError("cannot attach gates to attention computed by xFormers; build the model without it")
    for module in stock:
        GatedMultiheadAttention.adopt(module)
    FeedForwards.attach(model)
    if not hasattr(model, "head_gates"):
        model.head_gates = GateState()
    return find_gates(model)


def find_gates(model: nn.Module) -> GatedParts:
    """Return the handle on the gates of a model.

    Raises:
        ValueError: the model has no gates; attach them first.
    """
    found: dict[str, list[tuple[tuple[int, ...], GatedMultiheadAttention, nn.Module]]] = {}
    for name, module in model.named_modules():
        if isinstance(module, GatedMultiheadAttention):
            place = tuple(int(part) for part in re.findall(r"(?<=\.)\d+(?=\.)", f".{name}."))
            layer = model.get_submodule(name.rpartition(".")[0])
            found.setdefault(component_of(name, module), []).append((place, module, layer))
    if not found:
        raise ValueError(f"{type(model).__name__} has no gates; call attach_gates first")
    # Stable sort by layer number: "layers.10" comes after "layers.9".
    ordered = {c: sorted(found[c], key=lambda x: x[0]) for c in HEADS if c in found}
    heads = {c: [module for _, module, _ in rows] for c, rows in ordered.items()}
    layers = {c: [layer for _, _, layer in rows] for c, rows in ordered.items()}
    return GatedParts(heads, FeedForwards.find(model), layers)


@contextmanager
def without_attention_weights(model: nn.Module) -> Iterator[None]:
    """Keep decoder layers from computing attention weights that nobody reads, for a while.

    In evaluation mode fairseq's decoder layers compute them by default (``need_attn``), which rules out fused
    attention.
    """
    layers = [module for module in model.modules() if getattr(module, "need_attn", False) is True]
    for layer in layers:
        layer.need_attn = False
    try:
        yield
    finally:
        for layer in layers:
            layer.need_attn = True
