"""Translations of a model that is being trained (``--eval-bleu``): by the decoder of many masks, under its own mask."""

from typing import Any, Optional

import torch
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from fairseq_headprune.evaluation.many_masks import ManyMasks, obstacle
from fairseq_headprune.modules.attach import find_gates


class ValidationDecoder:
    """Translates batches of one model, with the settings of fairseq's generator.

    Attributes:
        model: the model; its weights and mask may change between batches.
    """

    def __init__(self, model: Any, generator: SequenceGenerator) -> None:
        self.model, self._pad, self._gates = model, generator.pad, find_gates(model)
        self._many: Optional[ManyMasks] = None
        if obstacle(model, self._gates, generator) is None:
            # A recording that fails would make those of the training's passes void (see ``CudaRecorder``).
            self._many = ManyMasks(model, self._gates, generator, records=False)

    def translate(self, sample: dict[str, Any]) -> Optional[list[list[dict[str, Tensor]]]]:
        """Return the best translation of each sentence in the form of fairseq's generator, only its tokens.

        None: the model or the settings need fairseq's own generator.

        Raises:
            FloatingPointError: the model's output is not finite.
        """
        if self._many is None:
            return None
        count, width = sample["net_input"]["src_tokens"].shape
        numbered = {**sample, "id": torch.arange(count)}
        with self._many.under([self._gates.mask()]) as begin:
            search = begin(numbered, [0], [self._many.limit(width)] * count)
            search.run()
            numbers, rows = search.found()
        found = {number: row[row.ne(self._pad)] for number, row in zip(numbers.tolist(), rows, strict=True)}
        return [[{"tokens": found[number]}] for number in range(count)]
