"""Attach gates to any fairseq model made of ``MultiheadAttention``, and find them again."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Optional, Union

from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from fairseq_headprune.modules.ffn import GatedFfnOutput, attach_ffn, has_gated_ffn
from fairseq_headprune.modules.gated_module import GateState
from fairseq_headprune.modules.multihead import GatedMultiheadAttention
from fairseq_headprune.parts import COMPONENTS, FFN, HEADS, Mask, Shape
from fairseq_headprune.parts.layout import Layout

Gated = Union[GatedMultiheadAttention, GatedFfnOutput]


class GatedParts:
    """The gated modules of one model, by component and layer.

    Attributes:
        modules: attention component -> gated modules in layer order; components the model lacks are absent.
        ffn: the same for feed-forward components.
        layers: component -> the layers that contain the modules; empty if they are in no layer.
        ffn_parts: what a feed-forward part is in masks and shapes: ``blocks`` or ``units``; None (the default) if
            feed-forward parts are not pruned.
    """

    ffn_parts: Optional[str] = None

    def __init__(
        self,
        modules: dict[str, list[GatedMultiheadAttention]],
        ffn: Optional[dict[str, list[GatedFfnOutput]]] = None,
        layers: Optional[dict[str, list[nn.Module]]] = None,
    ) -> None:
        self.modules, self.ffn, self.layers = modules, ffn or {}, layers or {}

    @property
    def _all(self) -> dict[str, Sequence[Gated]]:
        return {**self.modules, **self.ffn}

    @property
    def components(self) -> list[str]:
        """The components that the model has."""
        return [*self.modules, *self.ffn]

    @property
    def shape(self) -> Shape:
        """Number of heads of each layer, by component, including removed heads.

        With ``ffn_parts``, also the numbers of feed-forward parts; a removed block counts as 1.
        """
        shape = {c: [m.original_count for m in modules] for c, modules in self.modules.items()}
        if self.ffn_parts is None:
            return shape
        blocks = self.ffn_parts == "blocks"
        return shape | {
            c: [1 if blocks or m.row() is None else m.original_count for m in modules]
            for c, modules in self.ffn.items()
        }

    @property
    def original(self) -> Shape:
        """Number of heads or units of each layer, by component, before any was removed."""
        return {c: [m.original_count for m in modules] for c, modules in self._all.items()}

    def layout(self) -> Layout:
        """Return which original parts the modules still have."""
        return self._layout(lambda module: module.structure())

    def _layout(self, kept: Callable[[Any], Optional[list[int]]], source: Optional[dict] = None) -> Layout:
        rows: dict[str, list[Optional[list[int]]]] = {c: [] for c in self.components}
        for component, _, module in self.items(COMPONENTS):
            rows[component].append(kept(module))
        return Layout(self.original, rows, source)

    def full(self) -> Mask:
        """Return the mask that keeps every part that has not been removed."""
        return self.layout().mask()

    def in_original_numbers(
        self, values: dict[str, list[list[float]]], ffn: Optional[str] = None
    ) -> dict[str, list[list[float]]]:
        """Extend values of the remaining parts to all original parts; removed ones get 0.

        Args:
            ffn: with ``blocks``, feed-forward components have one value per layer, which is unchanged.
        """
        result: dict[str, list[list[float]]] = {component: [] for component in values}
        for component, layer, module in self.items(values):
            row = values[component][layer]
            if not (component in FFN and ffn == "blocks"):
                by_index = dict(zip(module.indices, row, strict=True))
                row = [by_index.get(index, 0.0) for index in range(module.original_count)]
            result[component].append(row)
        return result

    def items(self, components: Iterable[str] = HEADS) -> Iterator[tuple[str, int, Any]]:
        """Iterate over (component, layer, module) of these components in the fixed order."""
        wanted = set(components)
        for component, modules in self._all.items():
            for layer, module in enumerate(modules if component in wanted else []):
                yield component, layer, module

    def set_mask(self, mask: Optional[Mask], fixed: bool = False) -> None:
        """Mask the parts that the mask prunes (None keeps all); a mask that does not fit changes nothing.

        Args:
            fixed: a checkpoint loaded later does not replace this mask by its own.

        Raises:
            ValueError: the mask does not fit the model, or keeps a part that was removed.
        """
        if mask is not None:
            self.check(mask)
        rows, source = ({}, None) if mask is None else (mask.rows, mask.source)
        for component, layer, module in self.items(COMPONENTS):
            module.set_row(rows[component][layer] if component in rows else None, fixed, source)

    def check(self, mask: Mask) -> None:
        """Check that a mask fits the model.

        Raises:
            ValueError: it does not fit, or keeps a removed part.
        """
        self.layout().check(mask)

    def mask(self, ffn: Optional[str] = None) -> Mask:
        """Return the current mask (keeping everything where none is set), with its source; removed parts are 0.

        Args:
            ffn: ``blocks`` or ``units``: also have an entry for each of these (default: ``ffn_parts``).

        Raises:
            ValueError: ``blocks``, but single units of a block are masked.
        """
        layout = self._layout(lambda module: module.row())
        ffn_pruned = layout.prunes_ffn()
        masked = [m for _, _, m in self.items() if m.keep is not None or ffn_pruned]
        layout.source = dict(masked[0].keep_source) if masked else {}
        ffn = ffn or self.ffn_parts
        return layout.mask() if ffn is None else self.layout().spell_out(layout.mask(), ffn)

    def mask_is_fixed(self) -> bool:
        """Whether the current mask stays in place when a checkpoint is loaded."""
        return any(module.keep_is_fixed and module.keep is not None for _, _, module in self.items())

    @contextmanager
    def masked(self, mask: Optional[Mask]) -> Iterator[None]:
        """Context manager: set a mask; on exit the previous one is restored."""
        before = [(module, module.state) for _, _, module in self.items(COMPONENTS)]
        try:
            self.set_mask(mask)
            yield
        finally:
            for module, state in before:
                module.state = state

    @contextmanager
    def leaf_gates(
        self, shape: Callable[[str, int], tuple[int, ...]], ffn: Optional[str] = None
    ) -> Iterator[dict[str, list[Tensor]]]:
        """Context manager: put a gate of ones that requires gradients on every head.

        Args:
            shape: gives the shape of a gate from component and number of parts; see :func:`apply_gate`.
            ffn: ``blocks`` or ``units``: also put gates on these.

        Yields:
            component -> one tensor per layer, in the dtype and on the device of the weights.
        """
        gates: dict[str, list[Tensor]] = {}
        before = []
        for component, _, module in self.items(COMPONENTS if ffn else HEADS):
            name = "head_gate" if component in HEADS else "unit_gate" if ffn == "units" else "block_gate"
            before.append((module, name, getattr(module, name)))
            size = shape(component, 1 if name == "block_gate" else len(module.indices))
            gate = module.output_layer.weight.new_ones(size).requires_grad_()
            gates.setdefault(component, []).append(gate)
            setattr(module, name, gate)
        try:
            yield gates
        finally:
            for module, name, old in before:
                setattr(module, name, old)


def component_of(name: str, module: nn.Module) -> str:
    """Return the component of an attention module, from its name in the model and its kind."""
    if getattr(module, "encoder_decoder_attention", False):
        return "enc_dec"
    return "dec_self" if "decoder" in name.split(".") else "enc_self"


def attach_gates(model: nn.Module) -> GatedParts:
    """Make every attention module of a fairseq model gated, in place, and return a handle to the gates.

    Parameters, their names and values and the model's output are unchanged until a gate or mask is set. A model that
    already has gates is left unchanged.

    Raises:
        ValueError: there is no attention module, or one that cannot be gated; the model is then unchanged.
    """
    stock = [m for m in model.modules() if type(m) is MultiheadAttention]
    if not stock and not any(isinstance(m, GatedMultiheadAttention) for m in model.modules()):
        raise ValueError(f"{type(model).__name__} holds no fairseq MultiheadAttention: nothing to gate")
    if any(getattr(m, "use_xformers", False) for m in stock):
        raise ValueError("cannot attach gates to attention computed by xFormers; build the model without it")
    for module in stock:
        GatedMultiheadAttention.adopt(module)
    attach_ffn(model)
    if not hasattr(model, "head_gates"):
        model.head_gates = GateState()
    return find_gates(model)


def find_gates(model: nn.Module) -> GatedParts:
    """Return a handle to the gates of a model.

    Raises:
        ValueError: the model has no gates; attach them first.
    """
    found: dict[str, list[tuple[tuple[int, ...], Any, nn.Module]]] = {}
    for name, module in model.named_modules():
        place = tuple(int(part) for part in re.findall(r"(?<=\.)\d+(?=\.)", f".{name}."))
        if isinstance(module, GatedMultiheadAttention):
            layer = model.get_submodule(name.rpartition(".")[0])
            found.setdefault(component_of(name, module), []).append((place, module, layer))
        elif has_gated_ffn(module):
            component = "dec_ffn" if "decoder" in name.split(".") else "enc_ffn"
            found.setdefault(component, []).append((place, module.fc2, module))
    if not set(HEADS) & set(found):
        raise ValueError(f"{type(model).__name__} has no gates; call attach_gates first")
    # Stable sort by layer number: "layers.10" comes after "layers.9".
    ordered = {c: sorted(found[c], key=lambda x: x[0]) for c in COMPONENTS if c in found}
    modules = {c: [module for _, module, _ in rows] for c, rows in ordered.items()}
    layers = {c: [layer for _, _, layer in rows] for c, rows in ordered.items()}
    heads, ffn = ({c: modules[c] for c in group if c in modules} for group in (HEADS, FFN))
    return GatedParts(heads, ffn, layers)


@contextmanager
def without_attention_weights(model: nn.Module) -> Iterator[None]:
    """Context manager: keep decoder layers from computing attention weights that are not used.

    In evaluation mode fairseq's decoder layers compute them by default (``need_attn``), which rules out fused
    attention.
    """
    layers: list[Any] = [module for module in model.modules() if getattr(module, "need_attn", False) is True]
    for layer in layers:
        layer.need_attn = False
    try:
        yield
    finally:
        for layer in layers:
            layer.need_attn = True
