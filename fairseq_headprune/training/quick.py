"""What fairseq does on the host in every update, with the same result in less time: a GPU waits for it."""

from typing import Any

import fairseq.utils
import torch
from fairseq.models import BaseFairseqModel, FairseqEncoder
from omegaconf import DictConfig
from omegaconf.base import Container
from omegaconf.nodes import ValueNode
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


class UpdateCount:
    """Replaces a model's ``set_num_updates``, for which fairseq searches all modules in every update."""

    def __init__(self, model: nn.Module) -> None:
        """Find the modules that take the number; an encoder of fairseq only passes it on to those in it."""
        taking = [module for module in model.modules() if module is not model and hasattr(module, "set_num_updates")]
        self._modules: list[Any] = [m for m in taking if _own(m) is not FairseqEncoder.set_num_updates]

    @classmethod
    def install(cls, model: nn.Module) -> None:
        """Install it in a model, unless this does more than fairseq's."""
        if _own(model) is BaseFairseqModel.set_num_updates:
            model.set_num_updates = cls(model)  # type: ignore[assignment]

    def __call__(self, num_updates: int) -> None:
        """Tell the modules the number."""
        for module in self._modules:
            module.set_num_updates(num_updates)


def _own(module: nn.Module) -> Any:
    return getattr(type(module), "set_num_updates", None)


class QuickSettings(DictConfig):
    """fairseq's settings, of which plain values are read without OmegaConf's checks.

    fairseq's trainer and loop read some 50 of them in every update, 10 microseconds each.
    """

    @classmethod
    def install(cls, settings: Any) -> None:
        """Let settings and those in them be read this way, in place; other objects stay as they are."""
        if type(settings) is DictConfig:
            object.__setattr__(settings, "__class__", cls)
            content = settings.__dict__["_content"]
            for node in content.values() if isinstance(content, dict) else ():
                cls.install(node)

    def __getattr__(self, name: str) -> Any:
        """Return a setting; what is missing, refers to another one or is no value is left to OmegaConf."""
        content = self.__dict__.get("_content")
        node = content.get(name) if isinstance(content, dict) else None
        if isinstance(node, ValueNode):
            value = node._val
            if not isinstance(value, str) or (value != "???" and "${" not in value):
                return value
        elif isinstance(node, Container) and isinstance(node._content, dict):
            return node
        return super().__getattr__(name)
