"""The gated module against fairseq's own ``MultiheadAttention``, teacher-forced."""

import pytest
import torch
from attention_parts import CAUSAL, PAD, B, D, H, S, T, close, gated, inputs, stock


@pytest.mark.parametrize("pad", [None, PAD[:, :T]])
@pytest.mark.parametrize("mask", [None, CAUSAL, torch.randn(T, T, generator=torch.Generator().manual_seed(5))])
@pytest.mark.parametrize("need_weights", [False, True])
def test_self_attention_equals_stock(pad, mask, need_weights):
    module = stock(self_attention=True)
    (x,) = inputs((T, B, D))
    call = {"key_padding_mask": pad, "attn_mask": mask, "need_weights": need_weights}
    expected, expected_weights = module(x, x, x, **call)
    found, weights = gated(module)(x, x, x, **call)
    # Sentence 2 is padded on the left: causally its first rows attend nowhere (stock: NaN there, or torch's 0).
    real = torch.ones(T, B, dtype=torch.bool) if pad is None or mask is not CAUSAL else ~pad.T
    assert close(found[real], expected[real]) and torch.isfinite(found).all()
    assert (weights is None) == (expected_weights is None)
    if need_weights:
        assert close(weights.transpose(0, 1)[real], expected_weights.transpose(0, 1)[real])


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("kdim", [None, 10])
def test_encoder_decoder_attention_equals_stock(need_weights, kdim):
    module = stock(kdim=kdim, vdim=kdim, encoder_decoder_attention=True)
    x, source = inputs((T, B, D), (S, B, kdim or D))
    call = {"key_padding_mask": PAD, "static_kv": True, "need_weights": need_weights}
    expected, expected_weights = module(x, source, source, **call)
    found, weights = gated(module)(x, source, source, **call)
    assert close(found, expected)
    assert weights is None if not need_weights else close(weights, expected_weights)


def test_keys_and_values_of_other_widths_equal_stock():
    module = stock(kdim=10, vdim=6)
    x, key, value = inputs((T, B, D), (S, B, 10), (S, B, 6))
    expected, expected_weights = module(x, key, value, key_padding_mask=PAD)
    found, weights = gated(module)(x, key, value, key_padding_mask=PAD)
    assert close(found, expected) and close(weights, expected_weights)


def test_without_bias_equals_the_slow_path_of_stock():
    module = stock(bias=False, self_attention=True)
    module._set_skip_embed_dim_check()  # stock's fast path concatenates the missing biases and crashes
    (x,) = inputs((T, B, D))
    expected, _ = module(x, x, x, key_padding_mask=PAD[:, :T], attn_mask=torch.zeros(T, T))
    assert close(gated(module)(x, x, x, key_padding_mask=PAD[:, :T], need_weights=False)[0], expected)


@pytest.mark.parametrize(
    "extra", [{"add_bias_kv": True}, {"add_zero_attn": True}, {"add_bias_kv": True, "add_zero_attn": True}]
)
@pytest.mark.parametrize("mask", [None, CAUSAL, CAUSAL < 0])
def test_extra_keys_equal_stock(extra, mask):
    module = stock(self_attention=True, **extra)
    (x,) = inputs((T, B, D))
    call = {"key_padding_mask": PAD[:, :T], "attn_mask": mask}
    expected, expected_weights = module(x, x, x, **call)
    found, weights = gated(module)(x, x, x, **call)
    assert close(found, expected) and close(weights, expected_weights)
    assert weights.shape == (B, T, T + len(extra))
    assert close(gated(module)(x, x, x, **call, need_weights=False)[0], expected)


def parts(path):
    """(module, arguments) of the ways a decoder or encoder calls attention."""
    x, source = inputs((T, B, D), (S, B, D))
    if path == "enc_dec":
        return (
            stock(encoder_decoder_attention=True),
            (x, source, source),
            {"key_padding_mask": PAD, "static_kv": True},
            S,
        )
    keys = {"key_padding_mask": PAD[:, :T]}
    if path == "causal":
        keys = {"attn_mask": CAUSAL}
    if path == "incremental":
        keys = {"incremental_state": {}}
    return stock(self_attention=True), (x, x, x), keys, T


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
