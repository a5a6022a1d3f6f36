"""Reading fairseq checkpoints without building the model: settings, head counts and the stored mask.

Only torch's safe loader is used: a checkpoint that would run code is refused, never executed.
"""

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from fairseq_headprune.parts import HEADS, Mask, Shape, attention_place
from fairseq_headprune.parts.layout import SETTING, Layout
from fairseq_headprune.removal.ffn import stored_ffn
from fairseq_headprune.stored.loader import GatedSettings as GatedSettings
from fairseq_headprune.stored.loader import State as State
from fairseq_headprune.stored.loader import allow_settings as allow_settings
from fairseq_headprune.stored.loader import read_state as read_state

_OUT_PROJ = ".out_proj.weight"


def saved_settings(state: State) -> argparse.Namespace:
    """Return the model's settings as fairseq saved them: from ``args`` (old) or ``cfg["model"]``.

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
    """Return a part of ``cfg``: a dictionary, or OmegaConf's in older releases; None if there is none."""
    cfg = state.get("cfg")
    found = None if cfg is None else cfg.get(part)
    return vars(found) if part == "task" and isinstance(found, argparse.Namespace) else found


def task_settings(state: State) -> State:
    """Return the task's settings as fairseq saved them, with the task's name as ``_name``; empty if there are none."""
    if state.get("args") is not None:
        values = vars(saved_settings(state))
        return {**values, "_name": values.get("task")}
    task = _configured(state, "task")
    return {} if task is None else {str(name): value for name, value in task.items()}


def head_shape(state: State) -> Shape:
    """Return the number of heads of each layer, by component, from the weights' names and the saved settings.

    Heads that were removed count, too: numbers of heads are always the original ones. Where gated modules noted their
    head counts beside the weights, these must agree with the settings: the weights themselves do not tell how many
    heads they hold.

    Raises:
        ValueError: no attention weights, or head counts that are missing or do not fit.
    """
    settings = saved_settings(state)
    _check_twice_said(state)
    layout = _layout_setting(settings)
    noted = getattr(state["model"], "_metadata", {})
    shape: Shape = {}
    for component, layer, prefix in attention_modules(state):
        heads = _heads_setting(settings, "encoder" if component == "enc_self" else "decoder")
        kept = heads
        if layout is not None:
            heads, kept = _layer_of_layout(layout, component, layer)
        found = noted.get(prefix, {}).get("num_heads", kept)
        _check_heads(f"{component} layer {layer}", state["model"][prefix + _OUT_PROJ], found, kept, heads)
        shape.setdefault(component, []).append(heads)
    if not shape:
        raise ValueError("the checkpoint holds no attention weights (names ending in self_attn or encoder_attn)")
    return shape


def head_layout(state: State) -> Layout:
    """Return which original heads the weights still hold (all, unless some were removed).

    Raises:
        ValueError, KeyError: head counts that are missing or do not fit, or a layout of a newer version.
    """
    shape = head_shape(state)
    layout = _layout_setting(saved_settings(state)) or Layout.full(shape)
    for component, counts in layout.original.items():
        if len(shape.get(component, [])) != len(counts):
            raise ValueError(
                f"{component}: the checkpoint's layout has {len(counts)} layers, the weights "
                f"{len(shape.get(component, []))}"
            )
    return layout


def _check_twice_said(state: State) -> None:
    """Compare the head counts of old ``args`` with those of ``cfg`` where both are stored: weights do not tell them."""
    if state.get("args") is None or _configured(state, "model") is None:
        return
    for side in ("encoder", "decoder"):
        found = [_heads_setting(saved_settings(state | other), side) for other in ({"cfg": None}, {"args": None})]
        if found[0] != found[1]:
            raise ValueError(f'the {side} has {found[0]} heads a layer by "args", {found[1]} by "cfg": one was edited')


def _layout_setting(settings: argparse.Namespace) -> Layout | None:
    value = getattr(settings, SETTING, None)
    return None if value is None else Layout.from_dict(value, f"the checkpoint's {SETTING}")


def _layer_of_layout(layout: Layout, component: str, layer: int) -> tuple[int, int]:
    """Return the original and the present number of heads of one layer."""
    rows = layout.kept.get(component, [])
    if layer >= len(rows):
        raise ValueError(f"{component} layer {layer}: the checkpoint's layout has {len(rows)} layers")
    return layout.original[component][layer], len(rows[layer])


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
    """Return the head mask that the checkpoint holds (all heads of unmasked layers kept), None if there is none.

    Heads that were removed are pruned in it. Its ``source`` is the origin that the training task noted, if any.

    Raises:
        ValueError: a mask that does not fit the head counts.
    """
    layout = head_layout(state)
    mask = layout.mask()
    mask.ffn = stored_ffn(state["model"], saved_settings(state))
    removed = bool(mask.dropped()) or mask.ffn is not None
    for component, layer, prefix in attention_modules(state):
        keep = state["model"].get(prefix + ".head_keep")
        if keep is None:
            continue
        kept = layout.kept[component][layer]
        if keep.shape != (len(kept),):
            raise ValueError(
                f"the mask has {keep.numel()} heads in {component} layer {layer}, the checkpoint has {len(kept)}"
            )
        for head, value in zip(kept, keep.int().tolist(), strict=True):
            mask.rows[component][layer][head] = value
    if not removed and not has_mask(state):
        return None
    origin = (state.get("task_state") or {}).get("head_mask") or mask.source
    mask.source = {key: value for key, value in origin.items() if key not in ("heads", "ffn")}
    return mask


def has_mask(state: State) -> bool:
    """Whether a mask is stored beside the weights."""
    return any(name.endswith((".head_keep", ".ffn_keep")) for name in state["model"])


def attention_modules(state: State) -> Iterator[tuple[str, int, str]]:
    """Iterate over (component, layer, prefix of the parameter names) in the order component, layer."""
    found = []
    for name in state["model"]:
        parts = name.removesuffix(_OUT_PROJ).split(".")
        if not name.endswith(_OUT_PROJ) or parts[-1] not in ("self_attn", "encoder_attn"):
            continue
        component, place = attention_place(".".join(parts))
        found.append((HEADS.index(component), place, ".".join(parts)))
    layers = dict.fromkeys(HEADS, 0)
    for number, _, prefix in sorted(found):
        component = HEADS[number]
        yield component, layers[component], prefix
        layers[component] += 1


def _heads_setting(settings: argparse.Namespace, side: str) -> int:
    """Return ``encoder_attention_heads``, or ``attention_heads`` of the part ``encoder`` (fairseq's hydra form)."""
    part = getattr(settings, side, None)
    value = getattr(settings, f"{side}_attention_heads", None)
    if value is None and isinstance(part, Mapping):
        value = part.get("attention_heads")
    if not isinstance(value, int) or value < 1:
        raise ValueError(
            f"the checkpoint's settings do not tell the number of {side} heads ({side}_attention_heads: {value!r})"
        )
    return value
