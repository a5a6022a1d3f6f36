"""Marian's positions: sines in the first half, cosines in the second, counted from 0."""

import torch
from torch import Tensor, nn

from fairseq_headprune.imports.sine_table import halves


class HalvesPositions(nn.Module):
    """Positions of real tokens from 0 on, wherever a sentence's padding is.

    Nothing here depends on Python's arithmetic on lengths, so that the module can be traced as it is.

    Attributes:
        padding_idx: -1: the first row of the table is the first position.
        weights: the table (positions, width); computed, never saved.
        max_positions: the longest sentence.
    """

    weights: Tensor

    def __init__(self, positions: int, width: int, pad: int) -> None:
        super().__init__()
        self.register_buffer("weights", halves(positions, width), persistent=False)
        self.pad, self.padding_idx, self.max_positions = pad, -1, positions

    def forward(self, tokens: Tensor, incremental_state=None, timestep=None, positions=None) -> Tensor:
        """Return the embeddings of all positions, or of the last one while decoding step by step.

        Args:
            tokens: (batch, time); while decoding the whole prefix, which has no padding.
        """
        if incremental_state is not None:
            places = torch.ones_like(tokens).cumsum(dim=1)[:, -1:] - 1
        else:
            places = (tokens.ne(self.pad).long().cumsum(dim=1) - 1).clamp(min=0)
        return nn.functional.embedding(places, self.weights)
