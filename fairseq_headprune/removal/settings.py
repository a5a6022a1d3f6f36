"""What a checkpoint holds besides its weights, after removal: settings, layout, and the optimizer's state."""

import argparse
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from fairseq_headprune.checkpoints import GatedSettings, State, saved_settings
from fairseq_headprune.parts.layout import FFN_SETTING, SETTING, Layout
from fairseq_headprune.removal.surgery import compact, parameter_names

#: suffixes of the architectures that exist both as fairseq's ``transformer…`` and as ``transformer_gated…``
SUFFIXES = (
    "",
    "_tiny",
    "_iwslt_de_en",
    "_wmt_en_de",
    "_wmt_en_de_big",
    "_vaswani_wmt_en_de_big",
    "_vaswani_wmt_en_fr_big",
)

#: architectures of BERT, which stock fairseq does not have
BERT = ("bert_gated", "bert_gated_base", "bert_gated_mini")

#: architectures of imported models, none of which stock fairseq can represent
IMPORTED = ("marian_gated", "m2m_100_gated", "bart_gated", "mbart_gated")

_GATED = {f"transformer{suffix}": f"transformer_gated{suffix}" for suffix in SUFFIXES}
_STOCK = {gated: stock for stock, gated in _GATED.items()}

_TASK, _STOCK_TASK = "translation_headprune", "translation"

#: replaces the optimizer's name, so that fairseq refuses to resume and mentions --reset-optimizer
NO_OPTIMIZER = "none (dropped when heads were removed)"


def check_removable(settings: argparse.Namespace, stock: bool = False) -> None:
    """Check that heads can be cut out of a model with these settings (``stock``: and replaced by zeros).

    Raises:
        ValueError: an architecture that is not known to be a plain transformer, or a setting under which shapes depend
            on the number of heads.
    """
    arch = getattr(settings, "arch", None) or getattr(settings, "_name", None)
    known = [*_GATED, *_STOCK, *BERT, *IMPORTED]
    if arch not in known:
        raise ValueError(f"cannot remove heads of the architecture {arch!r}; known are {', '.join(known)}")
    if stock and arch in (*BERT, *IMPORTED):
        way_out = "; export --to huggingface writes zeros in the place of heads" if arch in IMPORTED else ""
        raise ValueError(f"--bake is for stock fairseq, which has no {arch}{way_out}")
    refuse_unfit(settings)


def refuse_unfit(settings: Any) -> None:
    """Refuse settings under which other parts of a layer depend on its number of heads.

    Raises:
        ValueError: ``scale_heads``, quantisation noise or ``base_layers`` is on.
    """
    for name in ("scale_heads", "quant_noise_pq", "quant_noise_scalar", "base_layers"):
        if getattr(settings, name, None):
            raise ValueError(f"heads cannot be removed from a model built with {name}")


def set_layout(state: State, layout: Layout | None) -> None:
    """Replace the model settings of a checkpoint: gated with a layout, or those of stock fairseq if it is None.

    In both cases the mask set for training is dropped: the structure (or the weights) now reflects it.
    """
    values = dict(vars(saved_settings(state)))
    arch = values.get("arch") or values["_name"]
    for name in (SETTING, FFN_SETTING):
        values.pop(name, None)
    if layout is not None:
        settings: argparse.Namespace = GatedSettings(**values)
        setattr(settings, SETTING, layout.to_dict())
        arch = _GATED.get(arch, arch)
    else:
        settings = argparse.Namespace(**values)
        arch = _STOCK.get(arch, arch)
    for name in {"arch", "_name"} & values.keys() or {"arch"}:
        setattr(settings, name, arch)
    _forget_mask(vars(settings), "task", stock=layout is None)
    if state.get("args") is not None:
        state["args"] = settings
    else:
        state["cfg"] = _with_model(state["cfg"], settings, stock=layout is None)


def _with_model(cfg: Any, settings: argparse.Namespace, stock: bool) -> dict:
    if not isinstance(cfg, dict):
        from omegaconf import OmegaConf

        cfg = OmegaConf.to_container(cfg)
    cfg = {**cfg, "model": settings}
    if isinstance(cfg.get("task"), Mapping):
        cfg["task"] = dict(cfg["task"])
        _forget_mask(cfg["task"], "_name", stock)
    return cfg


def _forget_mask(values: dict, task_key: str, stock: bool) -> None:
    if "head_mask" in values:
        values["head_mask"] = None
    if stock:
        values.pop("head_mask", None)
        if values.get(task_key) == _TASK:
            values[task_key] = _STOCK_TASK


def forget_training(state: State, stock: bool) -> None:
    """Drop what belongs to the old parameters: optimizer state, moving averages, and stored mask metadata.

    An empty optimizer state with another name remains; fairseq then refuses to resume and mentions --reset-optimizer.
    """
    history = [dict(entry) for entry in state.get("optimizer_history") or []]
    if history:
        history[-1]["optimizer_name"] = NO_OPTIMIZER
        state["optimizer_history"], state["last_optimizer_state"] = history, {}
    else:
        state.pop("last_optimizer_state", None)
    for key in ("extra_state", "task_state"):
        state[key] = dict(state.get(key) or {})
    for name in ("ema", "ema_fp32_params"):
        state["extra_state"].pop(name, None)
    for name in ("head_mask", "dictionaries") if stock else ("head_mask",):
        state["task_state"].pop(name, None)


Weights = Mapping[str, Tensor]


def cut_optimizer(model: Weights, optimizer: Mapping[str, Any], cut: Callable[[Weights], Weights]) -> dict[str, Any]:
    """Cut the moments of an optimizer, which are laid out like its parameters.

    Either each parameter has moments of its shape (``--cpu`` and float32 training, ``--memory-efficient-fp16``,
    ``--fp16-no-flatten-grads``), or all share one flat vector (``--fp16``).

    Args:
        model: the weights of the whole checkpoint.
        optimizer: ``last_optimizer_state`` of the checkpoint.
        cut: removes heads from weights, or from moments passed in their place.

    Raises:
        ValueError: there is no state, the optimizer is not element-wise, or the state is of other parameters.
    """
    entries = optimizer.get("state")
    if not entries:
        raise ValueError("--keep-optimizer: the checkpoint holds no optimizer state")
    shapes = OrderedDict((name, model[name].shape) for name in parameter_names(compact(model)))
    flat = len(entries) == 1 and len(shapes) > 1
    if not flat and len(entries) != len(shapes):
        raise ValueError(
            f"--keep-optimizer: the optimizer knows {len(entries)} parameters, the model has {len(shapes)}; leave the "
            "optimizer's state out"
        )
    kinds = [kind for kind, value in next(iter(entries.values())).items() if torch.is_tensor(value) and value.dim()]
    new_entries: dict[int, dict[str, Any]] = {}
    for kind in kinds:
        moments = _named(entries, kind, shapes, flat)
        after = cut(moments)
        # A module without heads keeps an empty out_proj, which is not a parameter.
        mine = [after[name] for name in shapes if name in after and after[name].numel()]
        mine = [torch.cat([value.flatten() for value in mine])] if flat else mine
        for place, value in enumerate(mine):
            new_entries.setdefault(place, {})[kind] = value
    rest = {key: value for key, value in next(iter(entries.values())).items() if key not in kinds}
    new_entries = {place: {**rest, **value} for place, value in new_entries.items()}
    groups = [dict(group) for group in optimizer["param_groups"]]
    if len(groups) != 1:
        raise ValueError(f"--keep-optimizer: {len(groups)} parameter groups, known is 1; leave the state out")
    groups[0]["params"] = list(new_entries)
    return {**optimizer, "state": new_entries, "param_groups": groups}


def _named(entries: Mapping, kind: str, shapes: Mapping[str, torch.Size], flat: bool) -> "OrderedDict[str, Tensor]":
    """Return one kind of moment, keyed by parameter name."""
    if flat:
        vector = next(iter(entries.values()))[kind]
        sizes = [shape.numel() for shape in shapes.values()]
        if vector.numel() != sum(sizes):
            raise ValueError(
                f"--keep-optimizer: {kind} has {vector.numel():,} entries, the model {sum(sizes):,} parameters; leave "
                "the optimizer's state out"
            )
        parts = [part.view(shape) for part, shape in zip(vector.split(sizes), shapes.values(), strict=True)]
    else:
        parts = [entry[kind] for entry in entries.values()]
    for (name, shape), part in zip(shapes.items(), parts, strict=True):
        if part.shape != shape:
            raise ValueError(
                f"--keep-optimizer: {kind} of {name} is {tuple(part.shape)}, the weight {tuple(shape)}: only "
                "element-wise optimizers such as Adam can be cut"
            )
    return OrderedDict(zip(shapes, parts, strict=True))
