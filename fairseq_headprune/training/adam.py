"""fairseq's Adam with one launch for many parameters: the same numbers, the same state, the same checkpoints."""

import math
from typing import Any

import torch
from fairseq.optim.adam import Adam
from torch import Tensor


class FusedAdam(Adam):
    """Takes the place of fairseq's Adam in an optimizer that has been built (:meth:`adopt`).

    fairseq adds epsilon to the square root of the second moment before the bias correction, torch after it; torch's
    step with epsilon / sqrt(1 - beta2 ** step) is fairseq's.
    """

    @staticmethod
    def adopt(optimizer: Any) -> bool:
        """Make fairseq's Adam a fused one, in place; return whether it was fairseq's Adam, and could be."""
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
                return super().step() if loss is None else loss
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
