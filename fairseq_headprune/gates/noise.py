"""The gates' own random numbers: they neither consume nor depend on torch's and numpy's global streams."""

import numpy as np

#: "gate", to keep seeds apart from whoever else seeds a generator with (seed, update)
_STREAM = 0x67617465


def uniform(seed: int, update: int, count: int) -> np.ndarray:
    """Return uniform noise in [0, 1), (count,), which depends on the seed and the update alone."""
    return np.random.default_rng([_STREAM, seed, update]).random(count)


def small_weights(seed: int, count: int) -> np.ndarray:
    """Return small normal weights (standard deviation 0.01), (count,), with which gates start."""
    return 0.01 * np.random.default_rng([_STREAM, seed]).standard_normal(count)
