"""Bases of gated modules: parts with a mask over them, and the state of gates that are learned."""

import json
from typing import Any, Optional, Protocol

import torch
from torch import Tensor, nn

from fairseq_headprune.files import parse_json

#: a mask with its state: the tensor, whether loading a checkpoint leaves it unchanged, and where it comes from
Kept = tuple[Optional[Tensor], bool, dict]


class GatedModule(nn.Module):
    """A module whose parts can be masked, gated and removed individually.

    Attributes:
        indices: the original index of each remaining part.
        original_count: the number of parts before any removal.
        keep_is_fixed: loading a checkpoint does not replace the mask.
        keep_source: where the mask comes from (plain JSON values).
    """

    #: name of the buffer that holds the mask, also in checkpoints; the buffer is None if everything is kept
    KEEP: str

    #: what the parts are called in messages
    PARTS: str

    indices: list[int]
    original_count: int
    keep_is_fixed: bool
    keep_source: dict

    def prepare(self, count: int) -> None:
        """Start with all parts and no mask."""
        self.register_buffer(self.KEEP, None)
        self.indices, self.original_count = list(range(count)), count
        self.keep_is_fixed, self.keep_source = False, {}

    @property
    def output_layer(self) -> nn.Linear:
        """The layer whose weight has the parts as columns."""
        raise NotImplementedError

    @property
    def keep(self) -> Optional[Tensor]:
        """The current mask, bool, one entry per remaining part."""
        return getattr(self, self.KEEP)

    @property
    def state(self) -> Kept:
        """The current mask, whether it is fixed, and its source."""
        return self.keep, self.keep_is_fixed, self.keep_source

    @state.setter
    def state(self, kept: Kept) -> None:
        keep, self.keep_is_fixed, self.keep_source = kept
        setattr(self, self.KEEP, keep)

    def set_keep(self, keep: Optional[list[int]], fixed: bool = False, source: Optional[dict] = None) -> None:
        """Mask the remaining parts: 1 keeps a part (None keeps all).

        Args:
            fixed: loading a checkpoint later does not change the mask.
            source: where the mask comes from.
        """
        device = self.output_layer.weight.device
        value = None if keep is None or all(keep) else torch.tensor(keep, dtype=torch.bool, device=device)
        self.state = value, fixed, dict(source or {})

    def set_row(self, row: Optional[list[int]], fixed: bool = False, source: Optional[dict] = None) -> None:
        """Keep the parts in a row of a mask, by original index (None keeps all that remain)."""
        self.set_keep(None if row is None else [row[index] for index in self.indices], fixed, source)

    def structure(self) -> Optional[list[int]]:
        """Return the layout's row: the original indices of the remaining parts."""
        return self.indices

    def row(self) -> Optional[list[int]]:
        """Return the original indices of the parts that are neither removed nor masked."""
        keep = self.keep
        if keep is None:
            return self.structure()
        return [index for index, kept in zip(self.indices, keep.tolist(), strict=True) if kept]

    def shrink_keep(self, positions: list[int]) -> None:
        """Reduce the mask to the parts at these positions, when the others are removed."""
        keep, fixed, source = self.state
        if keep is not None and keep.dim():
            keep = keep[torch.tensor(positions, dtype=torch.long, device=keep.device)]
            self.state = (None if bool(keep.all()) else keep), fixed, source

    def load_keep(self, keep: Optional[Tensor], source: Optional[dict]) -> str:
        """Load a checkpoint's mask unless the current one is fixed; return an error text, empty if there is none."""
        if self.keep_is_fixed:
            return ""
        if keep is not None and keep.shape != (len(self.indices),):
            return f"the checkpoint's mask has {keep.numel()} {self.PARTS}, the model {len(self.indices)}"
        self.set_keep(None if keep is None else keep.tolist(), source=source)
        return ""

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing, unexpected, errors) -> None:
        problem = self.load_keep(state_dict.pop(prefix + self.KEEP, None), local_metadata.get("keep_source"))
        if problem:
            errors.append(f"{prefix}{self.KEEP}: {problem}")
        # A buffer that is set but absent from the file would be reported as missing; it has been handled above.
        mine = self.state
        setattr(self, self.KEEP, None)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing, unexpected, errors)
        self.state = mine

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        metadata = getattr(destination, "_metadata", None)
        if metadata is not None and self.keep is not None:
            metadata[prefix[:-1]]["keep_source"] = self.keep_source


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
