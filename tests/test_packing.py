"""Rows of a batch and beam search in tensors; whole searches are compared with fairseq's in test_many_masks.py."""

import math

import pytest
import tiny
import torch

from fairseq_headprune.evaluation.beams import Beams, _grouped_top_values
from fairseq_headprune.evaluation.memory import SHARE, Card, Packer, fitting_rows
from fairseq_headprune.modules.attach import find_gates
from fairseq_headprune.modules.shrink import shrink
from fairseq_headprune.parts import Mask


def collect(packer, sentences, lengths, masks, memory=10**9):
    """Run and return the batches as (sentences, masks); those with more pairs than the memory takes fail."""
    batches = []

    def work(sentences, masks):
        if len(sentences) * len(masks) > memory:
            raise torch.OutOfMemoryError("too much")
        batches.append((list(sentences), list(masks)))

    packer.run(sentences, lengths, masks, work)
    return batches


def test_batches_are_filled_with_sentences_of_similar_length():
    # Source: by hand: 24 rows are 4 sentences x 2 masks x beam 3; the longest come first.
    found = collect(Packer(lambda length: 24, beam=3), [10, 11, 12, 13, 14], [4, 9, 5, 7, 6], masks=2)
    assert found == [([11, 13, 14, 12], [0, 1]), ([10], [0, 1])]


def test_rows_depend_on_the_longest_sentence():
    # Source: by hand: 12 / length sentences.
    found = collect(Packer(lambda length: 12 // length, beam=1), list(range(6)), [6, 6, 6, 3, 3, 3], masks=1)
    assert found == [([2, 1], [0]), ([0, 5], [0]), ([4, 3], [0])]


def test_a_sentence_under_all_masks_is_a_batch_even_if_it_is_too_much():
    assert collect(Packer(lambda length: 1, beam=5), [0, 1], [1, 1], masks=3) == [([1], [0, 1, 2]), ([0], [0, 1, 2])]


def test_out_of_memory_halves_the_batch_and_goes_on():
    # Source: by hand: 8 sentences x 1 mask; 3 fit, so 8 -> 4 + 4 -> 2 + 2 each.
    packer = Packer(lambda length: 8, beam=1)
    found = collect(packer, list(range(12)), [1] * 12, masks=1, memory=3)
    assert [len(sentences) for sentences, _ in found] == [2] * 6
    assert sorted(sentence for sentences, _ in found for sentence in sentences) == list(range(12))
    assert packer.rows == 2


def test_out_of_memory_with_one_sentence_divides_the_masks():
    found = collect(Packer(lambda length: 100, beam=1), [7], [3], masks=5, memory=2)
    assert found == [([7], [0, 1]), ([7], [2]), ([7], [3, 4])]
    with pytest.raises(torch.OutOfMemoryError):
        collect(Packer(lambda length: 100, beam=1), [7], [3], masks=1, memory=0)


def test_rows_on_a_cpu_do_not_depend_on_lengths(tiny_model):
    fitting = fitting_rows(tiny_model, None, 5, lambda length: 200)
    assert fitting(3) == fitting(1000) > 100


def test_rows_on_cuda_follow_from_the_free_memory_where_the_first_block_is_gone_too(monkeypatch):
    free = {"mem_get_info": (10**7, 10**8), "memory_reserved": 3000, "memory_allocated": 1000}
    for name, value in free.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, value=value: value)
    model = tiny.make_model()
    gates = find_gates(model)
    mask = Mask({**gates.full().rows, "dec_ffn": [[0], [1] * 10 + [0] * 54]})
    shrink(gates, gates.layout().under(mask))
    # Source: by hand: 2 layers and one more, width 64, 2 x 8 + 10 positions and 8 / 5 source keys a hypothesis;
    # 10 units at most, 20 activations of width 64; 4 bytes a number.
    size = 4 * (2 * 3 * 64 * (26 + 8 / 5) + 2 * 10 + 20 * 64)
    fitting = fitting_rows(model, Card(torch.device("cuda")), 5, lambda length: 200)
    assert fitting(8) == int(SHARE * (10**7 + 2000) / size) < 10**3
    # More than 65,536 rows make nothing faster.
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10**13, 10**13))
    assert fitting(8) == 2**16


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
