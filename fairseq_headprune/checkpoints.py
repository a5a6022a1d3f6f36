"""Reads settings, head counts and the stored mask of fairseq checkpoints, without building the model.

Only torch's safe loader is used: a checkpoint that would run code is refused, and the code is not run.
"""

import argparse
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch

from fairseq_headprune.parts import COMPONENTS, FFN, HEADS, Mask, Shape, attention_place, noun
from fairseq_headprune.parts.layout import Layout, layout_of_settings
from fairseq_headprune.stored.loader import GatedSettings as GatedSettings
from fairseq_headprune.stored.loader import State as State
from fairseq_headprune.stored.loader import allow_settings as allow_settings
from fairseq_headprune.stored.loader import read_state as read_state

_BLOCK = re.compile(r"(?:^|\.)(?:encoder|decoder)\.layers\.\d+\.fc2\.weight$")


def saved_settings(state: State) -> argparse.Namespace:
    """Return the model's settings saved by fairseq: from ``args`` (old) or ``cfg["model"]``.

    Raises:
        ValueError: the checkpoint holds neither.
    """
    settings: Any = state.get("args") or _configured(state, "model")
    if isinstance(settings, argparse.Namespace):
        return settings
    if settings is None:
        raise ValueError('the checkpoint holds no model settings (neither "args" nor "cfg")')
    if not isinstance(settings, dict):
        from omegaconf import OmegaConf

        settings = OmegaConf.to_container(settings)
    return argparse.Namespace(**{str(name): value for name, value in settings.items()})


def _configured(state: State, part: str) -> Any:
    """Return a section of ``cfg``: a dictionary, or an OmegaConf tree in older releases; None if it is missing."""
    cfg = state.get("cfg")
    found = None if cfg is None else cfg.get(part)
    return vars(found) if part == "task" and isinstance(found, argparse.Namespace) else found


def task_settings(state: State) -> State:
    """Return the task's settings saved by fairseq, with the task's name as ``_name``; empty if there are none."""
    if state.get("args") is not None:
        values = vars(saved_settings(state))
        return {**values, "_name": values.get("task")}
    task = _configured(state, "task")
    return {} if task is None else {str(name): value for name, value in task.items()}


class StoredModule(NamedTuple):
    """An attention module or feed-forward block in a state dict; the prefix starts the names of its tensors."""

    component: str
    layer: int
    prefix: str

    @property
    def output(self) -> str:
        """The name of the weight whose columns are the parts."""
        return self.prefix + ("fc2.weight" if self.component in FFN else "out_proj.weight")

    @property
    def keep(self) -> str:
        """The name of the mask."""
        return self.prefix + ("fc2.ffn_keep" if self.component in FFN else "head_keep")

    def names(self, weights: Iterable[str]) -> list[str]:
        """Return the names of the module's tensors among those of a state dict."""
        begin = (f"{self.prefix}fc1.", f"{self.prefix}fc2.") if self.component in FFN else self.prefix
        return [name for name in weights if name.startswith(begin)]


def part_modules(weights: Iterable[str], components: Iterable[str] = COMPONENTS) -> list[StoredModule]:
    """List the modules with prunable parts in the order component, layer; layers are numbered without gaps."""
    found = []
    for name in weights:
        parts = name.split(".")
        component, place = attention_place(".".join(parts[:-2]))
        if _BLOCK.search(name):
            component = "dec_ffn" if "decoder" in parts else "enc_ffn"
        elif parts[-2:] != ["out_proj", "weight"] or parts[-3:-2] not in (["self_attn"], ["encoder_attn"]):
            continue
        found.append(
            (COMPONENTS.index(component), place, name.removesuffix("fc2.weight").removesuffix("out_proj.weight"))
        )
    layers = dict.fromkeys(COMPONENTS, 0)
    modules = []
    for number, _, prefix in sorted(found):
        component = COMPONENTS[number]
        modules.append(StoredModule(component, layers[component], prefix))
        layers[component] += 1
    return [module for module in modules if module.component in set(components)]


def head_shape(state: State) -> Shape:
    """Return the number of heads of each layer, by component, from the names of the weights and the saved settings.

    Removed heads are included: head counts are always the original ones. Where gated modules stored their head counts
    beside the weights, these must agree with the settings: the weights themselves do not show how many heads they have.

    Raises:
        ValueError: no attention weights, or missing or inconsistent head counts.
    """
    settings = saved_settings(state)
    _check_twice_said(state)
    layout = layout_of_settings(settings, "the checkpoint's ")
    noted = getattr(state["model"], "_metadata", {})
    shape: Shape = {}
    for component, layer, prefix in part_modules(state["model"], HEADS):
        heads = _heads_setting(settings, "encoder" if component == "enc_self" else "decoder")
        kept = heads
        if layout is not None and set(HEADS) & set(layout.rows):
            heads, kept = _layer_of_layout(layout, component, layer)
        found = noted.get(prefix[:-1], {}).get("num_heads", kept)
        _check_heads(f"{component} layer {layer}", state["model"][f"{prefix}out_proj.weight"], found, kept, heads)
        shape.setdefault(component, []).append(heads)
    if not shape:
        raise ValueError("the checkpoint holds no attention weights (names ending in self_attn or encoder_attn)")
    return shape


def stored_layout(state: State) -> Layout:
    """Return which original parts the weights still have.

    Raises:
        ValueError, KeyError: missing or inconsistent numbers of parts, or a layout of a newer version.
    """
    shape = head_shape(state)
    for module in part_modules(state["model"], FFN):
        shape.setdefault(module.component, []).append(state["model"][module.output].size(1))
    noted = layout_of_settings(saved_settings(state), "the checkpoint's ") or Layout({}, {})
    layout = noted.completed(shape)
    for component, counts in layout.original.items():
        found = len(shape.get(component, []))
        if found != len(counts):
            raise ValueError(f"{component}: the checkpoint's layout has {len(counts)} layers, the weights {found}")
        for layer in range(found if component in FFN else 0):
            expected, count = len(layout.indices(component, layer)), shape[component][layer]
            if count != expected:
                raise ValueError(f"{component} layer {layer}: expected {expected} units, found weights for {count}")
    return layout


def _check_twice_said(state: State) -> None:
    """Check that the head counts in old ``args`` and in ``cfg`` agree, if both exist: the weights do not show them."""
    if state.get("args") is None or _configured(state, "model") is None:
        return
    for side in ("encoder", "decoder"):
        found = [_heads_setting(saved_settings(state | other), side) for other in ({"cfg": None}, {"args": None})]
        if found[0] != found[1]:
            raise ValueError(f'the {side} has {found[0]} heads a layer by "args", {found[1]} by "cfg": one was edited')


def _layer_of_layout(layout: Layout, component: str, layer: int) -> tuple[int, int]:
    """Return the original and the current number of heads of one layer."""
    rows = layout.rows.get(component, [])
    if layer >= len(rows):
        raise ValueError(f"{component} layer {layer}: the checkpoint's layout has {len(rows)} layers")
    return layout.original[component][layer], sum(rows[layer])


def _check_heads(where: str, weight: torch.Tensor, found: int, kept: int, heads: int) -> None:
    width, columns = weight.shape
    if found != kept:
        raise ValueError(f"{where}: the weights were saved with {found} heads, the checkpoint's settings say {kept}")
    if width % heads:
        raise ValueError(f"{where}: a width of {width} cannot be split into the {heads} heads of the settings")
    if columns != kept * (width // heads):
        raise ValueError(
            f"{where}: expected {kept} heads of width {width // heads} (as the checkpoint's settings say), found "
            f"weights for {columns / (width // heads):g}"
        )


def stored_mask(state: State) -> Mask | None:
    """Return the mask in the checkpoint (unmasked layers keep everything), None if there is none.

    Removed parts are pruned in it. Its ``source`` is the origin that the training task stored, if any.

    Raises:
        ValueError: a mask that does not fit the numbers of parts.
    """
    layout = stored_layout(state)
    if not layout.dropped(COMPONENTS) and not has_mask(state):
        return None
    kept = layout.stored_rows()
    for module in part_modules(state["model"]):
        component, layer, _ = module
        keep = state["model"].get(module.keep)
        if keep is None:
            continue
        indices = layout.indices(component, layer)
        block = component in FFN and not keep.dim()
        if not block and keep.shape != (len(indices),):
            raise ValueError(
                f"the mask has {keep.numel()} {noun(component)}s in {component} layer {layer}, the checkpoint has "
                f"{len(indices)}"
            )
        marks = [bool(keep)] * len(indices) if block else keep.tolist()
        row = [index for index, mark in zip(indices, marks, strict=True) if mark]
        kept[component][layer] = None if block and not keep else row
    mask = Layout(layout.original, kept).mask()
    origin = (state.get("task_state") or {}).get("head_mask") or layout.source
    mask.source = {key: value for key, value in origin.items() if key not in ("heads", "ffn")}
    return mask


def updates_of(state: State) -> int | None:
    """Return the updates of the training that saved a checkpoint, without those of one before it; None: not told."""
    history = state.get("optimizer_history")
    return history[-1].get("num_updates") if history else None


def has_mask(state: State) -> bool:
    """Whether a mask is stored beside the weights."""
    return any(name.endswith((".head_keep", ".ffn_keep")) for name in state["model"])


def _heads_setting(settings: argparse.Namespace, side: str) -> int:
    """Return ``encoder_attention_heads``, or in fairseq's hydra form ``attention_heads`` of ``encoder``."""
    part = getattr(settings, side, None)
    value = getattr(settings, f"{side}_attention_heads", None)
    if value is None and isinstance(part, Mapping):
        value = part.get("attention_heads")
    if not isinstance(value, int) or value < 1:
        raise ValueError(
            f"the checkpoint's settings do not tell the number of {side} heads ({side}_attention_heads: {value!r})"
        )
    return value
