"""Rows of a batch and beam search in tensors; whole searches are compared with fairseq's in test_many_masks.py."""

import math

import pytest
import tiny
import torch

from fairseq_headprune.evaluation.beams import Beams, _at_once, _grouped
from fairseq_headprune.evaluation.memory import SHARE, Card, Packer, fitting
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


def rows(count):
    """So many hypotheses fit into a batch."""
    return lambda lengths, of_each: count // of_each


def test_batches_are_of_sentences_of_similar_length():
    # Source: by hand: 24 rows are 4 sentences x 2 masks x beam 3: two batches; the longest come first.
    found = collect(Packer(rows(24), beam=3), [10, 11, 12, 13, 14], [4, 9, 5, 7, 6], masks=2)
    assert found == [([11, 13, 14], [0, 1]), ([12, 10], [0, 1])]


def test_rows_depend_on_the_lengths():
    # Source: by hand: 12 / length sentences, so three batches.
    packer = Packer(lambda lengths, of_each: 12 // lengths[0], beam=1)
    assert collect(packer, list(range(6)), [6, 6, 6, 3, 3, 3], masks=1) == [([2, 1], [0]), ([0, 5], [0]), ([4, 3], [0])]


def test_batches_are_as_equal_as_those_that_fit_are_few():
    # Source: by hand: 3 long ones or 9 short ones fit: 3 batches, of 4 sentences each if the first one had room.
    packer = Packer(lambda lengths, of_each: 3 if lengths[0] == 6 else 9, beam=1)
    found = collect(packer, list(range(14)), [6] * 5 + [2] * 9, masks=1)
    assert [len(sentences) for sentences, _ in found] == [3, 3, 8]
    assert [len(sentences) for sentences, _ in collect(packer, list(range(10)), [2] * 10, masks=1)] == [5, 5]


def test_a_sentence_under_all_masks_is_a_batch_even_if_it_is_too_much():
    assert collect(Packer(rows(1), beam=5), [0, 1], [1, 1], masks=3) == [([1], [0, 1, 2]), ([0], [0, 1, 2])]


def test_out_of_memory_halves_the_batch_and_goes_on():
    # Source: by hand: 12 sentences x 1 mask in two batches; 3 fit, so 6 -> 3 + 3, and then 3 at a time.
    packer = Packer(rows(8), beam=1)
    found = collect(packer, list(range(12)), [1] * 12, masks=1, memory=3)
    assert [len(sentences) for sentences, _ in found] == [3] * 4
    assert sorted(sentence for sentences, _ in found for sentence in sentences) == list(range(12))
    assert packer.rows == 3


def test_out_of_memory_with_one_sentence_divides_the_masks():
    found = collect(Packer(rows(100), beam=1), [7], [3], masks=5, memory=2)
    assert found == [([7], [0, 1]), ([7], [2]), ([7], [3, 4])]
    with pytest.raises(torch.OutOfMemoryError):
        collect(Packer(rows(100), beam=1), [7], [3], masks=1, memory=0)


def test_rows_on_a_cpu_do_not_depend_on_lengths(tiny_model):
    fits = fitting(tiny_model, None, 5, lambda length: 200)
    assert fits([3], 5) == fits([1000], 5) == 2 * fits([9], 10) > 100


def test_sentences_on_cuda_follow_from_the_free_memory_where_the_first_block_is_gone_too(monkeypatch):
    free = {"mem_get_info": (10**7, 10**8), "memory_reserved": 3000, "memory_allocated": 1000}
    for name, value in free.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, value=value: value)
    model = tiny.make_model()
    gates = find_gates(model)
    mask = Mask({**gates.full().rows, "dec_ffn": [[0], [1] * 10 + [0] * 54]})
    shrink(gates, gates.layout().under(mask))
    # Source: by hand: keys and values of 2 layers and one half more, width 64, 1.25 x 8 + 5 positions and 8 / 5 source
    # keys a hypothesis; 10 units at most, 20 activations of width 64; 4 bytes a number.
    size = 4 * (5 * 64 * (15 + 8 / 5) + 2 * 10 + 20 * 64)
    fits = fitting(model, Card(torch.device("cuda")), 5, lambda length: 200)
    share = SHARE * (10**7 + 2000)
    assert fits([8] * 1000, 5) == int(share / size / 5) < 10**2
    assert fits([8] * 3, 5) == 3
    # Limits are kept: with 9 positions each.
    limited = fitting(model, Card(torch.device("cuda")), 5, lambda length: 9)
    assert limited([8] * 1000, 5) == int(share / 5 / 4 / (5 * 64 * (9 + 8 / 5) + 2 * 10 + 20 * 64))
    # The translation of one long sentence takes more than all others that fit; all have its 200 / 5 source keys.
    fits = fitting(model, Card(torch.device("cuda")), 5, lambda length: 1000)
    fixed, found = 5 * 64 * 200 / 5 + 2 * 10 + 20 * 64, fits([200] + [8] * 1000, 5)
    most = [4 * 5 * (count * fixed + 5 * 64 * max(255, 15 * count)) for count in (found, found + 1)]
    assert most[0] <= share < most[1] and found < 17
    # More than 262,144 rows make nothing faster.
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10**13, 10**13))
    assert fits([8] * 10**6, 4) == 2**16


PAD, END = 1, 2
NEVER = -math.inf


@pytest.mark.parametrize("beam, length", [(1, 5), (1, 160), (3, 16), (3, 1000), (5, 8003), (2, 176)])
def test_best_continuations_in_groups_are_those_of_one_search(beam, length):
    # Source: torch.topk over all sums; no two are alike.
    generator = torch.Generator().manual_seed(length)
    probabilities = torch.stack([torch.randperm(length, generator=generator) for _ in range(7 * beam)]).float()
    scores = torch.arange(beam).expand(7, beam) / 16
    totals, count = probabilities.view(7, beam, length) + scores[:, :, None], min(10, beam * length - 1)
    for way in (_at_once, _grouped):
        values, places = way(probabilities.clone(), scores, count)
        expected = totals.flatten(1).topk(count)
        assert torch.equal(values, expected[0]) and torch.equal(places, expected[1])


@pytest.mark.parametrize("way", [_at_once, _grouped])
def test_what_is_impossible_or_no_number_comes_last(way):
    # Source: by hand: the second hypothesis is not finite; the first has two tokens, with its score of -1.
    probabilities = torch.full((2, 1000), NEVER)
    probabilities[0, [3, 999]] = torch.tensor([-2.0, -1.0])
    probabilities[1] = math.nan
    values, places = way(probabilities, torch.tensor([[-1.0, 0.0]]), 4)
    assert values.tolist() == [[-2.0, -3.0, NEVER, NEVER]] and places[0, :2].tolist() == [999, 3]


def step(beams, *rows, stop=None):
    """Advance with {token: log-probability} for each hypothesis."""
    probabilities = torch.full((len(rows), 12), NEVER)
    for row, given in zip(probabilities, rows, strict=True):
        row[list(given)] = torch.tensor(list(given.values()))
    return beams.advance(*beams.candidates(probabilities, beams.scores), stop)


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


def test_a_few_finished_sentences_stay_without_effect():
    # Source: by hand: one of ten is finished; with another one they are more than an eighth.
    beams = Beams(torch.tensor([1] + [9] * 9), END, END, beam=1, length_penalty=1.0)
    going = {4: -1.0}
    assert step(beams, *[going] * 10)[0].tolist() == list(range(10))
    keep, order = step(beams, {END: -1.0}, *[going] * 9)
    assert keep.tolist() == order.tolist() == beams.sentences.tolist() == list(range(10))
    # A better end comes too late, whether forced by the limit or not.
    keep, order = step(beams, {END: -0.1}, {END: -1.0}, *[going] * 8)
    assert keep.tolist() == order.tolist() == beams.sentences.tolist() == list(range(2, 10))
    assert beams.best(PAD)[:3].tolist() == [[4, END, PAD], [4, 4, END], [PAD] * 3]
    assert step(beams, *[{END: -1.0}] * 8)[0].tolist() == []


def test_a_sentence_can_be_stopped():
    beams = Beams(torch.tensor([5, 5]), END, END, beam=1, length_penalty=1.0)
    keep, _ = step(beams, {END: -1.0}, {4: -1.0, 5: -2.0}, stop=torch.tensor([True, False]))
    assert keep.tolist() == [1] and beams.best(PAD).tolist() == [[END], [PAD]]


def test_parts_of_searches_go_on_together_and_know_what_was_found():
    # Source: by hand. Of the second search only the last sentence goes on. In the joined one, the first sentence ends;
    # the second goes on to its limit, but is impossible.
    one, other = (Beams(torch.tensor([5] * count), END, END, 1, 1.0) for count in (2, 3))
    step(one, *[{4: -1.0}] * 2)
    step(one, *[{5: -0.2}] * 2)
    step(other, *[{6: -1.0}] * 3)
    step(other, {END: -0.1}, {END: -9.0}, {7: -0.2})
    assert other.sentences.tolist() == [2] and other.lost().tolist() == []
    joined = one.part(torch.tensor([1]))
    joined.join(other.part(torch.tensor([0])))
    assert joined.tokens.tolist() == [[END, 4, 5], [END, 6, 7]] and joined.sentences.tolist() == [0, 1]
    assert step(joined, {END: -0.1}, {8: -1.0})[0].tolist() == [1]
    assert step(joined, {END: NEVER, 9: NEVER})[0].tolist() == [0]
    assert step(joined, {9: -1.0})[0].tolist() == [0] and step(joined, {9: NEVER})[0].tolist() == []
    assert joined.best(PAD).tolist() == [[4, 5, END], [PAD] * 3] and joined.lost().tolist() == [1]
    # Parts are copies, and what ends later is worse: -11.2 / 3 against -2.0 / 2.
    assert one.tokens.tolist() == [[END, 4, 5]] * 2 and other.tokens.tolist() == [[END, 6, 7]]
    better = Beams(torch.tensor([5]), END, END, 2, 1.0)
    step(better, {4: -1.0, 5: -1.5})
    step(better, {END: -1.0, 6: -1.2}, {7: -3.0})
    part = better.part(torch.tensor([0]))
    step(part, {END: -9.0}, {END: -9.0})
    assert part.best(PAD).tolist() == [[PAD]] and part.lost().tolist() == []
    assert better.best(PAD).tolist() == [[4, END]]


def test_what_is_set_aside_is_done_at_the_end_or_when_it_is_a_batch():
    # Source: by hand: batches of 4 sentences under 2 masks, of which each leaves 3 rows: 9 are more than 8.
    done = []

    class Aside:
        rows = 0

        def taken(self, last):
            rows, self.rows = self.rows, 0 if last else 1
            return rows, lambda some: done.append((list(some), last))

    aside, packer = Aside(), Packer(rows(8), beam=1)
    packer.run(range(20), [1] * 20, 2, lambda *_: setattr(aside, "rows", aside.rows + 3), aside)
    # 3, 6, 9 and then 1 that is set aside again, and twice 3.
    assert done == [(list(range(9)), False), (list(range(7)), True)] and packer.rows == math.inf


def test_memory_for_what_was_set_aside_says_nothing_about_batches():
    # Source: by hand: 6 rows do not fit, 3 do.
    done = []

    class Aside:
        rows = 6

        def taken(self, last):
            self.rows = 0
            return 6, work

    def work(some):
        if len(some) > 3:
            raise torch.OutOfMemoryError("too much")
        done.append(list(some))

    packer = Packer(rows(8), beam=1)
    packer.run([0], [1], 1, lambda *_: None, Aside())
    assert done == [[0, 1, 2], [3, 4, 5]] and packer.rows == math.inf


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
    _, tokens, hypotheses = beams.candidates(rows.clone(), beams.scores)
    assert torch.equal(tokens, place % 500) and torch.equal(hypotheses, place // 500)
