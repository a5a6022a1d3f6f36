"""Translate the same sentences under many masks in one batch, with fairseq's transformer and its generation settings.

A row of the batch is a sentence under a mask. What a mask does not change is computed once: masks that agree on the
lower encoder layers share their output, and keys and values of encoder-decoder attention are computed once for each
sentence and encoder output, whatever the number of decoder masks and hypotheses.
"""

from collections.abc import Sequence
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

from fairseq_headprune.evaluation.beams import Beams
from fairseq_headprune.evaluation.generation import ForcingGenerator
from fairseq_headprune.evaluation.memory import expected_tokens
from fairseq_headprune.models.transformer_gated import NO_LAYER
from fairseq_headprune.modules.attach import GatedParts, without_attention_weights
from fairseq_headprune.modules.cache import BeamCache
from fairseq_headprune.modules.row_masks import RowMasks, branching
from fairseq_headprune.parts import Mask

#: Maximum number of log-probabilities in memory at once.
_PROBABILITIES = 2**27


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

    def __init__(self, model: Any, gates: GatedParts, generator: SequenceGenerator) -> None:
        """Read the settings of fairseq's generator.

        Raises:
            ValueError: the model or the settings need fairseq's own generator; see :func:`obstacle`.
        """
        why = obstacle(model, gates, generator)
        if why:
            raise ValueError(f"many masks at once: {why}")
        self.beam = generator.beam_size
        self._model, self._gates, self._settings = model, gates, generator

    def limit(self, width: int) -> int:
        """Return fairseq's maximum length of translations for a batch of this source width."""
        settings = self._settings
        return min(int(settings.max_len_a * width + settings.max_len_b), settings.max_len - 1)

    @torch.no_grad()
    def translate(
        self, sample: dict[str, Any], masks: Sequence[Mask], limits: Sequence[int], prefix: Optional[Tensor] = None
    ) -> Tensor:
        """Return the best hypothesis of every sentence under every mask: (masks, sentences, tokens).

        Hypotheses have their end token, and are padded on the right to the length of the longest.

        Args:
            sample: a batch as fairseq collates it, on the model's device.
            limits: maximum length of each sentence's translation, see :meth:`limit`.
            prefix: (sentences, n) tokens that translations begin with.

        Raises:
            ValueError: a mask does not fit the model, or a maximum length is below ``--min-len``.
            FloatingPointError: a sentence has no hypothesis because the model's output is not finite.
        """
        if min(limits) < self._settings.min_len:
            raise ValueError(f"--min-len {self._settings.min_len} is more than the largest length, {min(limits)}")
        if prefix is None and isinstance(self._settings, ForcingGenerator):
            prefix = self._settings.begun(sample["net_input"]["src_tokens"])
        rows = RowMasks(self._gates, masks)
        with rows.in_force(), without_attention_weights(self._model):
            encoded, padding, group = self._encode(sample["net_input"], masks, rows)
            lengths = sorted(sample["net_input"]["src_lengths"].tolist(), reverse=True)
            *_, expected = expected_tokens(lengths, limits)
            search = _Search(self._model, self._gates, self._settings, rows, len(limits))
            found = search.run(encoded, padding, group, limits, int(expected), prefix)
        return found.unflatten(0, (-1, len(masks))).transpose(0, 1)

    def _encode(
        self, net_input: dict[str, Tensor], masks: Sequence[Mask], rows: RowMasks
    ) -> tuple[Tensor, Tensor, list[int]]:
        """Encode the sentences once for each group of masks that agree on the encoder.

        Returns:
            The output (src, groups * sentences, d), the padding (groups * sentences, src), and each mask's group.
        """
        encoder = self._model.encoder
        with branching(encoder.layers, masks, rows) as group:
            output = encoder.forward_torchscript(net_input)
        padding = output["encoder_padding_mask"][0].to(torch.bool).repeat(1 + max(group), 1)
        return output["encoder_out"][0], padding, group


class _Search:
    """One beam search; sentence i under mask m has index i * masks + m."""

    def __init__(self, model: Any, gates: GatedParts, settings: SequenceGenerator, rows: RowMasks, count: int) -> None:
        self._model, self._settings, self._masks = model, settings, rows
        self._sentences = count
        self._cross = [module for module in gates.modules["enc_dec"] if module.num_heads]

    def run(
        self,
        encoded: Tensor,
        padding: Tensor,
        group: list[int],
        limits: Sequence[int],
        expected: int,
        prefix: Optional[Tensor],
    ) -> Tensor:
        """Return the best hypothesis of each sentence under each mask, (sentences * masks, tokens), padded.

        Args:
            expected: tokens at the same time of all sentences under one mask, for which memory is allocated at first.
        """
        device, count, masks = encoded.device, self._sentences, self._masks.masks
        outputs = (torch.tensor(group, device=device) * count + torch.arange(count, device=device)[:, None]).view(-1)
        state = BeamCache(padding.index_select(0, outputs), expected * masks * self._settings.beam_size)
        for module in self._cross:
            state.encode(module, encoded, outputs)
        # The decoder only checks that there is an encoder output: keys and values are cached already.
        memory = {"encoder_out": [encoded[:1, :1]], "encoder_padding_mask": []}
        settings = self._settings
        beams = Beams(
            torch.tensor(limits, device=device).repeat_interleave(masks),
            settings.eos,
            settings.eos,
            settings.beam_size,
            settings.len_penalty if settings.normalize_scores else None,
        )
        lowest, changed = min(limits), True
        while True:
            if changed:
                self._set_masks(beams)
            forced, limited = self._forced(beams, prefix), beams.step >= lowest
            state.begin(beams.beam)
            features = self._features(beams, memory, state)
            scores, tokens, chosen, broken = self._candidates(features, beams, forced, limited)
            if beams.beam > 1 and bool(broken.any()):
                state.repeat()
                features = self._features(beams, memory, state)
                scores, tokens, chosen, _ = self._candidates(features, beams, forced, limited)
            before = beams.sentences.numel(), beams.beam
            keep, order = beams.advance(scores, tokens, chosen, None if forced is None else forced.eq(settings.eos))
            if not keep.numel():
                return self._found(beams)
            state.follow(keep, order, beams.beam)
            changed = (keep.numel(), beams.beam) != before

    def _features(self, beams: Beams, memory: dict[str, Any], state: BeamCache) -> Tensor:
        return self._model.decoder(beams.tokens, memory, state, features_only=True, alignment_layer=NO_LAYER)[0]

    def _set_masks(self, beams: Beams) -> None:
        rows = beams.sentences % self._masks.masks
        for component in ("enc_dec", "dec_self"):
            self._masks.set(component, rows)
        self._masks.set("dec_ffn", rows.repeat_interleave(beams.beam))

    def _forced(self, beams: Beams, prefix: Optional[Tensor]) -> Optional[Tensor]:
        """Return each sentence's forced next token, (n,), padding where it has none; None if no sentence has one."""
        if prefix is None or beams.step >= prefix.size(1):
            return None
        forced = prefix[torch.div(beams.sentences, self._masks.masks, rounding_mode="floor"), beams.step]
        return forced.masked_fill(beams.at_limit(), self._settings.pad)

    def _candidates(self, features: Tensor, beams: Beams, forced: Optional[Tensor], limited: bool) -> list[Tensor]:
        """Return the best continuations (see :meth:`Beams.candidates`), and whether any hypothesis is not finite.

        They are computed for some sentences at a time.
        """
        size = max(1, _PROBABILITIES // (self._settings.vocab_size * beams.beam))
        parts = []
        for start in range(0, beams.sentences.numel(), size):
            sentences = slice(start, min(start + size, beams.sentences.numel()))
            rows = self._log_probabilities(features[sentences.start * beams.beam : sentences.stop * beams.beam])
            ending = beams.at_limit()[sentences] if limited else None
            # If any value of a row is NaN, all are, so checking one token is enough.
            broken = rows[:, self._settings.pad].isnan().any().view(1)
            self._restrict(rows, beams, None if forced is None else forced[sentences], ending)
            parts.append((*beams.candidates(rows, sentences), broken))
        return [torch.cat(part) for part in zip(*parts, strict=True)]

    def _log_probabilities(self, features: Tensor) -> Tensor:
        logits = self._model.decoder.output_layer(features)
        if self._settings.temperature != 1.0:
            logits = logits / self._settings.temperature
        return self._model.get_normalized_probs((logits, None), log_probs=True, sample=None)[:, -1]

    def _restrict(self, rows: Tensor, beams: Beams, forced: Optional[Tensor], ending: Optional[Tensor]) -> None:
        """Apply fairseq's rules to log-probabilities (hypotheses, vocabulary), in place and in its order."""
        settings = self._settings
        rows[:, settings.pad] = -torch.inf
        if settings.unk_penalty:
            rows[:, settings.unk] -= settings.unk_penalty
        if ending is not None:
            _keep_only(rows, ending, torch.full_like(ending, settings.eos, dtype=torch.long), beams.beam)
        if forced is not None:
            _keep_only(rows, forced.ne(settings.pad), forced, beams.beam)
            if beams.step == 0 and isinstance(settings, ForcingGenerator):
                settings.at_no_cost(rows)
        elif beams.step < settings.min_len:
            rows[:, settings.eos] = -torch.inf

    def _found(self, beams: Beams) -> Tensor:
        found = beams.best(self._settings.pad)
        missing = found[:, 0].eq(self._settings.pad).nonzero().view(-1)
        if missing.numel():
            sentence, mask = divmod(int(missing[0]), self._masks.masks)
            raise FloatingPointError(
                f"sentence {sentence} of a batch has no translation under mask {mask} of it: "
                "the model's output is not finite"
            )
        return found


def _keep_only(rows: Tensor, where: Tensor, token: Tensor, beam: int) -> None:
    """Allow only ``token`` for the sentences marked by ``where``; both are (sentences,)."""
    where, token = where.repeat_interleave(beam)[:, None], token.repeat_interleave(beam)[:, None]
    value = rows.gather(1, token)
    rows.masked_fill_(where, -torch.inf)
    rows.scatter_(1, token, value)
