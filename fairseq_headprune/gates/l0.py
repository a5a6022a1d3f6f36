"""L0 regularisation: hard concrete gates (Louizos et al. 2018), and the price of an open gate."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

from fairseq_headprune.gates.subset import Array


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

    def logistic(self, u: Array) -> Array:
        """Convert uniform noise to logistic noise."""
        u = np.clip(u, self.eps, 1 - self.eps)
        return np.log(u) - np.log1p(-u)

    def sample(self, log_alpha: Array, noise: Array) -> tuple[Array, Array]:
        """Sample gates from logistic noise; return them and their derivatives w.r.t. log_alpha, both (heads,)."""
        s = expit((noise + log_alpha) / self.beta)
        stretched = s * (self.zeta - self.gamma) + self.gamma
        inside = (stretched > 0) & (stretched < 1)
        slope = s * (1 - s) / self.beta * (self.zeta - self.gamma) * inside
        return np.minimum(np.maximum(stretched, 0.0), 1.0), slope

    def evaluate(self, log_alpha: Array) -> Array:
        """Return the gates for evaluation: without noise and, as in Voita et al.'s code, without temperature."""
        return np.clip(expit(log_alpha) * (self.zeta - self.gamma) + self.gamma, 0.0, 1.0)

    def p_open(self, log_alpha: Array) -> Array:
        """Return each gate's probability of not being 0 (Louizos et al. 2018, eq. 12)."""
        return expit(log_alpha - self.beta * np.log(-self.gamma / self.zeta))


class FixedPenalty:
    """lambda times the sum of P(open) (Li et al. 2021, eq. 23); lambda in nats per head."""

    def __init__(self, price: float) -> None:
        """Set the price.

        Raises:
            ValueError: it is below 0 or not finite.
        """
        if not (price >= 0 and math.isfinite(price)):
            raise ValueError(f"an L0 penalty of {price:g}: it must be finite and not below 0")
        self._price = price
        #: the adapted prices, which are saved in checkpoints: none here
        self.multipliers = np.zeros(0)

    def errors(self, hard: Array, update: int) -> Array:
        """Return an empty array: there is no target."""
        return self.multipliers

    def prices(self, errors: Array) -> float:
        """Return the price of every head."""
        return self._price

    def adapt(self, errors: Array, update: int, gradient: Array) -> None:
        """Do nothing: the price is fixed."""

    def keep_schedule(self, description: dict[str, Any]) -> bool:
        """Return False: a fixed price has no schedule."""
        return False

    def stats(self) -> dict[str, float]:
        """Return what is worth logging: nothing."""
        return {}

    def description(self) -> dict[str, Any]:
        """Describe the penalty with plain values."""
        return {"penalty": self._price}


class TargetPenalty:
    """A Lagrange multiplier that rises while too many heads are open and falls while too few are.

    The gates follow the gradient of multiplier times sum of P(open); the multiplier follows the number of open gates,
    which needs no gradient (the proxy-Lagrangian of Cotter et al. 2019). A term proportional to the present error damps
    the oscillation. There is one multiplier per group of heads. Prices are in units of a running mean of the absolute
    gradient w.r.t. the gates, stored as the last value, so that the scale of the loss does not matter.
    """

    #: in these units: the multiplier's rise in one update at an error of 1 (all heads are too many), and the damping
    #: term at that error. Chosen in simulated trainings (tests/test_gates_math.py has some).
    RATE, DAMPING = 0.5, 50.0
    #: decay of the unit's running mean
    _PAST = 0.98

    def __init__(self, groups: list[tuple[Array, int]], warm_up: int) -> None:
        """Set the target: ``groups`` of (positions, heads to keep), lowered from all heads over ``warm_up`` updates."""
        self._warm_up = max(1, warm_up)
        self._sizes = np.array([len(places) for places, _ in groups])
        self._kept = np.array([kept for _, kept in groups])
        self._group = np.empty(self._sizes.sum(), dtype=int)
        for number, (places, _) in enumerate(groups):
            self._group[places] = number
        self.multipliers = np.zeros(len(groups) + 1)

    def errors(self, hard: Array, update: int) -> Array:
        """Return each group's share of open heads above its target, which falls linearly during the warm-up."""
        wanted = self._sizes + min(update / self._warm_up, 1.0) * (self._kept - self._sizes)
        return (np.bincount(self._group, hard, len(self._sizes)) - wanted) / np.maximum(1, self._sizes)

    def prices(self, errors: Array) -> Array:
        """Return the price of each head, (heads,); negative if too few are open."""
        return (self.multipliers[-1] * (self.multipliers[:-1] + self.DAMPING * errors))[self._group]

    def adapt(self, errors: Array, update: int, gradient: Array) -> None:
        """Update the multipliers by the present errors, and the unit by the size of the gradient w.r.t. the gates."""
        size, unit = float(np.abs(gradient).mean()), self.multipliers[-1]
        self.multipliers[:-1] += self.RATE * errors
        self.multipliers[-1] = size if update == 0 else self._PAST * unit + (1 - self._PAST) * size

    def keep_schedule(self, description: dict[str, Any]) -> bool:
        """Use the warm-up of a saved penalty, if it had one; return whether it differs from the present one."""
        before, self._warm_up = self._warm_up, description.get("warm_up", self._warm_up)
        return self._warm_up != before

    def stats(self) -> dict[str, float]:
        """Return what is worth logging: the mean price of an open head, in nats, without the damping term."""
        return {"l0_price": float(self.multipliers[-1] * self.multipliers[:-1].mean())}

    def description(self) -> dict[str, Any]:
        """Describe the penalty with plain values."""
        return {"warm_up": self._warm_up}
