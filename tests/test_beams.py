"""Beam search in tensors: hand-made steps; whole searches are compared with fairseq's in test_many_masks.py."""

import math

import pytest
import torch

from fairseq_headprune.evaluation.beams import Beams, _grouped_top_values

PAD, END = 1, 2
NEVER = -math.inf


@pytest.mark.parametrize("length", [5, 160, 1000, 8003])
def test_top_values_are_torch_topks(length):
    # Source: torch.topk; no two values are alike.
    rows = torch.stack([torch.randperm(length, generator=torch.Generator().manual_seed(i)) for i in range(7)]).float()
    count = min(4, length)
    values, places = _grouped_top_values(rows, count)
    assert torch.equal(values, rows.topk(count)[0]) and torch.equal(places, rows.topk(count)[1])


def test_impossible_values_come_last():
    rows = torch.full((1, 1000), NEVER)
    rows[0, [3, 999]] = torch.tensor([-2.0, -1.0])
    values, places = _grouped_top_values(rows, 4)
    assert values.tolist() == [[-1.0, -2.0, NEVER, NEVER]] and places[0, :2].tolist() == [999, 3]


def step(beams, *rows, stop=None):
    """Advance with {token: log-probability} for each hypothesis."""
    probabilities = torch.full((len(rows), 12), NEVER)
    for row, given in zip(probabilities, rows, strict=True):
        row[list(given)] = torch.tensor(list(given.values()))
    return beams.advance(*beams.candidates(probabilities, slice(None)), stop)


def test_the_best_hypothesis_is_that_of_the_mean():
    # Source: by hand. "5 end" has -2.0 / 2, "4 6 end" -2.4 / 3, "4 end" -2.5 / 2.
    beams = Beams(torch.tensor([10]), END, END, beam=2, length_penalty=1.0)
    keep, order = step(beams, {4: -1.0, 5: -1.5})
    assert (keep.tolist(), order.tolist(), beams.tokens.tolist()) == ([0], [0, 0], [[END, 4], [END, 5]])
    keep, order = step(beams, {END: -1.5, 6: -0.7}, {END: -0.5, 7: -2.0})
    # One has ended: "5" by -2.0 is among the two best, "4" by -2.5 is not.
    assert (keep.tolist(), order.tolist()) == ([0], [0, 1])
    assert beams.tokens.tolist() == [[END, 4, 6], [END, 5, 7]]
    keep, _ = step(beams, {END: -0.7, 8: -9.0}, {END: -9.0, 8: -9.5})
    assert keep.tolist() == [] and beams.best(PAD).tolist() == [[4, 6, END]]


def test_without_normalisation_the_sum_counts():
    # Source: by hand: -2.0 against -2.4.
    beams = Beams(torch.tensor([10]), END, END, beam=2, length_penalty=None)
    step(beams, {4: -1.0, 5: -1.5})
    step(beams, {END: -1.5, 6: -0.7}, {END: -0.5, 7: -2.0})
    step(beams, {END: -0.7, 8: -9.0}, {END: -9.0, 8: -9.5})
    assert beams.best(PAD).tolist() == [[5, END]]


def test_finished_sentences_leave_and_limits_are_their_own():
    # Source: by hand: the second sentence may have one token, the first ends when two hypotheses have.
    beams = Beams(torch.tensor([5, 1, 5]), END, END, beam=2, length_penalty=1.0)
    keep, order = step(beams, *[{4: -1.0, 5: -2.0}] * 3)
    assert keep.tolist() == [0, 1, 2] and order.tolist() == [0, 0, 1, 1, 2, 2]
    assert beams.at_limit().tolist() == [False, True, False]
    ending, going = {END: -0.1, 6: -9.0}, {6: -0.1, END: -9.0, 7: -0.2}
    keep, order = step(beams, ending, ending, {END: -1.0}, {END: -1.0}, going, going)
    assert keep.tolist() == [2] and order.tolist() == [4, 4] and beams.sentences.tolist() == [2]
    assert beams.best(PAD).tolist() == [[4, END], [4, END], [PAD, PAD]]


def test_a_sentence_can_be_stopped():
    beams = Beams(torch.tensor([5, 5]), END, END, beam=1, length_penalty=1.0)
    keep, _ = step(beams, {END: -1.0}, {4: -1.0, 5: -2.0}, stop=torch.tensor([True, False]))
    assert keep.tolist() == [1] and beams.best(PAD).tolist() == [[END], [PAD]]


def test_shorter_hypotheses_are_padded():
    # Source: by hand: the first sentence ends at once, the second after a token.
    beams = Beams(torch.tensor([5, 5]), END, END, beam=1, length_penalty=1.0)
    step(beams, {END: -1.0}, {4: -1.0})
    step(beams, {END: -1.0})
    assert beams.best(PAD).tolist() == [[END, PAD], [4, END]]


def test_ties_are_broken_as_by_topk_over_all_continuations():
    # Source: torch.topk over the sums of both hypotheses, as in fairseq's BeamSearch.
    beams = Beams(torch.tensor([5]), END, END, beam=2, length_penalty=1.0)
    step(beams, {4: -1.0, 5: -1.0})
    generator = torch.Generator().manual_seed(1)
    rows = -torch.randint(1, 4, (2, 500), generator=generator).float()
    place = (rows + beams.scores.view(-1, 1)).view(1, -1).topk(4)[1]
    _, tokens, hypotheses = beams.candidates(rows.clone(), slice(None))
    assert torch.equal(tokens, place % 500) and torch.equal(hypotheses, place // 500)
