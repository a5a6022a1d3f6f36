"""The gated module against fairseq's own: teacher-forced, and step by step with caches, beams and reordering."""

import pytest
import torch
from attention_parts import CAUSAL, INF, PAD, B, D, H, S, T, close, gated, inputs, stock


def agrees(module, *args, real=slice(None), **call):
    """Whether a gated copy gives the stock module's outputs and weights at the real (target, batch) positions."""
    expected, expected_weights = module(*args, **call)
    found, weights = gated(module)(*args, **call)
    same = close(found[real], expected[real]) and bool(torch.isfinite(found).all())
    if weights is None or expected_weights is None:
        return same and weights is expected_weights
    return same and close(weights.transpose(0, 1)[real], expected_weights.transpose(0, 1)[real])


@pytest.mark.parametrize("pad", [None, PAD[:, :T]])
@pytest.mark.parametrize("mask", [None, CAUSAL, torch.randn(T, T, generator=torch.Generator().manual_seed(5))])
@pytest.mark.parametrize("need", [False, True])
def test_self_attention_equals_stock(pad, mask, need):
    (x,) = inputs((T, B, D))
    # Sentence 2 is padded on the left: causally its first rows attend nowhere (stock: NaN there, or torch's 0).
    real = torch.ones(T, B, dtype=torch.bool) if pad is None or mask is not CAUSAL else ~pad.T
    call = {"key_padding_mask": pad, "attn_mask": mask, "need_weights": need}
    assert agrees(stock(self_attention=True), x, x, x, real=real, **call)


@pytest.mark.parametrize("need", [False, True])
@pytest.mark.parametrize("kdim", [None, 10])
def test_encoder_decoder_attention_equals_stock(need, kdim):
    module = stock(kdim=kdim, vdim=kdim, encoder_decoder_attention=True)
    x, source = inputs((T, B, D), (S, B, kdim or D))
    assert agrees(module, x, source, source, key_padding_mask=PAD, static_kv=True, need_weights=need)


def test_keys_and_values_of_other_widths_equal_stock():
    assert agrees(stock(kdim=10, vdim=6), *inputs((T, B, D), (S, B, 10), (S, B, 6)), key_padding_mask=PAD)


def test_without_bias_equals_the_slow_path_of_stock():
    module = stock(bias=False, self_attention=True)
    module._set_skip_embed_dim_check()  # stock's fast path concatenates the missing biases and crashes
    (x,) = inputs((T, B, D))
    expected, _ = module(x, x, x, key_padding_mask=PAD[:, :T], attn_mask=torch.zeros(T, T))
    assert close(gated(module)(x, x, x, key_padding_mask=PAD[:, :T], need_weights=False)[0], expected)


@pytest.mark.parametrize("extra", [["add_bias_kv"], ["add_zero_attn"], ["add_bias_kv", "add_zero_attn"]])
@pytest.mark.parametrize("mask", [None, CAUSAL, CAUSAL < 0])
def test_extra_keys_equal_stock(extra, mask):
    module = stock(self_attention=True, **dict.fromkeys(extra, True))
    (x,) = inputs((T, B, D))
    call = {"key_padding_mask": PAD[:, :T], "attn_mask": mask}
    assert agrees(module, x, x, x, **call)
    assert gated(module)(x, x, x, **call)[1].shape == (B, T, T + len(extra))
    assert close(gated(module)(x, x, x, **call, need_weights=False)[0], module(x, x, x, **call)[0])


def parts(path):
    """(module, arguments, keyword arguments, number of keys) of the ways a decoder or encoder calls attention."""
    x, source = inputs((T, B, D), (S, B, D))
    if path == "enc_dec":
        call = {"key_padding_mask": PAD, "static_kv": True}
        return stock(encoder_decoder_attention=True), (x, source, source), call, S
    call = {"self": {"key_padding_mask": PAD[:, :T]}, "causal": {"attn_mask": CAUSAL}}
    return stock(self_attention=True), (x, x, x), {**call, "incremental": {"incremental_state": {}}}[path], T


@pytest.mark.parametrize("path", ["self", "causal", "incremental", "enc_dec"])
def test_weights_per_head_on_every_path(path):
    module, args, keys, length = parts(path)
    attention = gated(module)
    fresh = lambda: {k: {} if k == "incremental_state" else v for k, v in keys.items()}  # noqa: E731
    output, weights = attention(*args, **fresh(), need_head_weights=True, need_weights=False)
    assert weights.shape == (H, B, T, length)  # B != H on purpose: (3, ...) would be the batch
    assert close(weights.sum(-1), torch.ones(H, B, T))
    plain, averaged = attention(*args, **fresh(), need_weights=True)
    assert close(weights.mean(0), averaged) and torch.equal(plain, output)
    assert close(attention(*args, **fresh(), need_weights=False)[0], output)
    module._set_skip_embed_dim_check()  # stock's slow path does honour need_head_weights
    assert close(module(*args, **fresh(), need_head_weights=True)[1], weights)


@pytest.mark.parametrize("path", ["self", "causal", "enc_dec"])
def test_scores_before_the_softmax_equal_the_slow_path_of_stock(path):
    module, args, keys, _ = parts(path)
    module._set_skip_embed_dim_check()
    expected, expected_values = module(*args, **keys, before_softmax=True)
    scores, values = gated(module)(*args, **keys, before_softmax=True)
    assert close(scores, expected) and close(values, expected_values)


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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_does_not_depend_on_the_layout_of_the_input(dtype):
    # An encoder's first layer gets a view, (batch, time, d) transposed; where masks are mixed, it gets a copy.
    module = gated(stock(self_attention=True)).to(dtype)
    (x,) = inputs((B, T, D))
    view = x.to(dtype).transpose(0, 1)
    found, _ = module(view, view, view, need_weights=False)
    copy = view.contiguous()
    assert not view.is_contiguous() and torch.equal(module(copy, copy, copy, need_weights=False)[0], found)
