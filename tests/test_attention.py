"""The arithmetic of gated attention, against a slow loop over heads written from the formulas."""

import math

import pytest
import torch

from fairseq_headprune.modules import attention
from fairseq_headprune.modules.attention import apply_gate, attend, attention_weights, combine_masks

B, H, T, S, D = 3, 4, 5, 6, 7
SCALE = 1 / math.sqrt(D)
INF = float("-inf")


def qkv(dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(B, H, n, D, generator=generator).to(dtype) for n in (T, S, S)]


def slow(q, k, v, allowed):
    """Vaswani et al. 2017, eq. 1, one row at a time; ``allowed`` (B, T, S) bool; no allowed key gives 0."""
    out, weights = torch.zeros(B, H, T, D), torch.zeros(B, H, T, S)
    for b in range(B):
        for h in range(H):
            for t in range(T):
                keys = [s for s in range(S) if allowed[b, t, s]]
                scores = [float(q[b, h, t] @ k[b, h, s]) / math.sqrt(D) for s in keys]
                total = sum(math.exp(x) for x in scores)
                for s, x in zip(keys, scores, strict=True):
                    weights[b, h, t, s] = math.exp(x) / total
                    out[b, h, t] += math.exp(x) / total * v[b, h, s]
    return out, weights


def padding():
    pad = torch.zeros(B, S, dtype=torch.bool)
    pad[1, 4:], pad[2, :2] = True, True
    return pad


def both_ways(q, k, v, mask):
    weights, _ = attention_weights(q, k, SCALE, mask)
    return attend(q, k, v, SCALE, mask, 0.0), torch.matmul(weights.to(v.dtype), v), weights


@pytest.mark.parametrize("with_pad", [False, True])
@pytest.mark.parametrize("with_block", [False, True])
def test_both_ways_equal_the_slow_loop(with_pad, with_block):
    q, k, v = qkv()
    block = torch.ones(T, S, dtype=torch.bool).triu(2)
    allowed = torch.ones(B, T, S, dtype=torch.bool)
    if with_pad:
        allowed &= ~padding()[:, None, :]
    if with_block:
        allowed &= ~block
    mask = combine_masks(padding() if with_pad else None, block if with_block else None, q.dtype)
    fused, eager, weights = both_ways(q, k, v, mask)
    expected, expected_weights = slow(q, k, v, allowed)  # source: the formula
    assert torch.allclose(fused, expected, atol=1e-5)
    assert torch.allclose(eager, expected, atol=1e-5)
    assert torch.allclose(weights, expected_weights, atol=1e-6)


def as_float(block):
    return torch.zeros(block.shape).masked_fill(block, INF)


@pytest.mark.parametrize("convert", [torch.Tensor.bool, torch.Tensor.byte, torch.Tensor.float, as_float])
def test_padding_means_the_same_in_every_type(convert):
    q, k, v = qkv()
    expected = both_ways(q, k, v, combine_masks(padding(), None, q.dtype))
    found = both_ways(q, k, v, combine_masks(convert(padding()), None, q.dtype))
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("convert", [torch.Tensor.byte, torch.Tensor.long, as_float, lambda m: m.float() * -1e8])
@pytest.mark.parametrize("pad", [None, padding()])
def test_attention_mask_means_the_same_in_every_type(convert, pad):
    q, k, v = qkv()
    block = torch.ones(T, S, dtype=torch.bool).triu(2)
    expected = both_ways(q, k, v, combine_masks(pad, block, q.dtype))
    found = both_ways(q, k, v, combine_masks(pad, convert(block), q.dtype))
    for b, t in [(b, t) for b in range(B) for t in range(T) if not (b == 2 and t == 0 and pad is not None)]:
        # Sentence 2 row 0 may attend nowhere under -inf and bool, but -1e8 is finite: nothing to compare there.
        for one, other in zip(found, expected, strict=True):
            assert torch.allclose(one[b, :, t], other[b, :, t], atol=1e-6)


def test_softmax_by_hand():
    # One sentence, one head, 2 queries, 3 keys; scores by hand: row 0 = (0, ln 2, ln 5), row 1 = (ln 3, 0, anything).
    # Key 2 is blocked for row 1. Weights: (1, 2, 5) / 8 and (3, 1, 0) / 4.
    q = torch.eye(2).view(1, 1, 2, 2)
    k = torch.tensor([[0.0, math.log(3)], [math.log(2), 0.0], [math.log(5), 9.0]]).view(1, 1, 3, 2)
    v = torch.tensor([[1.0], [10.0], [100.0]]).view(1, 1, 3, 1)
    block = torch.tensor([[0, 0, 0], [0, 0, 1]], dtype=torch.bool)
    mask = combine_masks(None, block, q.dtype)
    weights, scores = attention_weights(q, k, 1.0, mask)
    assert torch.allclose(weights[0, 0], torch.tensor([[1 / 8, 2 / 8, 5 / 8], [3 / 4, 1 / 4, 0.0]]))
    assert scores[0, 0, 1].tolist() == pytest.approx([math.log(3), 0.0, INF])
    # (1 + 20 + 500) / 8 and (3 + 10) / 4
    assert attend(q, k, v, 1.0, mask, 0.0).flatten().tolist() == pytest.approx([65.125, 3.25])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_minus_1e8_in_half_precision(dtype):
    # 1e8 is above fp16's largest number, 65504 (torch.finfo): it must become -inf, not an error and not NaN.
    q, k, v = qkv(dtype)
    block = torch.ones(T, S, dtype=torch.bool).triu(2)
    pad = padding()
    pad[2] = False  # padding on the left would leave row 0 no key but the blocked ones
    mask = combine_masks(pad, block.float() * -1e8, dtype)
    assert mask.dtype == dtype
    weights, _ = attention_weights(q, k, SCALE, mask)
    assert weights.dtype == torch.float32 and torch.isfinite(weights).all()
    assert (weights.masked_select(block) == 0).all()
    marked = v.masked_fill(pad[:, None, :, None], 1000.0)
    out = attend(q, k, marked, SCALE, mask, 0.0)
    assert torch.isfinite(out).all() and torch.equal(out, attend(q, k, v, SCALE, mask, 0.0))


@pytest.mark.parametrize("kind", [torch.bool, torch.float32])
def test_a_row_that_may_attend_nowhere_gives_zero_and_finite_gradients(kind):
    block = torch.zeros(T, S, dtype=torch.bool)
    block[3] = True
    mask = combine_masks(None, block if kind == torch.bool else as_float(block), torch.float32)
    assert mask.dtype == kind
    for fused in (True, False):
        q, k, v = (x.requires_grad_() for x in qkv())
        out = both_ways(q, k, v, mask)[0 if fused else 1]
        assert torch.equal(out[:, :, 3], torch.zeros(B, H, D))
        # The other rows are as without the bad one (source: the slow loop).
        expected, _ = slow(q.detach(), k.detach(), v.detach(), (~block).expand(B, T, S))
        assert torch.allclose(out, expected, atol=1e-5)
        out.square().sum().backward()
        assert all(torch.isfinite(x.grad).all() for x in (q, k, v))
        assert (q.grad[:, :, 3] == 0).all() and q.grad[:, :, 2].any()


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_a_sentence_that_is_all_padding_leaves_the_others_alone(kind):
    pad = padding()
    pad[0] = True
    causal = torch.ones(T, S, dtype=torch.bool).triu(3)
    mask = combine_masks(pad, causal if kind == "bool" else as_float(causal), torch.float32)
    q, k, v = (x.requires_grad_() for x in qkv())
    for out in both_ways(q, k, v, mask)[:2]:
        assert (out[0] == 0).all()
        grads = torch.autograd.grad(out.square().sum(), (q, k, v))
        assert all(torch.isfinite(g).all() and (g[0] == 0).all() for g in grads)


def test_weights_keep_the_precision_of_float64():
    q, k, v = qkv(torch.float64)
    weights, _ = attention_weights(q, k, SCALE, None)
    # Source: rows of a softmax sum to 1; float32 would miss it by about 1e-7.
    assert weights.dtype == torch.float64
    assert (weights.sum(-1) - 1).abs().max() < 1e-14


def test_gates_of_every_shape_scale_their_heads():
    heads = torch.randn(B, H, T, D, generator=torch.Generator().manual_seed(2))
    for shape in ((H,), (B, H), (B, H, T)):
        gate = torch.rand(shape, generator=torch.Generator().manual_seed(3))
        found = apply_gate(heads, gate, None)
        for b in range(B):
            for h in range(H):
                for t in range(T):
                    index = ((h,), (b, h), (b, h, t))[len(shape) - 1]
                    assert torch.equal(found[b, h, t], heads[b, h, t] * gate[index])


@pytest.mark.parametrize("shape", [(H + 1,), (B,), (B, H + 1), (H, B), (B, H, T + 1), (B, H, T, 1), ()])
def test_a_gate_of_another_shape_is_refused(shape):
    with pytest.raises(ValueError, match="fits neither"):
        apply_gate(torch.zeros(B, H, T, D), torch.ones(shape), None)


def test_a_half_precision_head_stays_half_under_a_float_gate():
    assert apply_gate(torch.ones(B, H, T, D).half(), torch.ones(H), None).dtype == torch.float16


def test_nan_in_a_pruned_head_does_not_reach_the_output():
    heads = torch.ones(B, H, T, D)
    heads[:, 1] = float("nan")
    keep = torch.tensor([True, False, True, True])
    found = apply_gate(heads, None, keep)
    assert torch.equal(found[:, 1], torch.zeros(B, T, D)) and torch.equal(found[:, 2], heads[:, 2])
    # Multiplying would not do: 0 * NaN is NaN.
    assert apply_gate(heads, keep.float(), None).isnan().any()


def test_nothing_set_changes_nothing_and_copies_nothing():
    heads = torch.ones(B, H, T, D)
    assert apply_gate(heads, None, None) is heads
    assert combine_masks(None, None, torch.float32) is None


def test_a_step_of_decoding_on_cuda_computes_the_same(monkeypatch):
    # Source: the fused way, which all other tests check.
    q, k, v = qkv()
    mask = combine_masks(padding(), None, q.dtype)
    expected = attend(q, k, v, SCALE, mask, 0.0)
    monkeypatch.setattr(attention, "_is_one_step", lambda query: True)
    assert torch.allclose(attend(q, k, v, SCALE, mask, 0.0), expected, atol=1e-6)
    assert torch.allclose(attend(q, k, v, SCALE, None, 0.0), torch.softmax(SCALE * q @ k.mT, -1) @ v, atol=1e-6)
