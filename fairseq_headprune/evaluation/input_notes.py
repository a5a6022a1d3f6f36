"""What a reader must know of the input of a study: sentences that were left out, and words that were given away."""

from collections.abc import Mapping
from typing import Any


def input_notes(settings: Mapping[str, Any]) -> list[str]:
    """Return a line each for what a study's settings (as in ``study.json``) say of this; usually none."""
    notes = []
    count = (settings.get("data") or {}).get("sentences")
    if count:
        notes.append(
            f"{count['scored']} of {count['of']} sentences were scored: the others are longer than the model or "
            "--max-source-positions and --max-target-positions allow"
        )
    size = (settings.get("generation") or {}).get("prefix_size", 0)
    if size > 0:
        notes.append(f"the first {size} tokens of every reference were given to the search (--prefix-size {size})")
    return notes
