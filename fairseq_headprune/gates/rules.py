"""How weights become gates: the rules of L0 and of DSP and STE, and their random numbers."""

from collections.abc import Callable
from typing import Any, Optional

import numpy as np

from fairseq_headprune.gates.l0 import FixedPenalty, HardConcrete, TargetPenalty
from fairseq_headprune.gates.subset import Array, Pullback, Temperature, check_count, gumbel, soft_top_k, top_k
from fairseq_headprune.parts import Part

Gates = tuple[Array, Pullback]

#: With a target, log_alpha is kept within +-3.5 (P(open) from 0.13 to 0.99): beyond that a gate has almost no gradient
#: and could not reopen when too many have closed.
_L0_BOUND = 3.5
#: Initial log_alpha of L0's gates. In evaluation gates are exactly 1 from log 11 = 2.398 on, so adding them does not
#: change a trained model. At 0 they would halve every head.
_L0_INIT = 2.5


def groups_of(heads: list[Part], kept: int | dict[str, int]) -> dict[str, tuple[Array, int]]:
    """Return name -> (positions in ``heads``, number to keep): one group of all heads, or one per component.

    Raises:
        ValueError: a number is out of range, or the components are not the gated ones.
    """
    if not isinstance(kept, dict):
        check_count(kept, len(heads))
        return {"all": (np.arange(len(heads)), kept)}
    components = list(dict.fromkeys(head.component for head in heads))
    if set(kept) != set(components):
        raise ValueError(
            f"numbers of heads are given for {', '.join(kept)}, gated are {', '.join(components)}: name each of these"
        )
    groups = {}
    for component in components:
        places = np.array([place for place, head in enumerate(heads) if head.component == component])
        try:
            check_count(kept[component], len(places))
        except ValueError as error:
            raise ValueError(f"{component}: {error}") from None
        groups[component] = (places, kept[component])
    return groups


class _Converted:
    """A function of noise that remembers its last result: it is computed ahead, while a GPU works."""

    def __init__(self, convert: Callable[[Array], Array]) -> None:
        self._convert = convert
        self._last = np.zeros(0), np.zeros(0)

    def __call__(self, noise: Array) -> Array:
        if self._last[0] is not noise:
            self._last = noise, self._convert(noise)
        return self._last[1]


class _ByGroup(Pullback):
    """The pullbacks of groups of heads as one."""

    def __init__(self, groups: list[tuple[Array, Pullback]]) -> None:
        self._groups, self.vanishes = groups, all(pullback.vanishes for _, pullback in groups)

    def ahead(self) -> None:
        for _, pullback in self._groups:
            pullback.ahead()

    def __call__(self, gradient: Array) -> Array:
        result = np.zeros(len(gradient))
        for places, pullback in self._groups:
            result[places] = pullback(gradient[places])
        return result


class SubsetRule:
    """Exactly K open gates: Gumbel soft top-K in training (DSP), or hard top-K with straight-through gradients (STE).

    Source: Li et al. 2021, eqs. 14-20 and §4.2.3. STE has no noise by default, as in the authors' code.
    """

    def __init__(
        self,
        heads: list[Part],
        kept: int | dict[str, int],
        temperature: Optional[Temperature] = None,
        straight_through: bool = False,
        init: Optional[float] = None,
        noise: Optional[str] = None,
    ) -> None:
        """Set the number of heads to keep; DSP needs a temperature.

        Args:
            noise: Gumbel noise ``always`` (DSP's default), ``never`` (STE's), or while ``cooling``, until the
                temperature has fallen.

        Raises:
            ValueError: a number of heads out of range.
        """
        self.kind = "ste" if straight_through else "dsp"
        self.kept, self._groups = kept, groups_of(heads, kept)
        self.temperature, self._init = temperature, init
        self.noise = noise or ("never" if straight_through else "always")
        self._gumbel = _Converted(gumbel)
        self._cooling: tuple[Optional[Temperature], int, float] = None, -1, 0.0

    def first_weights(self, seed: int, count: int) -> Array:
        """Return the initial weights: small random ones around ``init``."""
        return small_weights(seed, count) + (self._init or 0.0)

    def gates(self, weights: Array, noise: Array, update: int) -> Gates:
        """Return the gates of training and the map from a gradient by gates to one by weights."""
        scores = self._scores(weights, noise, update)
        if self.temperature is None:
            return self.hard(scores).astype(np.float64), Pullback(1.0)
        tau = self._tau(self.temperature, update)
        if len(self._groups) == 1:
            return soft_top_k(scores, next(iter(self._groups.values()))[1], tau)
        result, groups = np.empty(len(weights)), []
        for places, count in self._groups.values():
            result[places], pullback = soft_top_k(scores[places], count, tau)
            groups.append((places, pullback))
        return result, _ByGroup(groups)

    def _scores(self, weights: Array, noise: Array, update: int) -> Array:
        off = self.noise == "never" or (self.noise == "cooling" and self._cooled(update))
        return weights if off else weights + self._gumbel(noise)

    def prepare(self, noise: Array, update: int) -> None:
        """Compute what :meth:`gates` of an update will need besides the weights."""
        self._gumbel(noise)
        if self.temperature is not None:
            self._tau(self.temperature, update)

    def _tau(self, schedule: Temperature, update: int) -> float:
        if self._cooling[:2] != (schedule, update):
            self._cooling = schedule, update, schedule.at(update)
        return self._cooling[2]

    def _cooled(self, update: int) -> bool:
        return self.temperature is None or update >= self.temperature.wait + self.temperature.updates

    def samples_learned_set(self, weights: Array, noise: Array, update: int) -> Optional[bool]:
        """Whether an update's sample is the learned set; None before the temperature has fallen, and without noise."""
        if self.noise != "always" or not self._cooled(update):
            return None
        return bool((self.hard(self._scores(weights, noise, update)) == self.hard(weights)).all())

    def hard(self, weights: Array) -> Array:
        """Mark the learned set, bool (heads,): the top K of the weights, without noise."""
        chosen = np.zeros(len(weights), dtype=bool)
        for places, count in self._groups.values():
            chosen[places] = top_k(weights[places], count)
        return chosen

    def evaluate(self, weights: Array) -> Array:
        """Return the gates for evaluation: 0 or 1."""
        return self.hard(weights).astype(np.float64)

    expected = evaluate
    penalty: Optional[FixedPenalty] = None
    bound: Optional[float] = None

    def keep_schedule(self, description: dict[str, Any]) -> bool:
        """Use the temperature schedule of a saved rule; return whether it differs from the present one."""
        before = self.temperature
        if before is not None and "tau_start" in description:
            names = ("start", "end", "updates", "wait")
            self.temperature = Temperature(*(description.get(f"tau_{name}", 0) for name in names))
        return self.temperature != before

    def stats(self, update: int) -> dict[str, float]:
        """Return the values to log: the temperature."""
        return {} if self.temperature is None else {"temperature": self.temperature.at(update)}

    def description(self) -> dict[str, Any]:
        """Describe the rule with plain values."""
        value: dict[str, Any] = {"kind": self.kind, "heads_kept": self.kept}
        if self.noise != ("never" if self.kind == "ste" else "always"):
            value["noise"] = self.noise
        if self.temperature is not None:
            value |= {"tau_start": self.temperature.start, "tau_end": self.temperature.end}
            value["tau_updates"] = self.temperature.updates
            value |= {"tau_wait": self.temperature.wait} if self.temperature.wait else {}
        return value


class L0Rule:
    """Hard concrete gates, each with a price for being open (Voita et al. 2019; Li et al. 2021, eqs. 22 and 23)."""

    kind = "l0"
    temperature: Optional[Temperature] = None

    def __init__(
        self,
        heads: list[Part],
        penalty: Optional[float] = None,
        target: int | dict[str, int] | None = None,
        beta: float = 0.33,
        init: Optional[float] = None,
        warm_up: int = 1000,
    ) -> None:
        """Set the gates' price: a fixed one, or one that is adapted until ``target`` heads are left.

        Args:
            warm_up: number of updates over which the target falls from all heads to ``target``.

        Raises:
            ValueError: a penalty below 0, a target or beta out of range.
        """
        self.concrete, self._init, self.target = HardConcrete(beta), init, target
        self._logistic = _Converted(self.concrete.logistic)
        #: maximum absolute value of a weight, None for no bound
        self.bound = None if target is None else _L0_BOUND
        if target is None:
            self.penalty: FixedPenalty | TargetPenalty = FixedPenalty(0.0 if penalty is None else penalty)
        else:
            self.penalty = TargetPenalty(list(groups_of(heads, target).values()), warm_up)

    def first_weights(self, seed: int, count: int) -> Array:
        """Return the initial log_alpha: small noise around ``init``."""
        return small_weights(seed, count) + (_L0_INIT if self._init is None else self._init)

    def gates(self, weights: Array, noise: Array, update: int) -> Gates:
        """Return the gates of training and the map from a gradient by gates to one by weights."""
        sample, slope = self.concrete.sample(weights, self._logistic(noise))
        return sample, Pullback(slope)

    def prepare(self, noise: Array, update: int) -> None:
        """Compute what :meth:`gates` of an update will need besides the weights."""
        self._logistic(noise)

    def samples_learned_set(self, weights: Array, noise: Array, update: int) -> Optional[bool]:
        """None: gates that are open with a probability have no learned set of a given size."""
        return None

    def hard(self, weights: Array) -> Array:
        """Mark the learned set, bool (heads,): gates above 0 in evaluation."""
        return self.evaluate(weights) > 0

    def evaluate(self, weights: Array) -> Array:
        """Return the gates for evaluation, in [0, 1]."""
        return self.concrete.evaluate(weights)

    def expected(self, weights: Array) -> Array:
        """Return each gate's probability of being open."""
        return self.concrete.p_open(weights)

    def keep_schedule(self, description: dict[str, Any]) -> bool:
        """Use the schedule of a saved rule; return whether it differs from the present one."""
        return self.penalty.keep_schedule(description)

    def stats(self, update: int) -> dict[str, float]:
        """Return the values to log: the present price of an open head, in nats."""
        return self.penalty.stats()

    def description(self) -> dict[str, Any]:
        """Describe the rule with plain values."""
        return {"kind": self.kind, "heads_kept": self.target, "beta": self.concrete.beta, **self.penalty.description()}


#: "gate" in ASCII: makes the random stream differ from other generators seeded with (seed, update)
_STREAM = 0x67617465


def uniform(seed: int, update: int, count: int) -> np.ndarray:
    """Return uniform noise in [0, 1), (count,), which depends only on the seed and the update."""
    return np.random.default_rng([_STREAM, seed, update]).random(count)


def small_weights(seed: int, count: int) -> np.ndarray:
    """Return small normal initial weights (standard deviation 0.01), (count,)."""
    return 0.01 * np.random.default_rng([_STREAM, seed]).standard_normal(count)
