"""Checkpoints without the pruned heads (slim), or of full size with zeros in their place (baked)."""

import os
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fairseq_headprune.checkpoints import (
    State,
    StoredModule,
    has_mask,
    part_modules,
    read_state,
    saved_settings,
    stored_layout,
    stored_mask,
    task_settings,
)
from fairseq_headprune.files import PathLike, check_output, identified, same_file, write_with
from fairseq_headprune.modules.cutting import BLOCK_BIAS, Tensors, cut, parameters_per_part
from fairseq_headprune.parts import FFN, HEADS, Mask, Part
from fairseq_headprune.parts.layout import Layout
from fairseq_headprune.parts.mask import SoftGates
from fairseq_headprune.removal.settings import check_removable, cut_optimizer, forget_training, set_layout
from fairseq_headprune.removal.surgery import (
    LEARNED,
    compact,
    fold_gates,
    parameter_count,
    split_joined,
    unread_norms,
    with_inputs,
)
from fairseq_headprune.stored.dictionaries import hashes_from_data, noted_hashes


@dataclass
class Removal:
    """The result of removing parts from a checkpoint.

    Attributes:
        state: the new checkpoint.
        before, layout: the parts in the weights before and after (in a baked model: those that are not zero).
        parameters: ``before`` and ``after``, counted from the tensors, tied ones once; ``by_formula``: the removed
            ones, head_dim * (2 d + 2 e + 3) per head with biases (e: the width of the keys), 2 d + 1 per feed-forward
            unit, and d more per block.
    """

    state: State
    before: Layout
    layout: Layout
    parameters: dict[str, int]


def remove_heads(
    state: State,
    mask: Mask | None = None,
    bake: bool = False,
    ffn: bool = False,
    keep_optimizer: bool = False,
    gates: SoftGates | None = None,
) -> Removal:
    """Remove the heads that a mask prunes from a fairseq checkpoint; the input is unchanged.

    Args:
        state: as :func:`read_state` returns it, of a ``transformer…`` or ``transformer_gated…`` model.
        mask: which heads to keep, by original index; default: the mask stored in the checkpoint.
        bake: keep the size, with zeros for pruned heads, and make it a checkpoint of stock fairseq.
        ffn: also remove the feed-forward units and blocks that the mask prunes; without it, none may be pruned.
        keep_optimizer: cut the optimizer state like the weights, instead of dropping it.
        gates: instead of a mask: heads with gate 0 are removed, the others' gates are folded into ``out_proj``.

    Raises:
        ValueError: no mask, one that does not fit or keeps a removed head, or a checkpoint that cannot be cut.
    """
    check_whole(state)
    settings = saved_settings(state)
    check_removable(settings, stock=bake)
    if gates is not None:
        _check_gates(state, gates, mask, ffn, keep_optimizer)
        state, mask = fold_gates(state, gates), gates.mask()
    before = stored_layout(state)
    mask = _mask(state, mask, bake)
    layout = before.under(mask, mask.source)
    if not ffn and any(layout.rows[c] != before.rows[c] for c in FFN if c in before.rows):
        raise ValueError("the mask prunes feed-forward units or blocks; remove them, too, with --ffn")
    new: State = dict(state)
    weights = compact({name: t for name, t in state["model"].items() if not name.startswith(LEARNED)})
    before_count = parameter_count(weights)

    carried_out = _Cut(state, before, layout, bake)
    removed = carried_out(weights)
    new["model"] = weights
    _note_heads(state, new, layout, bake)
    set_layout(new, None if bake else layout)
    history, optimizer = state.get("optimizer_history"), state.get("last_optimizer_state") or {}
    forget_training(new, stock=bake)
    if keep_optimizer:
        if bake:
            raise ValueError("--keep-optimizer does not go with --bake, which is for programs without the plugin")
        frozen = unread_norms(state, before)
        known = {name: tensor for name, tensor in state["model"].items() if name not in frozen}
        new["last_optimizer_state"] = cut_optimizer(known, optimizer, carried_out.learned)
        new["optimizer_history"] = history
    counts = {"before": before_count, "after": parameter_count(weights), "by_formula": removed}
    return Removal(new, before, layout, counts)


@dataclass
class _Cut:
    """Cuts parts out of a checkpoint's weights, or out of optimizer moments with the same layout."""

    state: State
    before: Layout
    after: Layout
    bake: bool

    def __call__(self, tensors: MutableMapping[str, Tensor]) -> int:
        """Cut named tensors in place, and return the number of elements removed."""
        removed = 0
        for module in part_modules(self.state["model"]):
            mine = {
                n.removeprefix(module.prefix): tensors.pop(n) for n in module.names(self.state["model"]) if n in tensors
            }
            found, gone = self._cut(module, mine)
            removed += gone
            tensors.update({module.prefix + name: tensor for name, tensor in found.items()})
        return removed

    def _cut(self, module: StoredModule, tensors: Tensors) -> tuple[Tensors, int]:
        """Cut the tensors of one module; return the result, and the number of elements removed."""
        component, layer, _ = module
        have, keep = self.before.indices(component, layer), self.after.indices(component, layer)
        count, dropped = self.before.original[component][layer], not self.after.has_block(component, layer)
        if component in HEADS:
            tensors = split_joined(tensors)
            _check_attention(tensors, f"{component} layer {layer}")
        removed = (len(have) - len(keep)) * parameters_per_part(tensors, len(have))
        removed += tensors[BLOCK_BIAS].numel() if dropped and BLOCK_BIAS in tensors else 0
        if not self.bake and keep == have and not (dropped and BLOCK_BIAS in tensors):
            return {name: tensor for name, tensor in tensors.items() if not name.endswith("_keep")}, 0
        output = tensors[module.output.removeprefix(module.prefix)]
        width = 1 if component in FFN else output.size(0) // count
        places = {index: place for place, index in enumerate(have)}
        if not self.bake:
            return cut(tensors, [places[index] for index in keep], width, dropped), removed
        tensors = with_inputs(tensors, self._key_width(component, output))
        if dropped:
            tensors[BLOCK_BIAS] = torch.zeros_like(tensors[BLOCK_BIAS])
        kept = set(keep)
        return cut(tensors, [places[i] if i in kept else None for i in range(count)], width), removed

    def _key_width(self, component: str, output: Tensor) -> int:
        asked = getattr(saved_settings(self.state), "encoder_embed_dim", None) if component == "enc_dec" else None
        return asked or output.size(0)

    def learned(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return the tensors (unchanged) without those that are not learned parameters of the result."""
        result = dict(tensors)
        self(result)
        frozen = unread_norms(self.state, self.after)
        return {name: tensor for name, tensor in result.items() if name not in frozen}


def slim_checkpoint(
    path: PathLike,
    output: PathLike,
    mask: Mask | None = None,
    bake: bool = False,
    ffn: bool = False,
    keep_optimizer: bool = False,
    gates: SoftGates | None = None,
) -> dict[str, Any]:
    """Read a checkpoint, remove heads (see :func:`remove_heads`), write the result atomically and return a summary.

    Raises:
        ValueError: as for :func:`remove_heads`, or the output is the input.
        OSError: the output cannot be written; no partial file remains.
    """
    if same_file(path, output):
        raise ValueError(f"the output {output} is the input; choose another name")
    check_output(output)
    try:
        state = read_state(path)
        removal = remove_heads(state, mask, bake, ffn, keep_optimizer, gates)
    except (ValueError, KeyError) as error:
        text = str(error.args[0])
        raise type(error)(text if text.startswith(str(path)) else f"{path}: {text}") from error
    if not bake and not noted_hashes(state) and (hashes := hashes_from_data(state, task_settings(state), path)):
        removal.state["task_state"]["dictionaries"] = hashes
    write_with(output, lambda stream: torch.save(removal.state, stream))
    already = len(removal.before.mask().dropped())
    return {
        "mode": "bake" if bake else "slim",
        "checkpoint": _file(path),
        "output": _file(output),
        "mask": removal.layout.source,
        "layout": removal.layout.to_dict(),
        "removed": len(removal.layout.mask().dropped()) - already,
        "removed_before": already,
        "parameters": removal.parameters,
        "optimizer": "kept" if keep_optimizer else "dropped",
        **({} if gates is None else {"folded": len(gates.soft())}),
        **({"ffn": {"counts": removal.layout.ffn_counts()}} if ffn else {}),
    }


def parameters_of_heads(state: State) -> dict[Part, int]:
    """Return the number of parameters of each head in a checkpoint."""
    layout = stored_layout(state)
    found: dict[Part, int] = {}
    for component, layer, prefix in part_modules(state["model"], HEADS):
        attention = {n.removeprefix(prefix): t for n, t in state["model"].items() if n.startswith(prefix)}
        heads = layout.indices(component, layer)
        size = parameters_per_part(split_joined(attention), len(heads))
        found |= {Part(component, layer, head): size for head in heads}
    return found


def parameters_of_ffn(state: State, mask: Mask) -> int:
    """Return the number of parameters of the feed-forward parts that a mask prunes.

    Raises:
        ValueError: the mask does not fit, or keeps a removed part.
    """
    layout = stored_layout(state)
    ffn = Mask({**layout.mask().rows, **{c: rows for c, rows in mask.rows.items() if c in FFN}})
    return _Cut(state, layout, layout.under(ffn), bake=False)(dict(state["model"]))


def _file(path: PathLike) -> dict[str, Any]:
    return identified(path) | {"bytes": os.path.getsize(path)}


def _mask(state: State, mask: Mask | None, bake: bool) -> Mask:
    if mask is None:
        mask = stored_mask(state)
        if mask is None or not (bake or has_mask(state)):
            raise ValueError("the checkpoint holds no mask; say which heads are kept with --mask FILE")
    return mask


def _check_gates(state: State, gates: SoftGates, mask: Mask | None, ffn: bool, keep_optimizer: bool) -> None:
    if mask is not None:
        raise ValueError("gates say which heads are kept: give no mask beside them")
    says_ffn = any(c in FFN for c in gates.rows)
    if ffn and not says_ffn:
        raise ValueError("--ffn is not supported with --gates without gates of feed-forward parts: slim a second time")
    if not says_ffn and any(name.endswith(".ffn_keep") for name in state["model"]):
        raise ValueError(
            "the checkpoint masks feed-forward parts, of which --gates say nothing: remove those first, with --ffn and "
            "a mask that keeps all heads"
        )
    if keep_optimizer:
        raise ValueError(
            "--keep-optimizer is not supported with --gates: scaled weights have other gradients than the optimizer "
            "has seen"
        )


def check_whole(state: State) -> None:
    """Refuse checkpoints that do not contain all weights as plain numbers.

    Raises:
        ValueError: one shard of a checkpoint, or a quantised checkpoint.
    """
    if "fsdp_metadata" in state or state.get("last_optimizer_state") == "SHARDED":
        raise ValueError("a part of a sharded checkpoint; write it as one file first (without --use-sharded-state)")
    for name, weight in state["model"].items():
        if "_packed_params" in name or (name.endswith("weight") and not weight.is_floating_point()):
            raise ValueError(f"{name} is not of plain floating-point numbers (a quantised checkpoint?)")


def _check_attention(attention: Tensors, where: str) -> None:
    unknown = [n for n in attention if n.startswith(("q_", "k_", "v_")) and not n.endswith(("weight", "bias"))]
    missing = attention["out_proj.weight"].size(1) and "q_proj.weight" not in attention
    if unknown or missing or not attention["out_proj.weight"].is_floating_point():
        raise ValueError(f"{where}: its projections are not plain floating-point weights (a quantised checkpoint?)")


def _note_heads(state: State, new: State, layout: Layout, bake: bool) -> None:
    """Store the head counts beside the weights, as gated modules do: the weights alone do not show them."""
    metadata: dict[str, Any] = {k: dict(v) for k, v in getattr(state["model"], "_metadata", {}).items()}
    metadata.pop(LEARNED.rstrip("."), None)
    for component, layer, prefix in part_modules(state["model"], HEADS):
        notes = metadata.setdefault(prefix[:-1], {"version": 1})
        for name in ("num_heads", "original_heads", "keep_source"):
            notes.pop(name, None)
        heads, kept = layout.original[component][layer], layout.indices(component, layer)
        notes["num_heads"] = heads if bake else len(kept)
        if notes["num_heads"] < heads:
            notes["original_heads"] = list(kept)
    new["model"]._metadata = metadata
