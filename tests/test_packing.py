"""How many rows a batch has, and what happens when memory runs out."""

import pytest
import torch

from fairseq_headprune.evaluation.packing import Packer, fitting_rows


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
    fitting = fitting_rows(tiny_model, torch.device("cpu"), 5, lambda length: 200)
    assert fitting(3) == fitting(1000) > 100
