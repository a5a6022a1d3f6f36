"""Batched beam search with the rules of fairseq's ``SequenceGenerator`` and no Python work per hypothesis.

All operations are on tensors of the whole batch: no Python object per hypothesis, and only the best finished hypothesis
of each sentence is kept. Which hypotheses finish, continue and win is decided as in fairseq.
"""

import math
from typing import Optional

import torch
from torch import Tensor

#: Size of the groups in the first round of :func:`_grouped_top_values`.
_GROUP = 16


def top_values(rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the largest values of each row, in descending order, and their indices: (rows, count) each.

    ``torch.topk`` reads long rows many times over on CUDA; :func:`_grouped_top_values` reads them once.
    """
    return _grouped_top_values(rows, count) if rows.is_cuda else rows.topk(count)


def _grouped_top_values(rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Like ``torch.topk``, except for the order of ties: search only the groups with the largest maxima."""
    length = rows.size(1)
    groups = length // _GROUP
    if groups <= 2 * count:
        return rows.topk(count)
    head = rows[:, : groups * _GROUP].unflatten(1, (_GROUP, groups))
    best = head.amax(1).topk(count)[1]
    members = head.gather(2, best[:, None].expand(-1, _GROUP, -1)).flatten(1)
    values, place = torch.cat([members, rows[:, groups * _GROUP :]], 1).topk(count)
    inside = place.clamp(max=_GROUP * count - 1)
    place = torch.where(
        place < _GROUP * count,
        torch.div(inside, count, rounding_mode="floor") * groups + best.gather(1, inside % count),
        place - _GROUP * count + groups * _GROUP,
    )
    return values, place


class Beams:
    """The state of a beam search over some sentences; finished sentences are dropped.

    The order of ties is that of ``torch.topk`` over all continuations of a sentence, as in fairseq.

    Attributes:
        sentences: (n,) the numbers of the sentences that are not finished, ascending.
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

    def candidates(self, probabilities: Tensor, sentences: slice) -> tuple[Tensor, Tensor, Tensor]:
        """Return the best continuations of some sentences, enough that ``beam`` remain when others end in this step.

        Args:
            probabilities: (sentences * beam, vocabulary) log-probabilities of the next token; changed in place.

        Returns:
            Scores in descending order, the tokens, and which of the sentence's hypotheses each continues:
            (sentences, k) each.
        """
        vocabulary = probabilities.size(1)
        totals = probabilities.add_(self.scores[sentences].view(-1, 1)).view(-1, self.beam * vocabulary)
        scores, place = top_values(totals, min(2 * self._width, totals.size(1) - 1))
        return scores, place % vocabulary, torch.div(place, vocabulary, rounding_mode="floor")

    def at_limit(self) -> Tensor:
        """Return for each sentence whether its hypotheses have to end now: bool (n,)."""
        return self._limits <= self.step

    def advance(
        self, scores: Tensor, tokens: Tensor, hypotheses: Tensor, stop: Optional[Tensor] = None
    ) -> tuple[Tensor, Tensor]:
        """Choose the next token of every hypothesis, and drop finished sentences.

        Args:
            scores, tokens, hypotheses: what :meth:`candidates` found, of all n sentences.
            stop: None or bool (n,): sentences that are finished after this step in any case.

        Returns:
            keep: indices of the sentences that are not finished, ascending.
            order: (len(keep) * beam,) the index, over all sentences, of the hypothesis that each new one continues.
        """
        origins = hypotheses + self.beam * torch.arange(len(hypotheses), device=hypotheses.device)[:, None]
        ends = tokens.eq(self._end) & scores.ne(-math.inf)
        ends[:, : self._width] &= ~self._blocked
        self._finish(scores, ends[:, : self._width], origins)
        over = (self._finished >= self._width) | self.at_limit()
        keep = (~(over if stop is None else over | stop)).nonzero().view(-1)
        ends[:, : self._width] |= self._blocked
        return keep, self._continue(keep, scores[keep], tokens[keep], origins[keep], ends[keep])

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

    def _continue(self, keep: Tensor, scores: Tensor, tokens: Tensor, origins: Tensor, ends: Tensor) -> Tensor:
        """Continue with the best candidates that do not end; rows that lack one are blocked from ending next time."""
        place = torch.arange(ends.size(1), device=ends.device)
        rank, chosen = (ends * ends.size(1) + place).topk(self._width, largest=False)
        self._blocked = rank >= ends.size(1)
        order = origins.gather(1, chosen).view(-1)
        self.scores = scores.gather(1, chosen)
        self.tokens = torch.cat([self.tokens[order], tokens.gather(1, chosen).view(-1, 1)], 1)
        self.sentences, self._limits, self._finished = (x[keep] for x in (self.sentences, self._limits, self._finished))
        self.beam = self._width
        self.step += 1
        return order
