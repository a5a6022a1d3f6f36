"""What fairseq's optimizers do not report: when gradients are cleared, and at which update they were not finite."""

from collections.abc import Callable
from typing import Any

import torch
from fairseq.optim.amp_optimizer import AMPOptimizer


class NotFiniteError(ArithmeticError):
    """A loss or gradient that is not finite ends the training.

    It is no ``FloatingPointError``: with one of those the trainer runs the batch again under hooks that do not know an
    encoder's output, and ends with their error in place of this one.
    """


class Norm:
    """What the optimizer's last clipping found.

    Attributes:
        is_finite: whether the weights' gradient was finite.
    """

    is_finite = True


def watch(optimizer: Any, on_zero: Callable[[], None], where: Callable[[], str]) -> Norm:
    """Call ``on_zero`` whenever the optimizer's gradients are cleared, and name the place where they are not finite.

    The trainer clears gradients at the start of each update and after one that it skips; no hook of a task tells of
    it.

    Args:
        where: describes the place, for the error.

    Raises:
        NotFiniteError: (when the optimizer clips) a gradient is not finite, and no loss scale is there to be lowered.
    """
    zero, clip = optimizer.zero_grad, optimizer.clip_grad_norm

    def zero_grad() -> None:
        zero()
        on_zero()

    def clip_grad_norm(*args: Any, **kwargs: Any) -> Any:
        norm = clip(*args, **kwargs)
        found.is_finite = bool(torch.isfinite(norm).all())
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
    """Tell a loss scaler that the gates' gradient overflowed, as the weights' might have.

    Raises:
        OverflowError: there is a scaler; it has lowered its scale, and the trainer skips the update.
    """
    scaler = getattr(optimizer, "scaler", None)
    if scaler is not None:
        scaler.check_overflow(torch.tensor(float("inf")))


def skip_step(optimizer: Any) -> None:
    """Skip the optimizer's step, so that no weight changes; only the loss scale may grow."""
    scaler = getattr(optimizer, "scaler", None)
    if scaler is not None:
        scaler.update()
