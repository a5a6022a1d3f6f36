"""Stores the state of learned gates in the model, so that it is saved and loaded with the weights."""

import json
from typing import Any, Optional, Protocol

import torch
from torch import Tensor, nn

from fairseq_headprune.files import parse_json


class Saved(Protocol):
    """State to save: named tensors, and a description in plain JSON values."""

    def state(self) -> dict[str, Tensor]:
        """Return the tensors."""

    def description(self) -> dict[str, Any]:
        """Return the description: what the tensors mean."""


#: The description as JSON in a tensor: the metadata is lost when one rank reads a checkpoint for all ranks.
_DESCRIPTION = "description"


class GateState(nn.Module):
    """A submodule without parameters: gates are learned outside fairseq's optimizer, in float32, on the CPU.

    Attributes:
        learner: the state to save in the model's checkpoints; None (nothing is saved) unless gates are being learned.
        loaded: the tensors and the description in the last loaded checkpoint; both empty if it had none.
        model_was_loaded: whether any checkpoint has been loaded into the model.
    """

    def __init__(self) -> None:
        super().__init__()
        self.learner: Optional[Saved] = None
        self.loaded: tuple[dict[str, Tensor], dict[str, Any]] = ({}, {})
        self.model_was_loaded = False

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        if self.learner is None:
            return
        for name, value in self.learner.state().items():
            destination[prefix + name] = value
        description = self.learner.description()
        destination[prefix + _DESCRIPTION] = torch.tensor(list(json.dumps(description).encode()), dtype=torch.uint8)
        metadata = getattr(destination, "_metadata", None)
        if metadata is not None:
            metadata[prefix[:-1]] = description

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing, unexpected, errors) -> None:
        tensors = {name[len(prefix) :]: value for name, value in state_dict.items() if name.startswith(prefix)}
        text = tensors.pop(_DESCRIPTION, None)
        description = dict(local_metadata) if text is None else parse_json(bytes(text.tolist()), "the learned gates")
        self.loaded = (tensors, description) if tensors else ({}, {})
        self.model_was_loaded = True
