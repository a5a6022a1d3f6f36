"""Gates and masks against sums over heads written out; dropout, noise and half precision; and what travels."""

import io
import itertools

import pytest
import torch
from attention_parts import PAD, B, D, H, T, close, contributions, gated, inputs, stock
from fairseq.modules import MultiheadAttention
from fairseq.utils import move_to_cpu

from fairseq_headprune.modules.multihead import GatedMultiheadAttention


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


def test_the_weights_returned_are_the_mean_of_the_kept_heads():
    attention = gated(stock(self_attention=True))
    (x,) = inputs((T, B, D))
    _, by_head = attention(x, x, x, need_head_weights=True)
    attention.set_keep([0, 1, 1, 1])
    assert close(attention(x, x, x)[1], by_head[1:].mean(0))


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
