"""Averages the weights of several checkpoints that have the same structure and the same heads."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from fairseq_headprune.checkpoints import State, read_state, stored_layout
from fairseq_headprune.files import PathLike, check_output, identified, same_file, write_with
from fairseq_headprune.removal.checkpoint import check_whole
from fairseq_headprune.removal.settings import forget_training
from fairseq_headprune.removal.surgery import LEARNED, compact
from fairseq_headprune.stored.dictionaries import differing_sides, noted_hashes


def average_checkpoints(paths: Sequence[PathLike], output: PathLike) -> dict[str, Any]:
    """Write the average of checkpoints: settings, dictionary hashes and masks from the last one, no optimizer state.

    Floating-point weights are averaged in float64 and stored in their own dtype. Everything else must be equal: names,
    shapes and dtypes, the remaining heads and feed-forward parts, masks, dictionaries where their hashes are stored,
    and integer buffers. Learned gates are omitted; the masks they chose are kept.

    Raises:
        ValueError: fewer than two checkpoints, or a difference in structure; the message names the first one.
        FileNotFoundError: there is no such checkpoint, or the folder of the output does not exist.
    """
    if len(paths) < 2:
        raise ValueError("give at least two checkpoints to average")
    if any(same_file(path, output) for path in paths):
        raise ValueError(f"the output {output} is one of the inputs; choose another name")
    check_output(output)
    state = average([read_state(path) for path in paths], [str(path) for path in paths])
    write_with(output, lambda stream: torch.save(state, stream))
    inputs = [identified(path) for path in paths]
    return {"checkpoints": inputs, "output": identified(output), "precision": _precision(state["model"])}


def _precision(weights: Mapping[str, torch.Tensor]) -> str:
    """Return the dtypes of the floating-point weights, such as ``float16``."""
    types = {_type(tensor) for tensor in weights.values() if tensor.is_floating_point()}
    return " and ".join(sorted(types))


def _type(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def average(states: Sequence[State], names: Sequence[str]) -> State:
    """Return the average of loaded checkpoints; see :func:`average_checkpoints`.

    Raises:
        ValueError: different structures, unknown heads, or incomplete weights.
    """
    for state, name in zip(states, names, strict=True):
        try:
            check_whole(state)
            stored_layout(state)
        except (ValueError, KeyError) as error:
            raise type(error)(f"{name}: {error.args[0]}") from error
    first, new = states[0], dict(states[-1])
    for state, name in zip(states[1:], names[1:], strict=True):
        difference = _difference(first, state)
        if difference:
            raise ValueError(f"{names[0]} and {name} cannot be averaged: {difference}")
    weights: OrderedDict[str, torch.Tensor] = OrderedDict()
    means: dict[tuple, torch.Tensor] = {}
    for name, last in states[-1]["model"].items():
        if name.startswith(LEARNED):
            continue
        tensors = [state["model"][name] for state in states]
        if not last.is_floating_point():
            weights[name] = last.clone()
            continue
        # Tied weights stay tied: the average of the same tensors is computed once.
        key = tuple((t.data_ptr(), tuple(t.shape)) for t in tensors)
        if key not in means:
            means[key] = (sum(t.double() for t in tensors) / len(tensors)).to(last.dtype)
        weights[name] = means[key]
    notes = {k: dict(v) for k, v in getattr(states[-1]["model"], "_metadata", {}).items()}
    notes.pop(LEARNED.rstrip("."), None)
    new["model"] = weights = compact(weights)  # embeddings that were stored apart with equal values are one again
    weights._metadata = notes  # type: ignore[attr-defined]
    forget_training(new, stock=False)
    hashes = {side: found for state in states for side, found in noted_hashes(state).items()}
    if hashes:
        new["task_state"]["dictionaries"] = hashes
    return new


def _difference(left: State, right: State) -> str:
    """Describe how the structures of two checkpoints differ; empty if they do not."""
    for difference in stored_layout(left).differences(stored_layout(right)):
        return difference
    sides = differing_sides(noted_hashes(left), noted_hashes(right))
    if sides:
        return f"they were trained with another {sides} dictionary"
    names = [{n for n in state["model"] if not n.startswith(LEARNED)} for state in (left, right)]
    alone = sorted(names[0] ^ names[1])
    if alone:
        return f"only one of them has {alone[0]}" + (f" and {len(alone) - 1} more" if len(alone) > 1 else "")
    for name in sorted(names[0]):
        a, b = left["model"][name], right["model"][name]
        if a.shape != b.shape:
            return f"{name} is {tuple(a.shape)} in one and {tuple(b.shape)} in the other"
        if a.dtype != b.dtype:
            return f"{name} is of {_type(a)} in one and of {_type(b)} in the other; write both in one precision first"
        if not a.is_floating_point() and not torch.equal(a, b):
            what = "their masks" if name.endswith(("head_keep", "ffn_keep")) else "they"
            return f"{what} differ ({name}); average models with the same heads"
    return ""
