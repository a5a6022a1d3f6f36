"""Hooks that fairseq's optimizers lack: when gradients are cleared, and where they were not finite."""

import math
from collections.abc import Callable
from typing import Any

import torch
from fairseq.optim.amp_optimizer import AMPOptimizer


class NotFiniteError(ArithmeticError):
    """A loss or gradient that is not finite ends the training.

    It is not a ``FloatingPointError``: on one of those, the trainer runs the batch again with debugging hooks that
    cannot handle an encoder's output, and their error would hide this one.
    """


class Norm:
    """The result of the optimizer's last gradient clipping.

    Attributes:
        is_finite: whether the gradient of the weights was finite.
    """

    is_finite = True


def watch(optimizer: Any, on_zero: Callable[[], None], where: Callable[[], str]) -> Norm:
    """Call ``on_zero`` whenever the optimizer's gradients are cleared, and raise an error if they are not finite.

    The trainer clears gradients at the start of each update and after a skipped one; tasks have no hook for this.

    Args:
        where: describes the place in training, for the error.

    Raises:
        NotFiniteError: (when the optimizer clips) a gradient is not finite, and there is no loss scale to be lowered.
    """
    zero, clip = optimizer.zero_grad, optimizer.clip_grad_norm

    def zero_grad() -> None:
        zero()
        on_zero()

    def clip_grad_norm(*args: Any, **kwargs: Any) -> Any:
        norm = clip(*args, **kwargs)
        found.is_finite = math.isfinite(norm)
        if not found.is_finite and not isinstance(optimizer, AMPOptimizer):
            raise NotFiniteError(f"the loss or a gradient is not finite at {where()}")
        return norm

    found = Norm()
    optimizer.zero_grad, optimizer.clip_grad_norm = zero_grad, clip_grad_norm
    return found


def loss_scale(optimizer: Any) -> float:
    """Return the factor by which the loss was multiplied before the last backward pass."""
    if isinstance(optimizer, AMPOptimizer):
        return optimizer.scaler.get_scale()
    scaler = getattr(optimizer, "scaler", None)
    return 1.0 if scaler is None else float(scaler.loss_scale)


def report_overflow(optimizer: Any) -> None:
    """Report to the loss scaler that the gates' gradient overflowed, as if the weights' had.

    Raises:
        OverflowError: there is a scaler; it has lowered its scale, and the trainer will skip the update.
    """
    scaler = getattr(optimizer, "scaler", None)
    if scaler is not None:
        scaler.check_overflow(torch.tensor(float("inf")))


def skip_step(optimizer: Any) -> None:
    """Skip the optimizer's step, so that no weight changes; only the loss scale may grow."""
    scaler = getattr(optimizer, "scaler", None)
    if scaler is not None:
        scaler.update()
