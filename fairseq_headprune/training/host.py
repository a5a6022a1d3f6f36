"""What fairseq does on the host in every update, with less of it: modes of modules and seeds."""

from typing import Any

import fairseq.utils
import torch
from torch import nn


class ModeSwitch:
    """Takes the place of a model's ``train``: modules that are in the mode already are left alone.

    fairseq asks for training mode in every update, and torch sets it anew in every module: a millisecond in which the
    GPU has nothing to do.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model, self._modules = model, list(model.modules())

    @classmethod
    def install(cls, model: nn.Module) -> None:
        """Put a switch on a model, unless one of its modules does more when the mode changes."""
        if all(type(module).train is nn.Module.train for module in model.modules()):
            model.train = cls(model)  # type: ignore[method-assign]

    def __call__(self, mode: bool = True) -> nn.Module:
        """Set the mode of all modules."""
        for module in self._modules:
            if module.training is not mode:
                module.training = mode
        return self._model


class QuickSeed(fairseq.utils.set_torch_seed):
    """fairseq's ``set_torch_seed`` for the generators that a training draws from: the CPU's and CUDA's.

    ``torch.manual_seed`` also notes the seed, with a stack trace, for every kind of device that was never used.
    """

    def __init__(self, seed: int) -> None:
        self.rng_state: Any = fairseq.utils.get_rng_state()
        torch.default_generator.manual_seed(seed)
        if torch.cuda.is_available():
            torch.cuda.default_generators[torch.cuda.current_device()].manual_seed(seed)

    @classmethod
    def install(cls) -> None:
        """Let fairseq's trainer use it from now on."""
        if fairseq.utils.xm is None:
            fairseq.utils.set_torch_seed = cls
