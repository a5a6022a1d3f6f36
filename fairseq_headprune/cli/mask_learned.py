"""``headprune mask --from-checkpoint``: the heads chosen by learned gates, or the gates themselves."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fairseq_headprune.files import sha256
from fairseq_headprune.parts import HEADS, Mask, Part
from fairseq_headprune.parts.mask import SoftGates

if TYPE_CHECKING:
    from fairseq_headprune.gates.saved import SavedGates

#: the flags of ``headprune mask`` that may be combined with --from-checkpoint
_FLAGS = {"from_checkpoint", "heads", "soft", "output", "json"}


def learned_mask(args: argparse.Namespace) -> tuple[Mask, dict[str, Any]]:
    """Return the mask of the learned set (with exactly ``--heads`` heads if given) and its source.

    Raises:
        ValueError: a checkpoint without learned gates, a number of heads out of range, or a flag that cannot be
            combined with ``--from-checkpoint``.
    """
    from fairseq_headprune.gates.saved import choose  # imports torch, which other masks do not need

    with _read(args) as (full, gates):
        choice = choose(gates, args.heads)
        mask = full.without(choice.dropped)
    numbers = {"target": gates.description.get("heads_kept"), "expected": round(gates.expected(), 2)}
    correction = {"learned": choice.learned, **numbers, "changed": len(choice.included) + len(choice.excluded)}
    correction |= {"included": _plain(choice.included), "excluded": _plain(choice.excluded)}
    return mask, _source(args, gates) | {"correction": correction}


def learned_gates(args: argparse.Namespace) -> tuple[SoftGates, dict[str, Any]]:
    """Return the gates used in evaluation (``--soft``; 1 for heads without a gate) and their source.

    Raises:
        ValueError: as for :func:`learned_mask`, or gates that are 0 or 1 by design.
    """
    if args.heads is not None:
        raise ValueError("--heads is not supported with --soft: heads that it includes again have a gate of 0")
    with _read(args) as (full, gates):
        if gates.description["kind"] != "l0":
            raise ValueError(f"gates of {gates.description['kind']} are 0 or 1: make a mask, without --soft")
        values = {c: [list(map(float, row)) for row in rows] for c, rows in full.only(HEADS).rows.items()}
        for (component, layer, head), gate in zip(gates.heads, gates.evaluated().tolist(), strict=True):
            values[component][layer][head] *= gate
    return SoftGates(values), _source(args, gates)


@contextmanager
def _read(args: argparse.Namespace) -> Iterator[tuple[Mask, "SavedGates"]]:
    """Yield the mask of existing heads and the checkpoint's gates; errors in the block name the checkpoint."""
    for name, value in vars(args).items():
        if name not in _FLAGS and value not in (None, False):
            flag = "--" + name.replace("_", "-")
            raise ValueError(
                f"{flag} is not supported with --from-checkpoint: make the mask, then start from it with --like"
            )
    # These import torch, which other masks do not need.
    from fairseq_headprune.checkpoints import read_state, stored_layout
    from fairseq_headprune.gates.saved import saved_gates

    state = read_state(args.from_checkpoint)
    try:
        gates = saved_gates(state)
        if gates is None:
            raise ValueError(
                "the checkpoint holds no learned gates; train with label_smoothed_cross_entropy_dsp or _l0, "
                "or take the mask it holds with --like"
            )
        yield stored_layout(state).mask(), gates
    except ValueError as error:
        raise ValueError(f"{args.from_checkpoint}: {error}") from error


def _source(args: argparse.Namespace, gates: "SavedGates") -> dict[str, Any]:
    path = args.from_checkpoint
    checkpoint = {"path": str(path), "sha256": sha256(path)}
    return {"gates": gates.description, "updates": gates.updates, "checkpoint": checkpoint}


def correction_text(source: dict[str, Any]) -> str:
    """Describe in one line what the correction changed."""
    found = source["correction"]
    line = f"the learned set has {found['learned']} heads ({counts_text(found)}); {found['changed']} changed"
    for name, verb in (("included", "included again"), ("excluded", "excluded")):
        if found[name]:
            line += f"; {verb}: " + ", ".join(str(Part(*place)) for place in found[name])
    return line


def counts_text(found: dict[str, Any]) -> str:
    """Describe the target number of heads (none with a fixed penalty) and the expected number of open gates."""
    target = found["target"]
    if isinstance(target, dict):
        target = ", ".join(f"{component} {count}" for component, count in target.items())
    return f"target {'none' if target is None else target}, expected to be open {found['expected']:.1f}"


def _plain(heads: list[Part]) -> list[list]:
    return [list(head) for head in heads]
