"""The rest of an update: multi-tensor operations, fused Adam, and a single wait for the device."""

import math
from typing import Any, Optional

import torch
from fairseq.optim import FP16Optimizer
from fairseq.optim.adam import Adam
from torch import Tensor, nn


class Readings:
    """Numbers of one update's passes that are on the device; they are read together with the gradient norm.

    fairseq needs that norm on the host in every update, and would wait for the device again for each metric.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[dict[str, Any], list[str]]] = []
        #: learned gates, whose gradient is read as well (see ``LearnedGates``)
        self.gates: Any = None

    def forget(self) -> None:
        """Drop unread numbers: a new update begins."""
        self._waiting.clear()

    def note(self, logged: dict[str, Any]) -> None:
        """Queue the losses in a pass' logging output (one-element tensors other than counts) for reading."""
        numbers = {name: value for name, value in logged.items() if isinstance(value, Tensor) and value.numel() == 1}
        self._waiting.append((logged, [name for name, value in numbers.items() if value.is_floating_point()]))

    def read(self, norm: Tensor) -> Tensor:
        """Read the norm and the queued tensors, which are replaced by numbers; return the norm on the CPU."""
        tensors = [norm] + [logged[name] for logged, names in self._waiting for name in names]
        gradient = [] if self.gates is None else [self.gates.take_gradient()]
        on_cpu = torch.cat([v.detach().reshape(-1).to(norm.device, torch.float32) for v in tensors + gradient]).cpu()
        if gradient:
            self.gates.note_gradient(on_cpu[len(tensors) :])
        numbers = iter(on_cpu[1 : len(tensors)].tolist())
        for logged, names in self._waiting:
            logged.update((name, next(numbers)) for name in names)
        self._waiting.clear()
        return on_cpu[0]


def speed_up(optimizer: Any, readings: Readings) -> None:
    """Make an optimizer of fairseq copy gradients, compute their norm and step with multi-tensor operations.

    Results and checkpoints stay the same. fairseq's FP16Optimizer (fp16 and bf16) copies one parameter at a time, its
    Adam launches a dozen operations per parameter, and the gradient norm one.
    """
    inner = optimizer.fp32_optimizer if isinstance(optimizer, FP16Optimizer) else optimizer
    if isinstance(optimizer, FP16Optimizer):
        copies = _Copies(optimizer)
        optimizer._sync_fp16_grads_to_fp32 = copies.gradients
        optimizer._sync_fp32_params_to_fp16 = copies.parameters
    FusedAdam.adopt(inner._optimizer if hasattr(inner, "_optimizer") else None)
    zero = optimizer.zero_grad

    def zero_grad() -> None:
        zero()
        readings.forget()

    def clip_grad_norm(max_norm: float, aggregate_norm_fn: Any = None) -> Tensor:
        return _clip(list(inner.params), max_norm, aggregate_norm_fn, readings)

    optimizer.zero_grad, inner.clip_grad_norm = zero_grad, clip_grad_norm


@torch.no_grad()
def _clip(parameters: list[Tensor], max_norm: float, aggregate: Any, readings: Readings) -> Tensor:
    """Like fairseq's ``utils.clip_grad_norm_``, with few launches; the returned norm is on the CPU."""
    found = [p.grad.detach() for p in parameters if p.grad is not None]
    norm = total_norm([p.grad.detach() for p in parameters if p.grad is not None and not hasattr(p, "expert")])
    norm = norm if aggregate is None else aggregate(norm)
    norm = readings.read(norm)
    if max_norm > 0 and found:
        torch._foreach_mul_(found, float((float(max_norm) / (norm + 1e-6)).clamp_(max=1)))
    return norm


def total_norm(gradients: list[Tensor]) -> Tensor:
    """Return the norm over all gradients, float32; 0 if there are none."""
    if not gradients:
        return torch.zeros(())
    norms = [n.float() for n in torch._foreach_norm([g if g.dtype == torch.float32 else g.float() for g in gradients])]
    return norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms))


#: kernels read this many bytes at once, from a multiple of them
_ALIGNED = 16


def _in_one_tensor(parameters: list[nn.Parameter]) -> Optional[Tensor]:
    """Move parameters into one tensor, in their order; None, and no change, if some would not be aligned."""
    alike = len({(p.dtype, p.device) for p in parameters}) == 1
    if not alike or any(p.nbytes % _ALIGNED for p in parameters):
        return None
    whole = torch.cat([p.detach().flatten() for p in parameters])
    for parameter, part in zip(parameters, whole.split([p.numel() for p in parameters]), strict=True):
        parameter.data = part.view_as(parameter)
    return whole


class _Copies:
    """Copies all gradients to float32 and all parameters back, at once."""

    def __init__(self, optimizer: FP16Optimizer) -> None:
        self._optimizer = optimizer
        self._model = [p for p in optimizer.fp16_params if p.requires_grad]
        self._master: Optional[list[tuple[Tensor, Tensor]]] = None
        #: all float32 parameters, and the model's in the same order; None if they do not stand in one tensor
        self._flat: Any = next(iter(optimizer.fp32_params.values())) if optimizer.has_flat_params else None
        self._whole = None if self._flat is None else _in_one_tensor(self._model)

    def _pairs(self) -> list[tuple[Tensor, Tensor]]:
        """Return the float32 parameter and gradient of each model parameter (views if they are flat)."""
        if self._flat is None:
            params = self._optimizer.fp32_params
            for parameter in params:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
            return [(p.data, p.grad) for p in params if p.requires_grad]
        if self._master is None:
            sizes = [p.numel() for p in self._model]
            parts = zip(self._flat.data.split(sizes), self._flat.grad.split(sizes), self._model, strict=True)
            self._master = [(value.view_as(p), gradient.view_as(p)) for value, gradient, p in parts]
        return self._master

    @torch.no_grad()
    def gradients(self) -> None:
        """Copy the model's gradients into the float32 ones."""
        if not self._optimizer._needs_sync:
            return
        pairs = [(p.grad, gradient) for p, (_, gradient) in zip(self._model, self._pairs(), strict=True)]
        missing = [to for found, to in pairs if found is None]
        if missing:
            torch._foreach_zero_(missing)
        there = [(to, found) for found, to in pairs if found is not None]
        if there:
            torch._foreach_copy_([to for to, _ in there], [found for _, found in there])
        self._optimizer._needs_sync = False

    @torch.no_grad()
    def parameters(self) -> None:
        """Copy the float32 parameters into the model."""
        if self._whole is not None:
            self._whole.copy_(self._flat)
            return
        torch._foreach_copy_(self._model, [value for value, _ in self._pairs()])


class FusedAdam(Adam):
    """Replaces fairseq's Adam in an existing optimizer (:meth:`adopt`).

    fairseq adds epsilon to the square root of the second moment before the bias correction, torch after it; torch's
    step with epsilon / sqrt(1 - beta2 ** step) is the same as fairseq's.
    """

    @staticmethod
    def adopt(optimizer: Any) -> bool:
        """Replace fairseq's Adam by the fused one, in place; return whether this was possible."""
        if type(optimizer) is not Adam or not hasattr(torch, "_fused_adamw_"):
            return type(optimizer) is FusedAdam
        optimizer.__class__ = FusedAdam
        return True

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Take one step."""
        loss = None if closure is None else closure()
        for group in self.param_groups:
            mine = [p for p in group["params"] if p.grad is not None]
            if group.get("amsgrad", False) or any(p.dtype != torch.float32 or p.grad.is_sparse for p in mine):
                super().step()
                return loss
        for group in self.param_groups:
            self._step(group, [p for p in group["params"] if p.grad is not None])
        return loss

    def _step(self, group: dict[str, Any], parameters: list[Tensor]) -> None:
        alike: dict[tuple[int, torch.device], list[Tensor]] = {}
        for parameter in parameters:
            state = self.state[parameter]
            if not state:
                state["step"] = 0
                state["exp_avg"] = torch.zeros_like(parameter)
                state["exp_avg_sq"] = torch.zeros_like(parameter)
            state["step"] += 1
            alike.setdefault((state["step"], parameter.device), []).append(parameter)
        for (step, device), mine in alike.items():
            self._fused(group, mine, step, torch.full((), float(step), device=device))

    def _fused(self, group: dict[str, Any], parameters: list[Tensor], step: int, count: Tensor) -> None:
        beta1, beta2 = group["betas"]
        states = [self.state[parameter] for parameter in parameters]
        maxima: list[Tensor] = []
        torch._fused_adamw_(
            parameters,
            [parameter.grad for parameter in parameters],  # type: ignore[misc]
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            maxima,
            [count] * len(parameters),
            lr=float(group["lr"]),
            beta1=beta1,
            beta2=beta2,
            weight_decay=group["weight_decay"],
            eps=group["eps"] / math.sqrt(1 - beta2**step),
            amsgrad=False,
            maximize=False,
        )
