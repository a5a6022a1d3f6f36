"""Batches of a split, collated on the fly, and seeded samples of its sentences."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from fairseq import utils


class Batches:
    """A list of index groups, collated during iteration: a whole corpus is never held on the device."""

    def __init__(self, dataset: Any, groups: list, device: torch.device) -> None:
        self.groups = groups
        self._dataset, self._device = dataset, device

    def __len__(self) -> int:
        return len(self.groups)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for group in self.groups:
            sample = self._dataset.collater([self._dataset[int(i)] for i in group])
            yield utils.move_to_cuda(sample, self._device) if self._device.type == "cuda" else sample


def sample_indices(total: int, count: int, seed: int) -> np.ndarray:
    """Draw ``count`` of ``total`` sentences without replacement (0: all), in ascending order.

    Raises:
        ValueError: a negative count.
    """
    if count < 0:
        raise ValueError(f"cannot draw {count} sentences; 0 takes all")
    if count == 0 or count >= total:
        return np.arange(total)
    return np.sort(np.random.default_rng(seed).choice(total, count, replace=False))
