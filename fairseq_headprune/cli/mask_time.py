"""``headprune mask --for-speed`` and ``--for-latency``: the budget of time, from a profile."""

import argparse
import math
from collections.abc import Callable
from typing import Any

from fairseq_headprune.choosing.budget import fastest, keep_in_time
from fairseq_headprune.files import sha256
from fairseq_headprune.parts import Mask
from fairseq_headprune.parts.scores import Scores
from fairseq_headprune.speed.profile import Profile


def in_time(
    args: argparse.Namespace, start: Mask, scores: Scores, limit: Callable[[float], float]
) -> tuple[Mask, dict[str, Any]]:
    """Return the mask whose slim model is within the limit, and what its file says of the budget.

    Args:
        limit: seconds a batch from those of the profiled model.

    Raises:
        ValueError: a profile of another shape or with times that cannot be, or a target that is out of reach.
    """
    profile = Profile.load(args.profile)
    try:
        profile.seconds(start)
    except ValueError as error:
        raise ValueError(f"{args.profile}: {error}") from error
    if profile.rest <= 0:
        raise ValueError(
            f"{args.profile}: by its times nothing but attention takes time ({1000 * profile.rest:.2f} ms are left), "
            "so they are too noisy; run headprune profile again on an idle machine, with more --rounds"
        )
    whole = profile.whole()
    mask = keep_in_time(start, scores, profile.seconds, limit(whole))
    if mask is None:
        raise ValueError(_out_of_reach(args, fastest(start, scores, profile.seconds), whole))
    seconds = profile.seconds(mask)
    target = {"for_speed": args.for_speed} if args.for_speed else {"for_latency": args.for_latency}
    source: dict[str, Any] = {"path": str(args.profile), "sha256": sha256(args.profile)}
    source |= {"checkpoint": profile.checkpoint, "settings": profile.settings, "off_by": profile.worst_error()}
    predicted = {"milliseconds": 1000 * seconds, "of": 1000 * whole, "speed": whole / seconds}
    return mask, {**target, "predicted": predicted, "profile": source}


def time_lines(source: dict[str, Any]) -> list[str]:
    """Say what is predicted of a mask that was chosen for its time."""
    found = source.get("budget", {}).get("predicted")
    if not found:
        return []
    off = source["budget"]["profile"].get("off_by")
    return [
        f"predicted: {found['milliseconds']:.2f} of {found['of']:.2f} ms a batch, {found['speed']:.2f} times as fast"
        + ("" if off is None else f" (the profile's own predictions were off by up to {off:.0%})")
    ]


def _out_of_reach(args: argparse.Namespace, seconds: float, whole: float) -> str:
    # Rounded so that what is named can be reached.
    if args.for_speed:
        best = math.floor(100 * whole / seconds) / 100
        return f"--for-speed {args.for_speed}: without any scored head it is {best:.2f}x; give no more"
    best = math.ceil(100_000 * seconds) / 100
    return f"--for-latency {args.for_latency}: without any scored head it is {best:.2f} ms a batch; give no less"
