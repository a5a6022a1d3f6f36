"""What gated attention and feed-forward modules share: which parts they have, and a mask that silences some."""

from typing import Any, Optional

import torch
from torch import Tensor, nn

#: what a mask in force consists of: the tensor, whether a checkpoint leaves it, and where it comes from
Kept = tuple[Optional[Tensor], bool, dict]


class GatedModule(nn.Module):
    """A module of which single parts can be masked, gated and removed.

    Attributes:
        indices: the original index of each part that is in the weights.
        original_count: how many there were before some were removed.
        keep_is_fixed: a checkpoint that is loaded does not replace the mask.
        keep_source: where the mask comes from (plain JSON values).
    """

    #: the buffer that holds the mask, in checkpoints too; None if everything is kept
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
        """The layer whose weight has the parts in its columns."""
        raise NotImplementedError

    @property
    def keep(self) -> Optional[Tensor]:
        """The mask in force, bool, one entry a part that is there."""
        return getattr(self, self.KEEP)

    @property
    def state(self) -> Kept:
        """The mask in force with what belongs to it."""
        return self.keep, self.keep_is_fixed, self.keep_source

    @state.setter
    def state(self, kept: Kept) -> None:
        keep, self.keep_is_fixed, self.keep_source = kept
        setattr(self, self.KEEP, keep)

    def set_keep(self, keep: Optional[list[int]], fixed: bool = False, source: Optional[dict] = None) -> None:
        """Keep the parts marked 1 of those that are there (None keeps all).

        Args:
            fixed: a checkpoint loaded later does not change it.
            source: where the mask comes from.
        """
        device = self.output_layer.weight.device
        value = None if keep is None or all(keep) else torch.tensor(keep, dtype=torch.bool, device=device)
        self.state = value, fixed, dict(source or {})

    def set_row(self, row: Optional[list[int]], fixed: bool = False, source: Optional[dict] = None) -> None:
        """Keep the parts of a row of a mask, in original numbers (None keeps all that are there)."""
        self.set_keep(None if row is None else [row[index] for index in self.indices], fixed, source)

    def structure(self) -> Optional[list[int]]:
        """Return the row of a layout: the parts that are there."""
        return self.indices

    def row(self) -> Optional[list[int]]:
        """Return the original indices of the parts that are there and not masked."""
        keep = self.keep
        if keep is None:
            return self.structure()
        return [index for index, kept in zip(self.indices, keep.tolist(), strict=True) if kept]

    def shrink_keep(self, positions: list[int]) -> None:
        """Take over the mask of the parts at these positions, when others are removed."""
        keep, fixed, source = self.state
        if keep is not None and keep.dim():
            keep = keep[torch.tensor(positions, dtype=torch.long, device=keep.device)]
            self.state = (None if bool(keep.all()) else keep), fixed, source

    def load_keep(self, keep: Optional[Tensor], source: Optional[dict]) -> str:
        """Take over a checkpoint's mask unless the present one is fixed; return what is wrong with it, if anything."""
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
        # A buffer that is set but absent from the file would count as missing; it has just been dealt with.
        mine = self.state
        setattr(self, self.KEEP, None)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing, unexpected, errors)
        self.state = mine

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        metadata = getattr(destination, "_metadata", None)
        if metadata is not None and self.keep is not None:
            metadata[prefix[:-1]]["keep_source"] = self.keep_source
