"""Translate the same sentences under many masks in one batch, with fairseq's transformer and its generation settings.

A row of the batch is a sentence under a mask. What a mask does not change is computed once: masks that agree on the
lower encoder layers share their output, and keys and values of encoder-decoder attention are computed once for each
sentence and encoder output, whatever the number of decoder masks and hypotheses.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Optional

import torch
from fairseq.models.transformer import (
    TransformerDecoder,
    TransformerDecoderBase,
    TransformerEncoder,
    TransformerEncoderBase,
)
from fairseq.search import BeamSearch
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from fairseq_headprune.evaluation.generation import ForcingGenerator
from fairseq_headprune.evaluation.memory import expected_tokens
from fairseq_headprune.evaluation.recorded_step import StepRecorder
from fairseq_headprune.evaluation.search import Search
from fairseq_headprune.modules.attach import GatedParts, find_gates, without_attention_weights
from fairseq_headprune.modules.cache import BeamCache
from fairseq_headprune.modules.row_masks import RowMasks, branching
from fairseq_headprune.parts import Mask


def obstacle(model: Any, gates: GatedParts, generator: Any) -> Optional[str]:
    """Return why this model or its settings do not allow translating under many masks at once; None if they do."""
    if type(generator) not in (SequenceGenerator, ForcingGenerator) or type(generator.search) is not BeamSearch:
        return "the generation settings ask for another search than plain beam search"
    if generator.match_source_len or generator.lm_model is not None or generator.repeat_ngram_blocker is not None:
        return "--match-source-len, --no-repeat-ngram-size and language models need fairseq's own generator"
    encoder: Any = getattr(model, "encoder", None)
    decoder: Any = getattr(model, "decoder", None)
    known = ((TransformerEncoder, TransformerEncoderBase), (TransformerDecoder, TransformerDecoderBase))
    if type(encoder) not in known[0] or type(decoder) not in known[1]:
        return f"{type(model).__name__} is not made of fairseq's transformer encoder and decoder"
    if any(getattr(layer, "cross_self_attention", False) for layer in decoder.layers):
        return "--cross-self-attention joins two attentions in one, which has keys of each mask"
    sizes = {"enc_self": len(encoder.layers), "enc_dec": len(decoder.layers), "dec_self": len(decoder.layers)}
    if sizes != {component: len(modules) for component, modules in gates.modules.items()}:
        return "not every layer has its own attention of each component"
    return None


class ManyMasks:
    """A decoder for one model, with the settings of fairseq's generator (beam, lengths, penalties, prefix).

    Attributes:
        beam: hypotheses per sentence.
    """

    def __init__(self, model: Any, gates: GatedParts, generator: SequenceGenerator, records: bool = True) -> None:
        """Read the settings of fairseq's generator.

        Args:
            records: whether steps of few hypotheses are recorded as CUDA graphs where the model is on a GPU.

        Raises:
            ValueError: the model or the settings need fairseq's own generator; see :func:`obstacle`.
        """
        why = obstacle(model, gates, generator)
        if why:
            raise ValueError(f"many masks at once: {why}")
        self.beam = generator.beam_size
        self._model, self._gates, self._settings = model, gates, generator
        self._recorder: Optional[StepRecorder] = None
        if records and next(model.parameters()).is_cuda:
            self._recorder = StepRecorder(model.decoder)

    def limit(self, width: int) -> int:
        """Return fairseq's maximum length of translations for a batch of this source width."""
        settings = self._settings
        return min(int(settings.max_len_a * width + settings.max_len_b), settings.max_len - 1)

    @contextmanager
    def under(self, masks: Sequence[Mask]) -> Iterator[Callable[..., Search]]:
        """Context manager: let rows have these masks, so that sentences can be searched under them.

        Yields:
            what begins the search of a batch, see :meth:`_begin` for its arguments; searches run in this context only.

        Raises:
            ValueError: a mask does not fit the model.
        """
        rows = RowMasks(self._gates, masks)
        with torch.no_grad(), rows.in_force(), without_attention_weights(self._model):
            yield partial(self._begin, rows)

    def _begin(
        self,
        rows: RowMasks,
        sample: dict[str, Any],
        masks: Sequence[int],
        limits: Sequence[int],
        prefix: Optional[Tensor] = None,
    ) -> Search:
        """Encode the sentences of a batch, and return their search under some of the masks.

        Args:
            sample: a batch as fairseq collates it, on the model's device; its ids number the sentences.
            masks: their numbers.
            limits: maximum length of each sentence's translation, see :meth:`limit`.
            prefix: (sentences, n) tokens that translations begin with.

        Raises:
            ValueError: a maximum length is below ``--min-len``.
        """
        settings, count = self._settings, len(limits)
        if min(limits) < settings.min_len:
            raise ValueError(f"--min-len {settings.min_len} is more than the largest length, {min(limits)}")
        if prefix is None and isinstance(settings, ForcingGenerator):
            prefix = settings.begun(sample["net_input"]["src_tokens"])
        encoded, padding, group = self._encode(sample["net_input"], masks, rows)
        device = encoded.device
        outputs = (torch.tensor(group, device=device) * count + torch.arange(count, device=device)[:, None]).view(-1)
        lengths = sorted(sample["net_input"]["src_lengths"].tolist(), reverse=True)
        *_, expected = expected_tokens(lengths, limits)
        cache = BeamCache(padding.index_select(0, outputs), int(expected) * len(masks) * self.beam)
        for module in self._gates.modules["enc_dec"]:
            if module.num_heads:
                cache.encode(module, encoded, outputs)
        numbers = sample["id"].to(device)[:, None] * rows.masks + torch.tensor(masks, device=device)
        longest = torch.tensor(limits, device=device).repeat_interleave(len(masks))
        begun = None if prefix is None else prefix.repeat_interleave(len(masks), 0)
        return Search(self._model, settings, rows, numbers.view(-1), longest, cache, begun, self._recorder)

    def _encode(
        self, net_input: dict[str, Tensor], masks: Sequence[int], rows: RowMasks
    ) -> tuple[Tensor, Tensor, list[int]]:
        """Encode the sentences once for each group of masks that agree on the encoder.

        Returns:
            The output (src, groups * sentences, d), the padding (groups * sentences, src), and each mask's group.
        """
        encoder = self._model.encoder
        with branching(encoder.layers, rows, masks) as group:
            output = encoder.forward_torchscript(net_input)
        padding = output["encoder_padding_mask"][0].to(torch.bool).repeat(1 + max(group), 1)
        return output["encoder_out"][0], padding, group


class ValidationDecoder:
    """Translates batches of a model that is being trained (``--eval-bleu``), under its own mask.

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
