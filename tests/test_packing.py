"""How many rows a batch has, and what happens when memory runs out."""

import pytest
import tiny
import torch

from fairseq_headprune.evaluation.memory import SHARE, Card
from fairseq_headprune.evaluation.packing import Packer, fitting_rows
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
