"""Attention of short sentences without copies, as in recorded passes, against the attention of all other passes."""

import pytest
import torch
from fairseq.modules import MultiheadAttention

from fairseq_headprune.modules import short_attention
from fairseq_headprune.modules.multihead import GatedMultiheadAttention
from fairseq_headprune.modules.short_attention import AddedMasks
from fairseq_headprune.speed.measure import operations

#: target and source length, sentences, heads, width
T, S, B, H, D = 5, 6, 3, 4, 24


def make(cross, bias=True):
    torch.manual_seed(1)
    how = {"encoder_decoder_attention": True} if cross else {"self_attention": True}
    module = GatedMultiheadAttention.adopt(MultiheadAttention(D, H, bias=bias, **how)).double()
    for name, parameter in module.named_parameters():
        torch.nn.init.normal_(parameter, std=0.3 if "weight" in name else 1.0)
    return module


def inputs(cross):
    query = torch.randn(T, B, D, dtype=torch.float64, requires_grad=True)
    return query, torch.randn(S, B, D, dtype=torch.float64, requires_grad=True) if cross else query


def pads(length):
    pads = torch.zeros(B, length, dtype=torch.bool)
    pads[1, -2:], pads[2, 1] = True, True
    return pads


def future():
    return torch.triu(torch.full((T, T), float("-inf")), 1)


def run(module, masks, query, key, **given):
    """Output, and the gradients of inputs and weights; with ``masks``, as in a recorded pass."""
    module.masks_of_pass = masks
    output, _ = module(query, key, key, need_weights=False, **given)
    leaves = [query, *([] if key is query else [key]), *module.parameters()]
    return output, torch.autograd.grad(output.square().sum(), leaves)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("keep", [None, [1, 0, 0, 1]])
@pytest.mark.parametrize("kind", ["self", "causal", "cross", "plain"])
def test_outputs_and_gradients_are_those_of_other_passes(kind, keep, bias):
    module = make(kind == "cross", bias)
    module.head_keep = None if keep is None else torch.tensor(keep, dtype=torch.bool)
    query, key = inputs(kind == "cross")
    given = {} if kind == "plain" else {"key_padding_mask": pads(len(key))}
    given |= {"attn_mask": future()} if kind == "causal" else {}
    expected, gradients = run(module, None, query, key, **given)
    found, mine = run(module, AddedMasks(), query, key, **given)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    for name, got, right in zip(["query", *dict(module.named_parameters())], mine, gradients, strict=False):
        torch.testing.assert_close(got, right, rtol=1e-9, atol=1e-9, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("cross", [False, True])
def test_gradients_are_those_of_finite_differences_with_dropout_too(cross):
    module = make(cross)
    module.dropout_module.p = 0.4
    query, key = inputs(cross)
    module.masks_of_pass = AddedMasks()

    def attended(*tensors):
        torch.manual_seed(3)
        return module(tensors[0], tensors[-1], tensors[-1], key_padding_mask=pads(len(key)), need_weights=False)[0]

    assert torch.autograd.gradcheck(attended, (query, key) if cross else (query,))
    dropped = attended(query, key)
    module.dropout_module.p = 0.0
    assert not torch.allclose(dropped, attended(query, key))
    module.dropout_module.p = 0.4
    torch.testing.assert_close(module.eval()(query, key, key, need_weights=False)[0], module(query, key, key)[0])


def test_a_sentence_of_padding_is_finite():
    module, (query, key) = make(False), inputs(False)
    padding = pads(T)
    padding[0] = True
    output, gradients = run(module, AddedMasks(), query, key, key_padding_mask=padding, attn_mask=future())
    assert torch.isfinite(output).all() and all(torch.isfinite(gradient).all() for gradient in gradients)


def test_a_pass_makes_each_mask_once():
    """Source: fairseq gives all layers the same padding mask, and slices of one table of the future."""
    masks, table, padding = AddedMasks(), torch.triu(torch.full((9, 9), float("-inf")), 1), pads(T)
    like = torch.zeros((), dtype=torch.float64)
    found = [masks.added(padding, table[:T, :T], like, (B, H, T, T)) for _ in range(3)]
    assert found[0] is found[1] is found[2] and found[0].shape == (B * H, T, T)
    assert masks.added(padding, None, like, (B, H, T, T)) is not found[0]
    assert masks.added(pads(T), table[:T, :T], like, (B, H, T, T)) is not found[0]
    blocked = (padding[:, None, None, :] | table[:T, :T].isinf()).expand(B, H, T, T).flatten(0, 1)
    assert torch.equal(found[0] == -1e4, blocked) and (found[0][~blocked] == 0).all()


@pytest.mark.parametrize(("cross", "expected"), [(False, (8, 14)), (True, (9, 18))])
def test_a_layer_takes_few_operations(cross, expected):
    """Counted. Forward: weights and biases joined, the projection (cross: 2), a place, scores, softmax, values, output.

    Backward: 3 of the output; a place (cross: 2), 4 products and the softmax; 3 of each projection; 2 gradients sorted.
    Nothing copies heads; the general way makes ten copies.
    """
    module, (query, key) = make(cross), inputs(cross)
    module.masks_of_pass = AddedMasks()
    given = {"key_padding_mask": pads(len(key)), "need_weights": False}
    output = module(query, key, key, **given)[0]
    leaves = [query, *([key] if cross else []), *module.parameters()]
    forward = operations(lambda: module(query, key, key, **given))
    assert (forward, operations(lambda: torch.autograd.grad(output, leaves, output.detach()))) == expected


def test_other_projections_and_long_sentences_go_the_general_way(monkeypatch):
    module, (query, key) = make(False), inputs(False)
    assert short_attention.can_attend(module, query, key)
    module.k_proj.__class__ = type("Other", (torch.nn.Linear,), {})
    assert not short_attention.can_attend(module, query, key)
    cross, (query, key) = make(True), inputs(True)
    assert short_attention.can_attend(cross, query, key)
    monkeypatch.setattr(short_attention, "SHORT", S - 1)
    assert not short_attention.can_attend(cross, query, key)
