"""Learns the weights of gates, separately from the model's optimizer."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Optional

import numpy as np
import torch
from torch import Tensor

from fairseq_headprune.gates.rules import L0Rule, SubsetRule, uniform
from fairseq_headprune.gates.subset import Pullback
from fairseq_headprune.parts import Part

#: format version of :meth:`GateLearner.description`
VERSION = 1


def check_version(description: Mapping[str, Any]) -> None:
    """Refuse gates in a checkpoint written by a newer version of this package.

    Raises:
        ValueError: the version is newer.
    """
    found = description.get("version", VERSION)
    if found > VERSION:
        raise ValueError(f"the checkpoint's gates have version {found}, known is up to {VERSION}: update this package")


def is_finite(values: np.ndarray) -> bool:
    """Whether all values are finite; usually needs a single call."""
    return math.isfinite(values.dot(values)) or bool(np.isfinite(values).all())


class Adam:
    """Adam (Kingma & Ba 2015, Algorithm 1) for one array: torch's costs 0.2 ms, in every update.

    Attributes:
        moments: running means of gradient and squared gradient, by torch's names.
    """

    def __init__(self, weight: np.ndarray, lr: float) -> None:
        """Start; ``weight``, float32, is changed in place."""
        self._weight, self._lr = weight, lr
        self.moments = {name: np.zeros_like(weight) for name in ("exp_avg", "exp_avg_sq")}

    def step(self, gradient: np.ndarray, number: int) -> None:
        """Take the step of this number, from 1."""
        mean, square = self.moments.values()
        found = gradient.astype(np.float32)
        mean += (1 - 0.9) * (found - mean)
        square *= 0.98
        square += (1 - 0.98) * found * found
        root = np.sqrt(square) / math.sqrt(1 - 0.98**number) + 1e-8
        self._weight -= self._lr / (1 - 0.9**number) * mean / root


class _Known(NamedTuple):
    """What follows from the weights and random numbers of an update: needed in its step, and known before it.

    Attributes:
        same_set: whether the sampled set is the learned one (see ``samples_learned_set`` of the rules).
        errors, slope: of rules with a price: how far the learned set is from its target, and the derivative of P(open).
    """

    same_set: Optional[bool]
    errors: np.ndarray
    slope: np.ndarray


class GateLearner:
    """Weights of gates with their random numbers, penalty and Adam optimizer.

    One update is :meth:`begin`, any number of backward passes through the gates it returned, and :meth:`step` with the
    gradient w.r.t. the gates. Everything is float32 or wider, on the CPU, and depends only on the seed, the gradients
    and the number of updates.

    Attributes:
        heads: the gated heads, in the order of the weights.
        weight: float32 (heads,): w of Li et al. 2021, eq. 20, or log_alpha of L0.
        updates: number of updates made.
        sampled: updates after cooling in which the sampled set was the learned one, and all updates after cooling.
        gradient_vanished: whether the last step's gradient w.r.t. the weights was exactly 0 although the one w.r.t. the
            gates was not, because the temperature is too low for floating point. (Never for L0, which has no
            temperature: gates sampled as exactly 0 or 1 get no gradient from the loss, but one from their price.)
    """

    def __init__(
        self, rule: SubsetRule | L0Rule, heads: list[Part], lr: float, seed: int, clip_norm: float = 0.0
    ) -> None:
        """Start with the rule's initial weights.

        Args:
            lr: constant learning rate of Adam (betas 0.9, 0.98; no weight decay).
            clip_norm: maximum norm of the gradient w.r.t. the weights (0: no clipping).

        Raises:
            ValueError: no heads, or a learning rate that is not above 0.
        """
        if not heads:
            raise ValueError("there is no head to gate")
        if not (lr > 0 and math.isfinite(lr)):
            raise ValueError(f"gate learning rate {lr:g}: it must be finite and above 0")
        self.rule, self.heads, self._seed, self._clip = rule, heads, seed, clip_norm
        self.weight = torch.tensor(rule.first_weights(seed, len(heads)), dtype=torch.float32)
        self._values = self.weight.numpy()
        self._adam = Adam(self._values, lr)
        self.updates, self.sampled = 0, (0, 0)
        self.gradient_vanished, self._gradient_norm = False, 0.0
        self._noise = -1, np.zeros(0)
        self._pullback = Pullback(0.0)
        self._known: Optional[_Known] = None

    def _weights(self) -> np.ndarray:
        return self._values.astype(np.float64)

    def prepare(self) -> None:
        """Compute now, while a GPU is busy, all of the step and of the next update that needs no gradient."""
        self.rule.prepare(self._draw(self.updates + 1), self.updates + 1)
        self._pullback.ahead()
        self._find_known()

    def _find_known(self) -> _Known:
        if self._known is None:
            weights = self._drawn[0]
            errors = slope = np.zeros(0)
            if self.rule.penalty is not None:
                p = self.rule.expected(weights)
                errors, slope = self.rule.penalty.errors(self.rule.hard(weights), self.updates), p * (1 - p)
            self._known = _Known(self.rule.samples_learned_set(*self._drawn), errors, slope)
        return self._known

    def _draw(self, update: int) -> np.ndarray:
        if self._noise[0] != update:
            self._noise = update, uniform(self._seed, update, len(self.heads))
        return self._noise[1]

    @property
    def needs_gradient(self) -> bool:
        """Whether the present gates have a gradient; at a very low temperature they are exactly 0 or 1 without one."""
        return not self._pullback.vanishes

    def begin(self) -> np.ndarray:
        """Return the gates of the present update, float64 (heads,); they stay the same until :meth:`step`."""
        self._drawn, self._known = (self._weights(), self._draw(self.updates), self.updates), None
        gates, self._pullback = self.rule.gates(*self._drawn)
        return gates

    def not_finite(self, by_gates: np.ndarray) -> str:
        """Describe a gradient that is not finite."""
        head = self.heads[int(np.argmin(np.isfinite(by_gates)))]
        return f"update {self.updates}: the gradient of the gate of {head} is not finite"

    def step(self, by_gates: np.ndarray) -> None:
        """Make an update.

        Args:
            by_gates: gradient of the mean loss (nats per token) w.r.t. the gates, float64 (heads,).

        Raises:
            FloatingPointError: it is not finite; the state is unchanged then.
        """
        if not is_finite(by_gates):
            raise FloatingPointError(self.not_finite(by_gates))
        by_weights, known = self._pullback(by_gates), self._find_known()
        if self.rule.penalty is not None:
            # The gradient of the sum of price times P(open); the price is adapted to the number of open gates.
            self.rule.penalty.adapt(known.errors, self.updates, by_gates)
            by_weights = by_weights + self.rule.penalty.prices(known.errors) * known.slope
        self._gradient_norm = math.sqrt(by_weights.dot(by_weights))
        if self.rule.temperature is not None:
            lost = self._gradient_norm == 0 and bool(by_gates.any() and not by_weights.any())
            self.gradient_vanished = lost or not self.needs_gradient
        if 0 < self._clip < self._gradient_norm:
            by_weights = by_weights * (self._clip / self._gradient_norm)
        self.updates += 1
        self._adam.step(by_weights, self.updates)
        if self.rule.bound is not None:
            np.minimum(self._values, self.rule.bound, out=self._values)
            np.maximum(self._values, -self.rule.bound, out=self._values)
        if known.same_set is not None:
            self.sampled = (self.sampled[0] + known.same_set, self.sampled[1] + 1)

    def hard(self) -> Tensor:
        """Return the learned set, bool (heads,)."""
        return torch.from_numpy(self.rule.hard(self._weights()))

    def evaluate(self) -> Tensor:
        """Return the gates for evaluation, (heads,)."""
        return torch.from_numpy(self.rule.evaluate(self._weights())).float()

    def expected(self) -> Tensor:
        """Return each gate's probability of being open (for DSP and STE: 1 in the learned set), (heads,)."""
        return torch.from_numpy(self.rule.expected(self._weights())).float()

    def penalty(self) -> float:
        """Return the present penalty of the open gates, in nats."""
        if self.rule.penalty is None:
            return 0.0
        weights = self._weights()
        errors = self.rule.penalty.errors(self.rule.hard(weights), self.updates)
        return float((self.rule.penalty.prices(errors) * self.rule.expected(weights)).sum())

    def stats(self) -> dict[str, float]:
        """Return the values to log for the last update."""
        same, all_ = self.sampled
        return {**self.rule.stats(self.updates), "gate_gradient": self._gradient_norm} | (
            {"sampled_as_learned": round(same / all_, 4)} if all_ else {}
        )

    def state(self) -> dict[str, Tensor]:
        """Return everything that a later run needs to continue as if there had been no interruption."""
        tensors = {"weight": self.weight.clone(), "updates": torch.tensor(self.updates)}
        tensors |= {name: torch.from_numpy(moment.copy()) for name, moment in self._adam.moments.items()}
        if self.rule.penalty is not None and len(self.rule.penalty.multipliers):
            tensors["multipliers"] = torch.from_numpy(self.rule.penalty.multipliers.copy())
        if self.sampled[1]:
            tensors["sampled"] = torch.tensor(self.sampled)
        return tensors

    def restart(self) -> None:
        """Keep the weights and reset everything else: the number of updates, Adam's state and the prices."""
        for moment in self._adam.moments.values():
            moment[:] = 0.0
        self.updates, self.sampled = 0, (0, 0)
        if self.rule.penalty is not None:
            self.rule.penalty.multipliers[:] = 0.0

    def load(self, tensors: dict[str, Tensor], description: dict[str, Any]) -> None:
        """Continue from a saved state, except for the number of heads to keep and the learning rate.

        The prices are not loaded either if the saved ones have another form of target. For the schedule, see
        ``keep_schedule`` of the rules.

        Raises:
            ValueError: the state has another kind of gates, other heads or a newer version, is incomplete or not
                finite.
        """
        mine = self.description()
        check_version(description)
        if description.get("kind") != mine["kind"]:
            raise ValueError(
                f"the checkpoint's gates are {description.get('kind')}, asked for are {mine['kind']}: train with the "
                "criterion that made it, or start from a checkpoint without gates"
            )
        if description.get("heads") != mine["heads"]:
            raise ValueError(
                f"the checkpoint has gates on {len(description.get('heads', []))} heads, the model would have "
                f"{len(mine['heads'])} (or others): use the same --gate-components and the same model"
            )
        missing = self.state().keys() - {"multipliers", "sampled"} - tensors.keys()
        if missing:
            raise ValueError(f"the checkpoint's gates lack {', '.join(sorted(missing))}")
        broken = [name for name in self.state() if name in tensors and not torch.isfinite(tensors[name]).all()]
        if broken:
            raise ValueError(f"the checkpoint's gates are not finite ({', '.join(broken)}): take an earlier checkpoint")
        self.weight.copy_(tensors["weight"])
        for name, moment in self._adam.moments.items():
            moment[:] = tensors[name].float().cpu().numpy()
        self.updates = int(tensors["updates"])
        same, all_ = tensors.get("sampled", torch.zeros(2)).tolist()
        self.sampled = int(same), int(all_)
        prices = tensors.get("multipliers")
        if self.rule.penalty is not None and prices is not None and prices.shape == self.rule.penalty.multipliers.shape:
            self.rule.penalty.multipliers = prices.numpy().copy()

    def description(self) -> dict[str, Any]:
        """Return kind and settings of the gates as plain values, for checkpoints and logs."""
        heads = [[head.component, head.layer, head.index] for head in self.heads]
        return {"version": VERSION, **self.rule.description(), "seed": self._seed, "heads": heads}
