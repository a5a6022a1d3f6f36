"""Gradients at fixed addresses, into which recorded passes add."""

from collections.abc import Sequence
from typing import Optional

import torch
from torch import Tensor, nn


class Gradients:
    """One tensor for the gradients of all parameters of a type, and a view of it for each.

    A parameter that no pass has reached has no gradient (``p.grad`` is None), as in eager training.

    Attributes:
        parameters: whose gradients they are.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = list(parameters)
        self._views: list[Tensor] = [torch.empty(0)] * len(self.parameters)
        self._flat: list[Tensor] = []
        self._reached = [False] * len(self.parameters)
        alike: dict[tuple, list[int]] = {}
        for place, parameter in enumerate(self.parameters):
            alike.setdefault((parameter.dtype, parameter.device), []).append(place)
        for places in alike.values():
            mine = [self.parameters[place] for place in places]
            flat = torch.zeros(sum(p.numel() for p in mine), dtype=mine[0].dtype, device=mine[0].device)
            self._flat.append(flat)
            parts = flat.split([p.numel() for p in mine])
            for place, part, parameter in zip(places, parts, mine, strict=True):
                self._views[place] = part.view_as(parameter)

    def clear(self) -> None:
        """Begin an update: every gradient is 0."""
        for flat in self._flat:
            flat.zero_()
        self.attach()

    def attach(self) -> None:
        """Make the views the parameters' gradients again; what was put in their place meanwhile is added to them."""
        for place, reached in enumerate(self._reached):
            if reached:
                self._attach(place)

    def _attach(self, place: int) -> None:
        parameter, view = self.parameters[place], self._views[place]
        if parameter.grad is not view:
            if parameter.grad is not None:
                view.add_(parameter.grad)
            parameter.grad = view

    def add(self, found: Sequence[Optional[Tensor]]) -> None:
        """Add the gradients of one pass, None where it did not reach a parameter."""
        for place, gradient in enumerate(found):
            if gradient is not None and not self._reached[place]:
                self._reached[place] = True
                self._attach(place)
        views = [view for view, gradient in zip(self._views, found, strict=True) if gradient is not None]
        torch._foreach_add_(views, [gradient for gradient in found if gradient is not None])
