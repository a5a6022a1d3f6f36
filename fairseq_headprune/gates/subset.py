"""Choosing K of H heads: the hard set, and its relaxation by iterated softmax (Li et al. 2021, eqs. 6-20, 24).

Everything is float64 and on the CPU: there are only 72 or 144 numbers, and kernel launches on a GPU would cost more.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Optional

import numpy as np
from scipy.special import xlog1py

Array = np.ndarray

#: exp(-746) is 0 in float64
_UNDERFLOW = 746.0
#: a derivative with entries from this size on is not computed ahead: its products could overflow
_LARGE = 1e100
#: distance of uniform noise from 0 and 1, so that Gumbel noise is finite
_EPS = 1e-12


def top_k(values: Array, k: int) -> Array:
    """Mark the k highest values; among equal values the lowest index wins.

    Returns:
        bool (heads,), exactly k of them True.

    Raises:
        ValueError: k is not between 0 and the number of values.
    """
    check_count(k, len(values))
    chosen = np.zeros(len(values), dtype=bool)
    chosen[np.argsort(-np.asarray(values), kind="stable")[:k]] = True
    return chosen


def check_count(k: int, total: int) -> None:
    """Check a number of heads to keep.

    Raises:
        ValueError: not an integer between 0 and ``total``.
    """
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 0 <= k <= total:
        raise ValueError(f"cannot keep {k} heads of {total}: give an integer from 0 to {total}")


def gumbel(u: Array) -> Array:
    """Convert uniform noise to Gumbel(0, 1) noise (§3.1.1)."""
    return -np.log(-np.log(np.clip(u, _EPS, 1 - _EPS)))


class Pullback:
    """Maps a gradient w.r.t. gates to one w.r.t. the scores that they came from; this one multiplies by a slope.

    Attributes:
        vanishes: everything is known to be mapped to 0.
    """

    def __init__(self, slope: Array | float) -> None:
        """Set the slope, (heads,) or one for all."""
        self._slope, self.vanishes = slope, isinstance(slope, float) and slope == 0.0

    def ahead(self) -> None:
        """Compute now what needs no gradient, so that the call itself is short: here there is nothing."""

    def __call__(self, gradient: Array) -> Array:
        """Map a gradient, (heads,)."""
        return gradient * self._slope


class SoftPullback(Pullback):
    """The derivative of :func:`soft_top_k`.

    It bounds the norm of its result to 1 / tau times that of its argument: the exact derivative of the recursion grows
    without bound if several softmaxes take the same head.
    """

    vanishes = False

    def __init__(self, steps: Array, tau: float, projected: Optional[Array] = None) -> None:
        """Remember the softmaxes, (k, heads), and the gates if their sum was projected (None: it was not)."""
        self._steps, self._tau, self._projected = steps, tau, projected
        self._matrix: Optional[Array] = None

    def ahead(self) -> None:
        """Compute the matrix of the linear maps: a call is then one product instead of k steps."""
        if self._matrix is None:
            inner = self._inner(np.eye(self._steps.shape[1]))
            with np.errstate(over="ignore", invalid="ignore"):
                matrix = np.concatenate([_backwards(self._steps, self._tau, inner), inner])
            self._matrix = matrix if np.abs(matrix).max() < _LARGE else None

    def _inner(self, gradient: Array) -> Array:
        """Run the projection backwards: gates at 0 or 1 stay there, the others share their mean."""
        if self._projected is None:
            return gradient
        free = self._projected < 1.0
        mean = gradient[free].sum(0) / max(1, np.count_nonzero(free))
        return np.where(free.reshape(len(free), *(1 for _ in gradient.shape[1:])), gradient - mean, 0.0)

    def __call__(self, gradient: Array) -> Array:
        """Map a gradient, (heads,)."""
        if self._matrix is not None:
            by_r, inner = self._matrix.dot(gradient).reshape(2, -1)
            return self._bounded(by_r, inner)
        inner = self._inner(gradient)
        with np.errstate(over="ignore", invalid="ignore"):
            return self._bounded(_backwards(self._steps, self._tau, inner), inner)

    def _bounded(self, by_r: Array, inner: Array) -> Array:
        size, limit = math.sqrt(by_r.dot(by_r)), math.sqrt(inner.dot(inner)) / self._tau
        if not math.isfinite(size):
            # Overflow in float64: the direction is lost, too. No step is better than one in a wrong direction.
            return np.zeros_like(by_r)
        return by_r * (limit / size) if size > limit else by_r


# Between two updates a GPU waits for what follows. Of a NumPy function that was not called for milliseconds, the first
# call takes longer than all the next ones: so these functions use few different ones, and few calls.


def soft_top_k(r: Array, k: int, tau: float) -> tuple[Array, Pullback]:
    """Relax the set of the k highest of r by k softmaxes, each discounting what the ones before it took (eqs. 14-19).

    If more than half of the H heads are kept, the set of dropped ones is relaxed instead, and the result is 1 minus the
    relaxed set of the H - k highest of -r. If the published sum leaves [0, 1] (two heads far above the others can take
    more than 1 each), it is projected onto the gates in [0, 1] that add up to k.

    Args:
        r: perturbed scores, float64 (heads,).
        k: from 0 to the number of heads.
        tau: temperature, above 0.

    Returns:
        gates (heads,) in [0, 1] that add up to k, and the map from a gradient w.r.t. the gates to one w.r.t. r.
    """
    if 2 * k > len(r) and k < len(r) and not _is_saturated(r, k, tau):
        dropped, pull = soft_top_k(-r, len(r) - k, tau)
        return 1.0 - dropped, pull
    steps = None if k == 0 or 2 * k > len(r) else _softmaxes(r, k, tau)
    if steps is None:
        return top_k(r, k).astype(np.float64), Pullback(0.0)
    total = _ones(k).dot(steps)
    shift = _projection(total)
    gates = np.minimum(total + shift, 1.0)
    return gates, SoftPullback(steps, tau, gates if shift else None)


@lru_cache(maxsize=16)
def _ones(count: int) -> Array:
    return np.ones(count)


def _softmaxes(r: Array, k: int, tau: float) -> Optional[Array]:
    """Return the k softmaxes of eqs. 14-16, (k, heads). Eq. 18, divided by tau, adds log(1 - g) / tau to r / tau.

    None if each of them is exactly one-hot: then the gates are the hard set, with gradient exactly 0.
    """
    scaled, change, ones = (r - r.max()) / tau, np.empty(len(r)), _ones(len(r))
    steps, by_tau = np.empty((k, len(r))), np.float64(1 / tau)
    totals: list[np.float64] = []
    for step in steps:
        np.exp(scaled, step)
        total = step.dot(ones)
        if total == 1.0 and not totals and _is_saturated(r, k, tau):
            return None
        if total < 1e-100:  # the rest is too far below what is taken for exp: move it up
            scaled -= scaled.max()
            np.exp(scaled, step)
            total = step.dot(ones)
        totals.append(total)
        np.divide(step, -total, change)  # minus the softmax
        xlog1py(by_tau, change, change)
        scaled += change
    steps /= np.array(totals)[:, None]
    return steps


def _is_saturated(r: Array, k: int, tau: float) -> bool:
    """Whether every softmax is exactly one-hot in float64."""
    ordered = np.sort(r)[::-1]
    return bool((ordered[:k] - ordered[1 : k + 1] > _UNDERFLOW * tau).all())


def _backwards(steps: Array, tau: float, gradient: Array) -> Array:
    """Run eqs. 14-19 backwards, from the last softmax to the first, for a gradient (heads,) or several (heads, n)."""
    each = (*steps.shape, *(1 for _ in gradient.shape[1:]))
    rest = 1.0 - steps
    # A head that was taken entirely (rest 0) has no share in later steps, so no gradient flows through it.
    inverse = np.divide(1.0, rest, out=np.zeros_like(rest), where=rest > 0).reshape(each)
    slopes = (steps / tau).reshape(each)
    by_r, by_step = np.zeros_like(gradient), np.empty_like(gradient)  # w.r.t. r^(j+1), summed over later steps
    for step, slope, factor in zip(steps[::-1], slopes[::-1], inverse[::-1], strict=True):
        np.multiply(by_r, factor, by_step)
        np.subtract(gradient, by_step, by_step)
        by_step -= step @ by_step
        by_step *= slope
        by_r += by_step
    return by_r


def _projection(values: Array) -> float:
    """Return the shift that projects values, not negative, onto the gates in [0, 1] with their sum.

    The projection is g = min(values + shift, 1), and 0 is returned if no value is above 1: what the highest ones have
    above 1 is shared by all others, which may lift the next one above 1, too.
    """
    above, shift = 0.0, 0.0
    for place, value in enumerate(sorted(values.tolist(), reverse=True), 1):
        if value + shift <= 1 + 1e-9:
            break
        above += value - 1
        shift = above / max(1, len(values) - place)
    return shift


@dataclass(frozen=True)
class Temperature:
    """Stays at ``start`` for ``wait`` updates, falls log-linearly to ``end`` over ``updates``, then stays constant.

    Raises:
        ValueError: a temperature is not finite and above 0, it would rise, or there is less than one update.
    """

    start: float
    end: float
    updates: int
    wait: int = 0

    def __post_init__(self) -> None:
        for name, value in (("tau-start", self.start), ("tau-end", self.end)):
            if not (value > 0 and math.isfinite(value)):
                raise ValueError(f"{name} {value:g}: a temperature must be finite and above 0")
        if self.start < self.end:
            raise ValueError(f"tau-start {self.start:g} is below tau-end {self.end:g}: the temperature must not rise")
        if self.updates < 1:
            raise ValueError(f"tau-updates {self.updates}: the temperature needs at least 1 update to fall")

    def at(self, update: int) -> float:
        """Return the temperature after a number of updates."""
        share = min(max(update - self.wait, 0) / self.updates, 1.0)
        if share == 1.0:
            return self.end
        if share == 0.0:
            return self.start
        return math.exp(math.log(self.start) - share * (math.log(self.start) - math.log(self.end)))
