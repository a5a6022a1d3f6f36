"""``headprune mask --from-checkpoint``: the set of heads that a training with learned gates chose."""

import argparse
from typing import Any

from fairseq_headprune.files import sha256
from fairseq_headprune.gates.counts import parse_count
from fairseq_headprune.heads import Head, HeadMask

#: the flags of ``headprune mask`` that go with --from-checkpoint
_FLAGS = {"from_checkpoint", "heads", "output", "json"}


def heads_flag(text: str) -> int | dict[str, int]:
    """Read ``--heads``: K, or one number a component."""
    try:
        return parse_count("--heads", text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def learned_mask(args: argparse.Namespace) -> tuple[HeadMask, dict[str, Any]]:
    """Return the mask of the learned set, with exactly ``--heads`` heads if given, and where it comes from.

    Raises:
        ValueError: a checkpoint without learned gates, a number of heads out of range, or a flag that does not go with
            ``--from-checkpoint``.
    """
    for name, value in vars(args).items():
        if name not in _FLAGS and value not in (None, False):
            flag = "--" + name.replace("_", "-")
            raise ValueError(f"{flag} does not go with --from-checkpoint: make the mask, and start from it with --like")
    # They load torch, which other masks do without.
    from fairseq_headprune.checkpoints import head_layout, read_state
    from fairseq_headprune.gates.choice import choose
    from fairseq_headprune.gates.saved import saved_gates

    path = args.from_checkpoint
    state = read_state(path)
    try:
        gates = saved_gates(state)
        if gates is None:
            raise ValueError(
                "the checkpoint holds no learned gates; train with label_smoothed_cross_entropy_dsp or _l0, "
                "or take the mask it holds with --like"
            )
        choice = choose(gates, args.heads)
        mask = head_layout(state).mask().without(choice.dropped)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    correction = {"learned": choice.learned, "changed": len(choice.included) + len(choice.excluded)}
    correction |= {"included": _plain(choice.included), "excluded": _plain(choice.excluded)}
    source = {"gates": gates.description, "updates": gates.updates, "correction": correction}
    return mask, source | {"checkpoint": {"path": str(path), "sha256": sha256(path)}}


def correction_text(source: dict[str, Any]) -> str:
    """Say in a line what the correction changed."""
    found = source["correction"]
    line = f"the learned set has {found['learned']} heads; {found['changed']} changed"
    for name, verb in (("included", "included again"), ("excluded", "excluded")):
        if found[name]:
            line += f"; {verb}: " + ", ".join(str(Head(*place)) for place in found[name])
    return line


def _plain(heads: list[Head]) -> list[list]:
    return [list(head) for head in heads]
