"""A beam search over sentences under masks that can stop at any step, be set aside, divided and joined with others."""

import copy
from collections.abc import Sequence
from functools import partial
from typing import Any, Optional

import torch
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from fairseq_headprune.evaluation.beams import DROPPED, Beams
from fairseq_headprune.evaluation.generation import ForcingGenerator
from fairseq_headprune.evaluation.recorded_step import DROPPED_IF_RECORDED, RecordedStep, StepRecorder
from fairseq_headprune.models.transformer_gated import NO_LAYER
from fairseq_headprune.modules.cache import BeamCache
from fairseq_headprune.modules.row_masks import RowMasks

#: Maximum number of log-probabilities in memory at once.
_PROBABILITIES = 2**27


class Search:
    """One beam search over rows, each of which is a sentence under a mask."""

    def __init__(
        self,
        model: Any,
        settings: SequenceGenerator,
        masks: RowMasks,
        numbers: Tensor,
        limits: Tensor,
        cache: BeamCache,
        prefix: Optional[Tensor],
        recorder: Optional[StepRecorder] = None,
    ) -> None:
        """Start the search; nothing is computed yet.

        Args:
            numbers: (rows,) sentence * masks + mask of each row.
            limits: (rows,) the maximum number of tokens of each row's translation.
            cache: holds the keys and values of encoder-decoder attention.
            prefix: (rows, n) tokens that translations begin with, padding where they have fewer.
            recorder: records steps of few rows; None: none are.
        """
        self._model, self._settings, self._masks = model, settings, masks
        self._numbers, self._cache, self._prefix = numbers, cache, prefix
        self._lowest, self._highest = int(limits.min()), int(limits.max())
        self._recorder = recorder
        self._recorded: Optional[RecordedStep] = None
        #: how many steps there were since the rows changed
        self._alike = 0
        # The decoder only checks that there is an encoder output: keys and values are cached already.
        self._memory = {"encoder_out": [torch.zeros(1, 1, 1, device=numbers.device)], "encoder_padding_mask": []}
        self._beams = Beams(
            limits,
            settings.eos,
            settings.eos,
            settings.beam_size,
            settings.len_penalty if settings.normalize_scores else None,
        )

    @property
    def rows(self) -> int:
        """How many rows are left: those that go on, and a few that are finished."""
        return self._beams.sentences.numel()

    @property
    def step(self) -> int:
        """How many tokens each hypothesis has."""
        return self._beams.step

    def run(self, until: Optional[int] = None, few: float = 0) -> None:
        """Go on until no more than ``few`` rows are left, or until this step."""
        forced = 0 if self._prefix is None else self._prefix.size(1)
        changed = True
        # What a prefix forces is not set aside: then rests of all batches are alike.
        while self.rows > few or 0 < self.rows and self.step < forced:
            if self.step == until:
                break
            if changed:
                self._set_masks()
                self._recorded, self._alike = None, 0
            changed = self._advance()
            self._alike += 1

    def set_aside(self) -> None:
        """Release what the rows that are left do not need: memory, and what was found."""
        self._recorded = None
        self._cache.compact()
        self._forget(torch.arange(self.rows, device=self._numbers.device))

    def part(self, rows: Sequence[int]) -> "Search":
        """Return a copy with some of the rows that are left, ascending, and without what was found already."""
        places = torch.tensor(rows, device=self._numbers.device)
        new = copy.copy(self)
        new._cache = self._cache.part(places)
        new._forget(places)
        return new

    def _forget(self, places: Tensor) -> None:
        """Keep only some of the rows that are left, and nothing of what was found."""
        self._numbers = self._numbers[self._beams.sentences[places]]
        self._beams, self._prefix = self._beams.part(places), None

    def join(self, other: "Search") -> None:
        """Go on with the rows of another search as well; both are past their prefixes, and at the same step."""
        self._numbers = torch.cat([self._numbers, other._numbers])
        self._lowest, self._highest = min(self._lowest, other._lowest), max(self._highest, other._highest)
        self._beams.join(other._beams)
        self._cache.join(other._cache)

    def found(self) -> tuple[Tensor, Tensor]:
        """Return the best translations that were found, of rows that go on as well, (n, tokens), and their numbers.

        Translations have their end token, and are padded on the right to the length of the longest. A :meth:`part` has
        only those that are better than what was found before.

        Raises:
            FloatingPointError: a finished row has no translation because the model's output is not finite.
        """
        lost = self._numbers[self._beams.lost()]
        if lost.numel():
            sentence, mask = divmod(int(lost[0]), self._masks.masks)
            raise FloatingPointError(
                f"sentence {sentence} has no translation under mask {mask} of {self._masks.masks}: "
                "the model's output is not finite"
            )
        best = self._beams.best(self._settings.pad)
        some = best[:, 0].ne(self._settings.pad)
        return self._numbers[some], best[some]

    def _advance(self) -> bool:
        """Choose the next token of every hypothesis; tell whether there are other rows or more hypotheses now."""
        beams, cache = self._beams, self._cache
        forced, ending = self._forced(), beams.at_limit() if beams.step >= self._lowest else None
        recorded = self._recording() if forced is None else None
        step = partial(self._next, beams.tokens, beams.scores, ending, forced)
        cache.begin(beams.beam)
        scores, tokens, chosen, broken = step() if recorded is None else recorded.run(beams)
        if beams.beam > 1 and bool(broken.any()):
            cache.repeat()
            scores, tokens, chosen, _ = step()
        before = self.rows, beams.beam
        stop = None if forced is None else forced.eq(self._settings.eos)
        keep, order = beams.advance(scores, tokens, chosen, stop, DROPPED if recorded is None else DROPPED_IF_RECORDED)
        if self.rows:
            cache.follow(keep, order, beams.beam)
        return (self.rows, beams.beam) != before

    def _recording(self) -> Optional[RecordedStep]:
        """Return a recording of the next step; None where it is not worth one."""
        beams, cache = self._beams, self._cache
        if self._recorder is None or beams.step < self._settings.min_len:
            return None
        if cache.full:
            self._recorded = None
        if self._recorded is None and self._recorder.wants(self.rows * beams.beam, self._alike):
            cache.hold((self._highest + 1) * beams.beam)
            self._recorded = self._recorder.record(partial(self._next, forced=None), beams)
            if self._recorded is None:
                cache.release()
        return self._recorded

    def _next(
        self, tokens: Tensor, totals: Tensor, ending: Optional[Tensor], forced: Optional[Tensor]
    ) -> Sequence[Tensor]:
        """Return the best continuations (see :meth:`Beams.candidates`), and whether any hypothesis is not finite.

        Args:
            tokens: (hypotheses, n) of which only the last is read, apart from their number.
            totals: (rows, beam).
            ending: bool (rows,) those that have to end; None: no row has to.
            forced: (rows,) next tokens, padding for rows without one; None: no row has one.
        """
        decoder, memory = self._model.decoder, self._memory
        features, _ = decoder(tokens, memory, self._cache, features_only=True, alignment_layer=NO_LAYER)
        return self._candidates(features, totals, ending, forced)

    def _set_masks(self) -> None:
        rows = self._numbers[self._beams.sentences] % self._masks.masks
        for component in ("enc_dec", "dec_self"):
            self._masks.set(component, rows)
        self._masks.set("dec_ffn", rows.repeat_interleave(self._beams.beam))

    def _forced(self) -> Optional[Tensor]:
        """Return each row's forced next token, (n,), padding where it has none; None if no row has one."""
        beams, prefix = self._beams, self._prefix
        if prefix is None or beams.step >= prefix.size(1):
            return None
        return prefix[beams.sentences, beams.step].masked_fill(beams.at_limit(), self._settings.pad)

    def _candidates(
        self, features: Tensor, totals: Tensor, ending: Optional[Tensor], forced: Optional[Tensor]
    ) -> Sequence[Tensor]:
        """Do the second half of :meth:`_next`, for some rows at a time."""
        beams = self._beams
        size = max(1, _PROBABILITIES // (self._settings.vocab_size * beams.beam))
        parts = []
        for start in range(0, self.rows, size):
            some = slice(start, min(start + size, self.rows))
            probabilities = self._log_probabilities(features[some.start * beams.beam : some.stop * beams.beam])
            # If any value of a hypothesis is NaN, all are, so checking one token is enough.
            broken = probabilities[:, self._settings.pad].isnan().any(0, keepdim=True)
            of_some = (None if rows is None else rows[some] for rows in (forced, ending))
            self._restrict(probabilities, *of_some)
            parts.append((*beams.candidates(probabilities, totals[some]), broken))
        # Most often there is one part, which is not copied: small steps take as long as their launches.
        return parts[0] if len(parts) == 1 else [torch.cat(part) for part in zip(*parts, strict=True)]

    def _log_probabilities(self, features: Tensor) -> Tensor:
        logits = self._model.decoder.output_layer(features)
        if self._settings.temperature != 1.0:
            logits = logits / self._settings.temperature
        return self._model.get_normalized_probs((logits, None), log_probs=True, sample=None)[:, -1]

    def _restrict(self, probabilities: Tensor, forced: Optional[Tensor], ending: Optional[Tensor]) -> None:
        """Apply fairseq's rules to log-probabilities (hypotheses, vocabulary), in place and in its order."""
        settings, beams = self._settings, self._beams
        probabilities[:, settings.pad] = -torch.inf
        if settings.unk_penalty:
            probabilities[:, settings.unk] -= settings.unk_penalty
        if ending is not None:
            _keep_only(probabilities, ending, torch.full_like(ending, settings.eos, dtype=torch.long), beams.beam)
        if forced is not None:
            _keep_only(probabilities, forced.ne(settings.pad), forced, beams.beam)
            if beams.step == 0 and isinstance(settings, ForcingGenerator):
                settings.at_no_cost(probabilities)
        elif beams.step < settings.min_len:
            probabilities[:, settings.eos] = -torch.inf


def _keep_only(probabilities: Tensor, where: Tensor, token: Tensor, beam: int) -> None:
    """Allow only ``token`` for the rows marked by ``where``; both are (rows,)."""
    where, token = where.repeat_interleave(beam)[:, None], token.repeat_interleave(beam)[:, None]
    value = probabilities.gather(1, token)
    probabilities.masked_fill_(where, -torch.inf)
    probabilities.scatter_(1, token, value)
