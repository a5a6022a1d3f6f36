"""Batched beam search with the rules of fairseq's ``SequenceGenerator`` and no Python work per hypothesis.

All operations are on tensors of the whole batch: no Python object per hypothesis, and only the best finished hypothesis
of each sentence is kept. Which hypotheses finish, continue and win is decided as in fairseq.
"""

import copy
import math
from typing import Optional

import torch
from torch import Tensor

#: Size of the groups in the first round of :func:`_grouped`.
_GROUP = 16

#: Finished sentences are dropped when they are this share of all: dropping copies the others' keys and values.
DROPPED = 1 / 8


def best_continuations(rows: Tensor, scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the best continuations of each sentence's hypotheses, in descending order of their total.

    Args:
        rows: (sentences * beam, vocabulary) log-probabilities of the next token; may be changed in place. Those of a
            hypothesis that is not finite are NaN or infinite, and count as impossible.
        scores: (sentences, beam) the totals so far.

    Returns:
        The new totals, and their places among beam * vocabulary: (sentences, count) each.
    """
    # ``torch.topk`` reads long rows many times over on CUDA.
    return (_grouped if rows.is_cuda else _at_once)(rows, scores, count)


def _at_once(rows: Tensor, scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    totals = rows.add_(scores.view(-1, 1)).view(len(scores), -1)
    values, place = totals.topk(count)
    # NaN comes first in ``torch.topk``.
    return _possible(totals).topk(count) if bool(values.isnan().any()) else (values, place)


def _grouped(rows: Tensor, scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Like :func:`_at_once`, except for the order of ties: add and search only in the groups with the largest maxima.

    Rounding keeps order, so the maximum of totals is the total of the maximum.
    """
    sentences, beam = scores.shape
    length, groups = rows.size(1), rows.size(1) // _GROUP
    if beam * groups <= 2 * count:
        return _at_once(rows, scores, count)
    maxima = rows[:, : groups * _GROUP].unflatten(1, (_GROUP, groups)).amax(1).view(sentences, beam, groups)
    maxima = _possible(maxima + scores[:, :, None])
    best = maxima.view(sentences, -1).topk(count, sorted=False)[1]
    first = best + torch.div(best, groups, rounding_mode="floor") * (length - groups)
    places = (first[:, None] + groups * torch.arange(_GROUP, device=rows.device)[:, None]).flatten(1)
    if length > groups * _GROUP:
        rest = torch.arange(beam * length, device=rows.device).view(beam, length)[:, groups * _GROUP :]
        places = torch.cat([places, rest.reshape(1, -1).expand(sentences, -1)], 1)
    totals = rows.view(sentences, -1).gather(1, places)
    totals += scores.gather(1, torch.div(places, length, rounding_mode="floor"))
    values, chosen = _possible(totals).topk(count)
    return values, places.gather(1, chosen)


def _possible(totals: Tensor) -> Tensor:
    return totals.nan_to_num_(nan=-math.inf, posinf=math.inf, neginf=-math.inf)


class Beams:
    """The state of a beam search over some sentences; finished sentences are dropped, a few at a time.

    The order of ties is that of ``torch.topk`` over all continuations of a sentence, as in fairseq.

    Attributes:
        sentences: (n,) the numbers of the sentences that are not dropped yet, ascending; the finished ones among them
            go on without any effect.
        beam: hypotheses per sentence; 1 before the first step, where all would be the same.
        tokens: (n * beam, step + 1), the tokens of each hypothesis, the start token first.
        scores: (n, beam) the sum of the log-probabilities of each hypothesis.
        step: how many tokens were chosen so far.
    """

    def __init__(self, limits: Tensor, start: int, end: int, beam: int, length_penalty: Optional[float]) -> None:
        """Start the search.

        Args:
            limits: (n,) the maximum number of tokens of each sentence's translation, without the end token.
            start, end: first and last token of a hypothesis.
            length_penalty: a finished hypothesis' score is divided by its length to this power; None: no division.
        """
        count = limits.numel()
        self.sentences = torch.arange(count, device=limits.device)
        self.beam, self.step = 1, 0
        self.tokens = torch.full((count, 1), start, device=limits.device)
        self._width, self._end, self._penalty = beam, end, length_penalty
        self._limits = limits
        self.scores = torch.zeros(count, 1, device=limits.device)
        self._blocked = torch.zeros(count, beam, dtype=torch.bool, device=limits.device)
        self._finished = torch.zeros(count, dtype=torch.long, device=limits.device)
        self._best = torch.full((count,), -math.inf, device=limits.device)
        self._found: list[tuple[Tensor, Tensor]] = []

    def candidates(self, probabilities: Tensor, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the best continuations of some sentences, enough that ``beam`` remain when others end in this step.

        Args:
            probabilities: (sentences * beam, vocabulary) log-probabilities of the next token; changed in place.
            scores: (sentences, beam) their part of ``scores``.

        Returns:
            Scores in descending order, the tokens, and which of the sentence's hypotheses each continues:
            (sentences, k) each.
        """
        vocabulary = probabilities.size(1)
        count = min(2 * self._width, self.beam * vocabulary - 1)
        totals, place = best_continuations(probabilities, scores, count)
        return totals, place % vocabulary, torch.div(place, vocabulary, rounding_mode="floor")

    def at_limit(self) -> Tensor:
        """Return for each sentence whether its hypotheses have to end now: bool (n,)."""
        return self._limits <= self.step

    def advance(
        self,
        scores: Tensor,
        tokens: Tensor,
        hypotheses: Tensor,
        stop: Optional[Tensor] = None,
        dropped: float = DROPPED,
    ) -> tuple[Tensor, Tensor]:
        """Choose the next token of every hypothesis, and drop finished sentences if they are many or all.

        Args:
            scores, tokens, hypotheses: what :meth:`candidates` found, of all n sentences.
            stop: None or bool (n,): sentences that are finished after this step in any case.
            dropped: finished sentences are dropped when they are this share of all.

        Returns:
            keep: indices of the sentences that are not dropped, ascending; none if all are finished.
            order: (len(keep) * beam,) the index, over all sentences, of the hypothesis that each new one continues.
        """
        origins = hypotheses + self.beam * torch.arange(len(hypotheses), device=hypotheses.device)[:, None]
        ends = tokens.eq(self._end) & scores.ne(-math.inf)
        ends[:, : self._width] &= ~self._blocked
        self._finish(scores, ends[:, : self._width], origins)
        over = (self._finished >= self._width) | self.at_limit()
        over = over if stop is None else over | stop
        self._finished.masked_fill_(over, self._width)
        keep = self._kept(over, dropped)
        ends[:, : self._width] |= self._blocked
        if keep.numel() != over.numel():
            scores, tokens, origins, ends = (x[keep] for x in (scores, tokens, origins, ends))
            of_sentences = self.sentences, self._limits, self._finished
            self.sentences, self._limits, self._finished = (x[keep] for x in of_sentences)
        return keep, self._continue(scores, tokens, origins, ends)

    @staticmethod
    def _kept(over: Tensor, dropped: float) -> Tensor:
        count, finished = over.numel(), int(over.sum())
        if finished and finished >= dropped * count:
            return (~over).nonzero().view(-1)
        return torch.arange(count, device=over.device)

    def best(self, pad: int) -> Tensor:
        """Return the best finished hypothesis of each sentence with its end token; only padding where there is none.

        Returns:
            (sentences, length of the longest); shorter ones are padded on the right.
        """
        width = max((tokens.size(1) for _, tokens in self._found), default=0) + 1
        rows = torch.full((self._best.numel(), width), pad, device=self._best.device)
        for sentences, tokens in self._found:
            # A later entry of the same sentence is better, since it is stored only if it is, and longer.
            rows[sentences, : tokens.size(1)] = tokens
            rows[sentences, tokens.size(1)] = self._end
        return rows

    def lost(self) -> Tensor:
        """Return the numbers of the dropped sentences of which nothing was found: (k,), ascending."""
        lost = self._best.eq(-math.inf)
        lost[self.sentences] = False
        return lost.nonzero().view(-1)

    def part(self, places: Tensor) -> "Beams":
        """Return a copy with some of the sentences that are not dropped, numbered from 0.

        It knows how good each one's best finished hypothesis is, but only stores better ones.

        Args:
            places: (k,) their places among ``sentences``, ascending.
        """
        new = copy.copy(self)
        new.sentences = torch.arange(places.numel(), device=places.device)
        new.tokens = self.tokens.unflatten(0, (-1, self.beam))[places].flatten(0, 1)
        new.scores, new._blocked = self.scores[places], self._blocked[places]
        new._limits, new._finished = self._limits[places], self._finished[places]
        new._best, new._found = self._best[self.sentences[places]], []
        return new

    def join(self, other: "Beams") -> None:
        """Go on with the sentences of another search at the same step as well, numbered after those of this one."""
        count = self._best.numel()
        self.sentences = torch.cat([self.sentences, other.sentences + count])
        self._found += [(sentences + count, tokens) for sentences, tokens in other._found]
        for name in ("tokens", "scores", "_blocked", "_limits", "_finished", "_best"):
            setattr(self, name, torch.cat([getattr(self, name), getattr(other, name)]))

    def _finish(self, scores: Tensor, ends: Tensor, origins: Tensor) -> None:
        """Count the candidates that end, and store the best of them where it beats all earlier ones."""
        # No more than ``beam`` finished hypotheses count, and candidates come in descending order.
        ends = ends & (self._finished[:, None] + ends.cumsum(1) <= self._width)
        self._finished += ends.sum(1)
        value, place = scores[:, : ends.size(1)].masked_fill(~ends, -math.inf).max(1)
        if self._penalty is not None:
            value = value / (self.step + 1) ** self._penalty
        best = self._best.index_select(0, self.sentences)
        better = (value > best).nonzero().view(-1)
        if better.numel():
            row = origins[better, place[better]]
            improved = self.sentences[better]
            self._best[improved] = value[better]
            self._found.append((improved, self.tokens[row, 1:]))

    def _continue(self, scores: Tensor, tokens: Tensor, origins: Tensor, ends: Tensor) -> Tensor:
        """Continue with the best candidates that do not end; rows that lack one are blocked from ending next time."""
        place = torch.arange(ends.size(1), device=ends.device)
        rank, chosen = (ends * ends.size(1) + place).topk(self._width, largest=False)
        self._blocked = rank >= ends.size(1)
        order = origins.gather(1, chosen).view(-1)
        self.scores = scores.gather(1, chosen)
        self.tokens = torch.cat([self.tokens[order], tokens.gather(1, chosen).view(-1, 1)], 1)
        self.beam = self._width
        self.step += 1
        return order
