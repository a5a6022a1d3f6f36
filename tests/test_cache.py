"""The cache of a beam search, whose hypotheses share one list of keys, against one list for each hypothesis."""

import math

import pytest
import tiny
import torch

from fairseq_headprune.modules.attach import find_gates
from fairseq_headprune.modules.cache import BeamCache

#: no encoder output to attend to
NOBODY = torch.zeros(5, 0, dtype=torch.bool)


@pytest.fixture
def own():
    """Self-attention of a decoder layer: width 64."""
    return find_gates(tiny.make_model()).modules["dec_self"][0]


@pytest.fixture
def cross():
    return find_gates(tiny.make_model()).modules["enc_dec"][0]


def random_steps(beam, count, seed=3):
    """Yield for each step the queries, which sentences remain, and what each hypothesis continues."""
    generator = torch.Generator().manual_seed(seed)
    width = 1
    for number in range(11):
        keep = torch.arange(count) if number % 4 != 2 else torch.arange(1, count)
        source = torch.randint(0, width, (keep.numel(), beam), generator=generator) + width * keep[:, None]
        yield torch.randn(count * width, 64, generator=generator), width, keep, source.view(-1)
        count, width = keep.numel(), beam


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("beam", [1, 3])
@torch.no_grad()
def test_self_attention_is_that_of_each_hypothesis_alone(own, beam, held):
    # Source: the module itself on the whole sequence of each hypothesis, without a cache. Held, the tensors of keys are
    # the same until a sentence is dropped or they are full.
    cache, before = BeamCache(NOBODY), torch.zeros(5, 0, 64)
    for query, width, keep, order in random_steps(beam, 5):
        sequences = torch.cat([before, query[:, None]], 1)
        cache.begin(width)
        found, weights = own(query[None], query[None], query[None], incremental_state=cache, need_weights=False)
        expected = own(*[sequences.transpose(0, 1)] * 3, need_weights=False)[0][-1]
        assert weights is None and found.shape == (1, *expected.shape)
        assert torch.allclose(found[0], expected, atol=1e-6)
        before = sequences[order]
        cache.follow(keep, order, beam)
        if held and cache.full:
            cache.hold(1000)
    assert before.shape == (2 * beam, 11, 64) and not cache


@pytest.mark.parametrize("padded", [False, True])
@torch.no_grad()
def test_encoder_decoder_attention_is_that_of_a_batch(cross, padded):
    # Source: the module itself with the outputs repeated; the second output is padding only, as of an empty sentence.
    encoded, outputs = torch.randn(6, 3, 64, generator=torch.Generator().manual_seed(1)), torch.tensor([2, 0, 1, 0])
    padding = torch.zeros(3, 6, dtype=torch.bool)
    padding[0, 4:] = padding[1] = True
    cache = BeamCache(padding[outputs] if padded else torch.zeros(4, 6, dtype=torch.bool))
    cache.encode(cross, encoded, outputs)
    for query, width, keep, order in random_steps(2, 4):
        cache.begin(width)
        found = cross(query[None], None, None, incremental_state=cache, need_weights=False, static_kv=True)[0]
        rows = outputs.repeat_interleave(width)
        keys, mask = encoded[:, rows], padding[rows] if padded else None
        expected = cross(query[None], keys, keys, key_padding_mask=mask, need_weights=False)[0]
        assert torch.allclose(found, expected, atol=1e-6)
        outputs = outputs[keep]
        cache.follow(keep, order, 2)
    assert outputs.tolist() == [0]


@torch.no_grad()
def test_masks_are_those_of_sentences(own):
    # Source: heads replaced by 0, one sentence at a time, with ``set_keep``.
    query, cache = torch.randn(2, 64), BeamCache(NOBODY)
    own.row_keep = torch.tensor([[False] + [True] * (own.num_heads - 1), [True] * own.num_heads])
    cache.begin(1)
    found = own(query[None], None, None, incremental_state=cache, need_weights=False)[0]
    own.row_keep = None
    for sentence, keep in enumerate(([0] + [1] * (own.num_heads - 1), None)):
        own.set_keep(keep)
        alone = query[None, sentence : sentence + 1]
        assert torch.allclose(found[:, sentence], own(alone, alone, alone, need_weights=False)[0][:, 0], atol=1e-6)


@torch.no_grad()
def test_a_hypothesis_that_is_not_finite_does_not_reach_the_others(own):
    # Source: the same search with a finite one in its place; both hypotheses of the last step continue the first one.
    found = []
    for second in (0.5, math.nan):
        cache, query = BeamCache(NOBODY), torch.full((2, 64), 0.1)
        query[1] = second
        for width, x in ((1, torch.full((1, 64), 0.2)), (2, query), (2, torch.full((2, 64), 0.3))):
            cache.begin(width)
            output = own(x[None], None, None, incremental_state=cache, need_weights=False)[0]
            if not bool(output.isfinite().all()):
                cache.repeat()
                output = own(x[None], None, None, incremental_state=cache, need_weights=False)[0]
                assert output[0, 1].isnan().all()
            cache.follow(torch.tensor([0]), torch.tensor([0, 0]), 2)
            found.append(output[0, 0])
    assert torch.equal(torch.stack(found[:3]), torch.stack(found[3:]))


def both(own, cross, cache, query, width, order):
    """Do a step of both attentions and return their outputs."""
    cache.begin(width)
    found = [module(query[None], None, None, incremental_state=cache, need_weights=False)[0] for module in (own, cross)]
    count = order.numel() // 2
    cache.follow(torch.arange(count), order, 2)
    return torch.cat(found)


@torch.no_grad()
def test_parts_of_searches_attend_together_as_each_alone(own, cross):
    # Source: each part alone. One has 6 source keys, padding and an empty sentence, the other 12 and no padding.
    generator, parts = torch.Generator().manual_seed(5), []
    for length in (6, 12):
        padding = torch.zeros(3, length, dtype=torch.bool)
        if length == 6:
            padding[0, 4:] = padding[1] = True
        cache = BeamCache(padding, 1000)
        cache.encode(cross, torch.randn(length, 3, 64, generator=generator), torch.arange(3))
        for width in (1, 2, 2):
            order = torch.arange(3).repeat_interleave(2) * width
            both(own, cross, cache, torch.randn(3 * width, 64, generator=generator), width, order)
        cache.compact()
        for blocks, keys in ((cache._own, 5), (cache._encoded, -(-length // 8) * 8)):
            for tensors in blocks._of.values():
                assert [x.untyped_storage().nbytes() for x in tensors] == [3 * 64 * keys * 4] * 2
        parts.append(cache.part(torch.tensor([1, 2])))
    for first, second in ((0, 1), (1, 0)):
        alone = [parts[number].part(torch.arange(2)) for number in (first, second)]
        joined = parts[first].part(torch.arange(2))
        joined.join(parts[second])
        for swap in (0, 1) * 5:
            query = torch.randn(8, 64, generator=generator)
            order = torch.arange(8).view(4, 2).roll(swap, 1).view(-1)
            found = both(own, cross, joined, query, 2, order)
            expected = [
                both(own, cross, cache, query[4 * n : 4 * n + 4], 2, order[:4]) for n, cache in enumerate(alone)
            ]
            assert torch.allclose(found, torch.cat(expected, 1), atol=1e-6)
