"""How many updates a run of fairseq-train makes, as far as its flags say."""

import math
from collections.abc import Sequence
from typing import Any, Optional


def run_length(config: Any, batches: Optional[int]) -> Optional[int]:
    """Return the number of updates of a run, from ``--max-update`` and ``--max-epoch``; None where neither is set.

    Args:
        config: has ``max_update``, ``max_epoch`` and ``update_freq``.
        batches: of one epoch and one rank, None where they are not known.
    """
    lengths = []
    if config.max_update:
        lengths.append(int(config.max_update))
    if config.max_epoch and batches:
        lengths.append(updates_in_epochs(batches, config.update_freq, int(config.max_epoch)))
    return min(lengths, default=None)


def updates_in_epochs(batches: int, update_freq: Sequence[int], epochs: int) -> int:
    """Return the updates that some epochs of ``batches`` make; epochs beyond ``--update-freq``'s list have its last."""
    frequencies = [int(number) for number in update_freq or [1]]
    listed = frequencies[:epochs]
    later = (epochs - len(listed)) * math.ceil(batches / frequencies[-1])
    return sum(math.ceil(batches / frequency) for frequency in listed) + later
