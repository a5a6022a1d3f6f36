"""The gated module against fairseq's own ``MultiheadAttention`` and against sums over heads written out."""

import copy
import io
import itertools

import pytest
import torch
from fairseq.modules import MultiheadAttention
from fairseq.utils import move_to_cpu

from fairseq_headprune.modules.attention import attend
from fairseq_headprune.modules.multihead import GatedMultiheadAttention

B, H, T, S, D = 3, 4, 5, 6, 16
INF = float("-inf")
PAD = torch.tensor([[0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1], [1, 1, 0, 0, 0, 0]], dtype=torch.bool)
CAUSAL = torch.full((T, T), INF).triu(1)


def stock(seed=0, random_bias=True, **settings):
    """A stock module in evaluation mode, with biases that are not 0."""
    torch.manual_seed(seed)
    module = MultiheadAttention(D, H, **settings).eval()
    for name, parameter in module.named_parameters():
        if random_bias and name.endswith("bias"):
            torch.nn.init.normal_(parameter)
    return module


def gated(module):
    """A gated copy of a stock module."""
    return GatedMultiheadAttention.adopt(copy.deepcopy(module))


def inputs(*sizes, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*size, generator=generator) for size in sizes]


def close(a, b, atol=1e-5):
    return torch.allclose(a, b, atol=atol)


def split(x):
    """(time, batch, d) -> (batch, heads, time, head_dim)."""
    return x.reshape(x.size(0), x.size(1), H, D // H).permute(1, 2, 0, 3)


def contributions(module, x, pad=None):
    """Each head's part of the output, x_h W_h without the bias: (heads, time, batch, d) (Michel et al., eq. 1)."""
    q, k, v = (
        split(torch.nn.functional.linear(x, p.weight, p.bias)) for p in (module.q_proj, module.k_proj, module.v_proj)
    )
    heads = attend(q, k, v, (D // H) ** -0.5, None if pad is None else ~pad[:, None, None, :], 0.0)
    columns = module.out_proj.weight.split(D // H, dim=1)
    return torch.stack([heads[:, h].transpose(0, 1) @ columns[h].T for h in range(H)])


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


def test_masking_one_head_leaves_the_sum_of_the_others_and_the_bias_once():
    module = stock(self_attention=True)
    rotation, _ = torch.linalg.qr(inputs((D, D))[0])  # a head's own columns are not its own output dimensions
    module.out_proj.weight.data = rotation
    (x,) = inputs((T, B, D))
    attention = gated(module)
    attention.set_keep([1, 1, 0, 1])
    part = contributions(module, x)
    expected = part[0] + part[1] + part[3] + module.out_proj.bias
    assert close(attention(x, x, x)[0], expected)
    attention.set_keep(None)
    attention.head_gate = torch.tensor([1.0, 0.5, -2.0, 0.0])
    assert close(attention(x, x, x)[0], part[0] + part[1] / 2 - 2 * part[2] + module.out_proj.bias)


@pytest.mark.parametrize("bias", [True, False])
def test_all_heads_pruned_leaves_the_bias(bias):
    module = stock(self_attention=True, bias=bias)
    (x,) = inputs((T, B, D))
    attention = gated(module)
    attention.set_keep([0] * H)
    real = torch.zeros(B, T, dtype=torch.bool)  # no padding at all
    expected = module.out_proj.bias if bias else torch.zeros(D)
    assert torch.equal(attention(x, x, x, key_padding_mask=real)[0], expected.expand(T, B, D))


def test_a_gate_is_connected_and_its_derivative_is_exact():
    module = stock(self_attention=True).double()
    attention = gated(module)
    (x,) = [i.double() for i in inputs((T, B, D))]
    gate = torch.ones(B, H, dtype=torch.float64, requires_grad=True)
    attention.head_gate = gate

    def loss():
        return attention(x, x, x, key_padding_mask=PAD[:, :T], need_weights=False)[0].square().sum()

    (grad,) = torch.autograd.grad(loss(), gate)
    assert (grad != 0).all()
    for b, h in itertools.product(range(B), range(H)):
        sides = []
        for step in (1e-4, -1e-4):
            attention.head_gate = gate.detach().clone()
            attention.head_gate[b, h] += step
            sides.append(float(loss().detach()))
        assert (sides[0] - sides[1]) / 2e-4 == pytest.approx(float(grad[b, h]), rel=1e-6)  # central difference, float64


def test_gates_do_not_change_the_weights_returned():
    attention = gated(stock(self_attention=True))
    (x,) = inputs((T, B, D))
    _, before = attention(x, x, x)
    attention.set_keep([0, 1, 1, 1])
    assert torch.equal(attention(x, x, x)[1], before)


def test_an_observer_sees_the_weights_of_every_head():
    attention, seen = gated(stock(self_attention=True)), []
    (x,) = inputs((T, B, D))
    plain, _ = attention(x, x, x, need_weights=False)
    attention.on_weights = lambda module, weights: seen.append((module, weights))
    output, returned = attention(x, x, x, need_weights=False)
    assert returned is None and close(output, plain)
    assert seen[0][0] is attention and close(seen[0][1].sum(-1), torch.ones(B, H, T))


def test_a_sentence_that_is_all_padding_adds_only_the_bias():
    module = stock(self_attention=True)
    pad = PAD[:, :T].clone()
    pad[1] = True
    (x,) = inputs((T, B, D))
    for need in (False, True):
        attention = gated(module)
        output, _ = attention(x, x, x, key_padding_mask=pad, need_weights=need)
        assert torch.equal(output[:, 1], module.out_proj.bias.expand(T, D))
        alone, _ = attention(x[:, [0, 2]], x[:, [0, 2]], x[:, [0, 2]], key_padding_mask=pad[[0, 2]], need_weights=need)
        assert close(output[:, [0, 2]], alone)
        output.square().sum().backward()
        assert all(torch.isfinite(p.grad).all() for p in attention.parameters())


@pytest.mark.parametrize("need_weights", [False, True])
def test_dropout_is_on_in_training_and_off_in_evaluation(need_weights):
    attention = gated(stock(self_attention=True, dropout=0.5))
    (x,) = inputs((T, B, D))
    call = lambda: attention(x, x, x, need_weights=need_weights)[0]  # noqa: E731
    plain = call()
    assert torch.equal(plain, call())
    attention.train()
    draws = torch.stack([call() for _ in range(400)])
    assert not torch.equal(draws[0], draws[1])
    # Inverted dropout keeps the mean. Tolerance: 5 standard errors of the mean of 400 draws.
    error = (draws.mean(0) - plain).abs() / (draws.std(0) / 400**0.5)
    assert error.max() < 5
    attention.eval()
    attention.dropout_module.apply_during_inference = True
    assert not torch.equal(call(), call())


def test_quantisation_noise_works_on_every_projection():
    # fairseq's hooks rewrite a projection's weights before its forward in training (stock.s fast path skips them).
    attention = gated(stock(self_attention=True, q_noise=0.5, qn_block_size=4))
    (x,) = inputs((T, B, D))
    names = ("q_proj", "k_proj", "v_proj", "out_proj")
    before = {name: getattr(attention, name).weight.detach().clone() for name in names}
    attention(x, x, x)
    assert all(torch.equal(getattr(attention, name).weight, before[name]) for name in names)
    attention.train()
    attention(x, x, x)
    assert all(
        (getattr(attention, name).weight == 0).any() and not torch.equal(getattr(attention, name).weight, before[name])
        for name in names
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_close_to_single_and_finite(dtype):
    module = stock(self_attention=True)
    (x,) = inputs((T, B, D))
    mask = torch.full((T, T), -1e8).triu(1)
    attention = gated(module)
    attention.set_keep([1, 0, 1, 1])
    expected, _ = attention(x, x, x, attn_mask=mask)
    low = gated(module).to(dtype)
    low.set_keep([1, 0, 1, 1])
    for need in (True, False):
        found, _ = low(x.to(dtype), x.to(dtype), x.to(dtype), attn_mask=mask.to(torch.float32), need_weights=need)
        assert found.dtype == dtype
        # finfo(bfloat16).eps is 0.0078; outputs are about 1 and pass four roundings.
        assert (found.float() - expected).abs().max() < 6 * torch.finfo(dtype).eps * max(1.0, expected.abs().max())


def test_nan_in_a_pruned_head_does_not_reach_the_output():
    module = stock(self_attention=True)
    (x,) = inputs((T, B, D))
    attention = gated(module)
    attention.set_keep([1, 0, 1, 1])
    expected, _ = attention(x, x, x)
    attention.v_proj.weight.data[D // H : 2 * D // H] = float("nan")
    assert torch.equal(attention(x, x, x)[0], expected)


def test_adopting_keeps_the_parameters_and_refuses_other_classes():
    module = stock()
    before = dict(module.named_parameters())
    adopted = GatedMultiheadAttention.adopt(module)
    assert adopted is module and list(adopted.state_dict()) == list(before)
    assert all(parameter is before[name] for name, parameter in adopted.named_parameters())
    with pytest.raises(ValueError, match="GatedMultiheadAttention"):
        GatedMultiheadAttention.adopt(adopted)
    other = stock()
    other.use_xformers = True
    with pytest.raises(ValueError, match="xFormers"):
        GatedMultiheadAttention.adopt(other)
    assert type(other) is MultiheadAttention


def through_file(state):
    """What fairseq's trainer and torch.save do to a state dict."""
    file = io.BytesIO()
    torch.save(move_to_cpu(state), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def test_the_mask_and_the_head_count_travel_in_the_state_dict():
    attention = gated(stock())
    attention.set_keep([1, 0, 1, 0], source={"path": "mask.json"})
    state = through_file(attention.state_dict())
    assert state["head_keep"].tolist() == [True, False, True, False]
    assert "head_gate" not in state
    fresh = gated(stock(seed=9))
    fresh.load_state_dict(state)
    assert fresh.head_keep.tolist() == [True, False, True, False] and fresh.keep_source == {"path": "mask.json"}
    (x,) = inputs((T, B, D))
    assert torch.equal(fresh(x, x, x)[0], attention(x, x, x)[0])
    # A checkpoint without a mask takes the mask away, unless it was fixed.
    fresh.load_state_dict(through_file(stock().state_dict()))
    assert fresh.head_keep is None and fresh.keep_source == {}
    fresh.set_keep([0, 1, 1, 1], fixed=True)
    fresh.load_state_dict(state)
    assert fresh.head_keep.tolist() == [False, True, True, True]


def test_another_head_count_is_refused_by_name():
    model = torch.nn.ModuleDict({"attn": gated(stock())})
    state = through_file(model.state_dict())
    torch.manual_seed(0)
    narrow = torch.nn.ModuleDict({"attn": GatedMultiheadAttention.adopt(MultiheadAttention(D, 2))})
    with pytest.raises(RuntimeError, match="attn: the checkpoint has 4 heads, the model was built with 2"):
        narrow.load_state_dict(state)
    # Without metadata (another program wrote it) a mask of the wrong length still tells.
    plain = dict(state) | {"attn.head_keep": torch.tensor([True, False, True, True])}
    with pytest.raises(RuntimeError, match="mask has 4 heads"):
        narrow.load_state_dict(plain)


def test_a_stock_module_refuses_a_mask_and_takes_the_rest():
    attention = gated(stock())
    stock(seed=3).load_state_dict(attention.state_dict())
    attention.set_keep([1, 0, 1, 1])
    with pytest.raises(RuntimeError, match="head_keep"):
        stock().load_state_dict(attention.state_dict())


def test_a_mask_that_keeps_all_is_no_mask():
    attention = gated(stock())
    attention.set_keep([1] * H)
    assert attention.head_keep is None and "head_keep" not in attention.state_dict()
