"""The hard concrete distribution of a gate (Louizos et al. 2018; Voita et al. 2019)."""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

Array = np.ndarray


@dataclass(frozen=True)
class HardConcrete:
    """A gate in [0, 1] that is exactly 0 or exactly 1 with positive probability, and still has a gradient.

    Attributes:
        beta: temperature (Voita's code: 0.33; Louizos et al.: 2/3).
        gamma, zeta: bounds to which the concrete distribution is stretched before it is clipped to [0, 1].
        eps: uniform noise is kept this far from 0 and 1.
    """

    beta: float = 0.33
    gamma: float = -0.1
    zeta: float = 1.1
    eps: float = 1e-6

    def __post_init__(self) -> None:
        if not (self.beta > 0 and np.isfinite(self.beta)):
            raise ValueError(f"beta {self.beta:g}: the temperature of the hard concrete must be above 0")

    def sample(self, log_alpha: Array, u: Array) -> tuple[Array, Array]:
        """Sample gates from uniform noise; return them and their derivatives w.r.t. log_alpha, both (heads,)."""
        u = np.clip(u, self.eps, 1 - self.eps)
        s = expit((np.log(u) - np.log1p(-u) + log_alpha) / self.beta)
        stretched = s * (self.zeta - self.gamma) + self.gamma
        inside = (stretched > 0) & (stretched < 1)
        slope = np.where(inside, s * (1 - s) / self.beta * (self.zeta - self.gamma), 0.0)
        return np.clip(stretched, 0.0, 1.0), slope

    def evaluate(self, log_alpha: Array) -> Array:
        """Return the gates for evaluation: without noise and, as in Voita et al.'s code, without temperature."""
        return np.clip(expit(log_alpha) * (self.zeta - self.gamma) + self.gamma, 0.0, 1.0)

    def p_open(self, log_alpha: Array) -> Array:
        """Return each gate's probability of not being 0 (Louizos et al. 2018, eq. 12)."""
        return expit(log_alpha - self.beta * np.log(-self.gamma / self.zeta))
