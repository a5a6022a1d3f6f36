"""Cheaper versions of fairseq's work on the host in every update: module modes and seeds."""

from typing import Any

import fairseq.utils
import torch
from torch import nn


class ModeSwitch:
    """Replaces a model's ``train``; skips modules that are in the mode already.

    fairseq sets training mode in every update, and torch sets it again in every module: a millisecond in which the GPU
    is idle.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model, self._modules = model, list(model.modules())

    @classmethod
    def install(cls, model: nn.Module) -> None:
        """Install the switch in a model, unless one of its modules overrides ``train``."""
        if all(type(module).train is nn.Module.train for module in model.modules()):
            model.train = cls(model)  # type: ignore[method-assign]

    def __call__(self, mode: bool = True) -> nn.Module:
        """Set the mode of all modules."""
        for module in self._modules:
            if module.training is not mode:
                module.training = mode
        return self._model


class QuickSeed(fairseq.utils.set_torch_seed):
    """fairseq's ``set_torch_seed`` for only the generators that training uses: the CPU's and CUDA's.

    ``torch.manual_seed`` also queues the seed, with a stack trace, for every unused kind of device.
    """

    def __init__(self, seed: int) -> None:
        self.rng_state: Any = fairseq.utils.get_rng_state()
        torch.default_generator.manual_seed(seed)
        if torch.cuda.is_available():
            torch.cuda.default_generators[torch.cuda.current_device()].manual_seed(seed)

    @classmethod
    def install(cls) -> None:
        """Make fairseq's trainer use it."""
        if fairseq.utils.xm is None:
            fairseq.utils.set_torch_seed = cls
