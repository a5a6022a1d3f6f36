"""Cuts a checkpoint's optimizer state in the same way as its weights."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from fairseq_headprune.removal.surgery import compact, parameter_names

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
