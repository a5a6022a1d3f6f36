"""The gated module step by step: caches, beams and reordering, against the full pass and stock."""

import pytest
import torch
from attention_parts import INF, PAD, B, D, H, S, T, close, gated, inputs, stock


@pytest.mark.parametrize("chunk", [1, 3])
@pytest.mark.parametrize("extra", [{}, {"add_bias_kv": True}, {"add_zero_attn": True}, {"bias": False}])
def test_step_by_step_equals_the_full_pass(chunk, extra):
    attention = gated(stock(self_attention=True, **extra))
    attention.set_keep([1, 0, 1, 1])
    (x,) = inputs((7, B, D))
    full, _ = attention(x, x, x, attn_mask=torch.full((7, 7), INF).triu(1))
    state, steps = {}, []
    for start in range(0, 7, chunk):
        part = x[start : start + chunk]
        n, past = len(part), min(start, 7)
        mask = torch.cat([torch.zeros(n, past), torch.full((n, n), INF).triu(1)], dim=1)
        steps.append(attention(part, part, part, incremental_state=state, attn_mask=mask)[0])
    assert close(torch.cat(steps), full)
    assert attention._get_input_buffer(state)["prev_key"].shape == (B, H, 7, D // H)


def test_padding_in_the_cache_equals_stock():
    module = stock(self_attention=True)
    pad = torch.zeros(B, 4, dtype=torch.bool)
    pad[1, :2] = True
    (x,) = inputs((4, B, D))
    mine, theirs, attention = {}, {}, gated(module)
    for t in range(4):
        step = {"key_padding_mask": pad[:, t : t + 1] if pad[:, t].any() else None}
        expected, _ = module(x[t : t + 1], x[t : t + 1], x[t : t + 1], incremental_state=theirs, **step)
        found, _ = attention(x[t : t + 1], x[t : t + 1], x[t : t + 1], incremental_state=mine, **step)
        real = [0, 2] if t < 2 else [0, 1, 2]  # sentence 1 has seen only padding before step 2
        assert close(found[:, real], expected[:, real]) and torch.isfinite(found).all()


def test_a_static_cache_is_used_and_projected_once():
    attention = gated(stock(encoder_decoder_attention=True))
    x, source = inputs((T, B, D), (S, B, D))
    whole, _ = attention(x, source, source, key_padding_mask=PAD, static_kv=True)
    calls, state = [], {}
    attention.k_proj.register_forward_hook(lambda *_: calls.append(1))
    steps = []
    for t in range(T):
        key = source if t == 0 else None
        steps.append(
            attention(x[t : t + 1], key, key, key_padding_mask=PAD, static_kv=True, incremental_state=state)[0]
        )
    assert close(torch.cat(steps), whole) and len(calls) == 1


@pytest.mark.parametrize("order", [[1, 0], [0, 0, 1]])
@pytest.mark.parametrize("kind", ["self_attention", "encoder_decoder_attention"])
def test_reordered_caches_continue_like_the_swapped_prefixes(order, kind):
    attention = gated(stock(**{kind: True}))
    attention.set_keep([0, 1, 1, 0])
    x, source = inputs((4, 2, D), (S, 2, D))
    if order == [1, 0]:
        # fairseq's contract: an order as long as the cache moves beams within a sentence, so their source is the same.
        source[:, 1] = source[:, 0]
    order = torch.tensor(order)

    def run(x, source, steps, state):
        call = {"incremental_state": state, "static_kv": kind != "self_attention"}
        return [attention(x[t : t + 1], source, source, **call)[0] for t in steps][-1]

    state = {}
    run(x, source, range(3), state)
    attention.reorder_incremental_state(state, order)
    found = run(x[:, order], source[:, order], [3], state)
    assert close(found, run(x[:, order], source[:, order], range(4), {}))  # source: decoded afresh


@pytest.mark.parametrize("need", [{"need_weights": False}, {"need_head_weights": True}, {"before_softmax": True}])
def test_one_source_row_serves_all_beams(need):
    # fairseq's set_beam_size: keys and values of 3 sentences, queries of 3 x 2 beams.
    module = stock(encoder_decoder_attention=True)
    module.set_beam_size(2)
    x, source = inputs((2, 2 * B, D), (S, B, D))
    wide, wide_pad = source.repeat_interleave(2, dim=1), PAD.repeat_interleave(2, dim=0)
    attention, mine, theirs = gated(module), {}, {}
    for t in range(2):
        # Step 0 is given one row a beam and cuts down to one a sentence, step 1 reads the cache.
        call = {"key_padding_mask": wide_pad, "static_kv": True, **need}
        expected, expected_weights = module(x[t : t + 1], wide, wide, incremental_state=theirs, **call)
        found, weights = attention(x[t : t + 1], wide, wide, incremental_state=mine, **call)
        assert close(found, expected)
        assert weights is None if expected_weights is None else close(weights, expected_weights)
    assert attention._get_input_buffer(mine)["prev_key"].size(0) == B


def test_beams_with_several_positions_and_gates_equal_repeated_keys():
    attention = gated(stock(encoder_decoder_attention=True))
    x, source = inputs((T, 2 * B, D), (S, B, D))
    attention.head_gate = inputs((2 * B, H))[0]
    mask = inputs((T, S))[0]
    found, weights = attention(
        x, source, source, key_padding_mask=PAD, static_kv=True, attn_mask=mask, need_head_weights=True
    )
    wide, wide_pad = source.repeat_interleave(2, dim=1), PAD.repeat_interleave(2, dim=0)
    expected, expected_weights = attention(
        x, wide, wide, wide_pad, static_kv=True, attn_mask=mask, need_head_weights=True
    )
    assert close(found, expected) and close(weights, expected_weights)


def test_a_beam_reorder_keeps_each_sentences_source():
    module = stock(encoder_decoder_attention=True)
    module.set_beam_size(2)
    attention = gated(module)
    x, source = inputs((2, 4, D), (S, 2, D))
    wide = source.repeat_interleave(2, dim=1)
    state = {}
    attention(x[:1], wide, wide, static_kv=True, incremental_state=state)
    order = torch.tensor([3, 2])  # sentence 0 is finished: the beams of sentence 1 remain, swapped
    attention.reorder_incremental_state(state, order)
    found, _ = attention(x[1:, order], wide[:, order], wide[:, order], static_kv=True, incremental_state=state)
    attention.set_beam_size(1)
    expected, _ = attention(x[1:, order], wide[:, order], wide[:, order], static_kv=True)
    assert close(found, expected)
