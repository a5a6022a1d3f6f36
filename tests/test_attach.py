"""Attaching gates to fairseq's own models and finding them again."""

import copy
from argparse import Namespace

import pytest
import tiny
import torch
from fairseq.modules import MultiheadAttention
from slim_models import logits
from torch import nn

from fairseq_headprune.modules.attach import attach_gates, component_of, find_gates, without_attention_weights
from fairseq_headprune.modules.connected import check_connected
from fairseq_headprune.modules.multihead import GatedMultiheadAttention
from fairseq_headprune.parts import Mask, Part

SIZES = {"encoder_embed_dim": 16, "encoder_ffn_embed_dim": 16, "decoder_embed_dim": 16, "decoder_ffn_embed_dim": 16}
COUNTS = {"encoder_layers": 2, "encoder_attention_heads": 4, "decoder_layers": 3, "decoder_attention_heads": 2}
#: fairseq arch -> (settings, heads of each layer by component, as the settings say)
MODELS = {
    "transformer_tiny": (SIZES | COUNTS, {"enc_self": [4, 4], "enc_dec": [2, 2, 2], "dec_self": [2, 2, 2]}),
    "bart_base": (SIZES | COUNTS, {"enc_self": [4, 4], "enc_dec": [2, 2, 2], "dec_self": [2, 2, 2]}),
    "roberta_base": (SIZES | COUNTS | {"max_positions": 64, "tokens_per_sample": 64}, {"enc_self": [4, 4]}),
    "transformer_lm_gpt2_tiny": ({"tokens_per_sample": 64}, {"dec_self": [1, 1]}),
}


@pytest.mark.parametrize("arch", MODELS)
def test_every_attention_gets_a_gate_and_nothing_else_changes(arch):
    settings, shape = MODELS[arch]
    model = tiny.make_model(arch, **settings)
    before = {name: parameter for name, parameter in model.named_parameters()}
    keys = list(model.state_dict())
    gates = attach_gates(model)
    assert gates.shape == shape and list(gates.shape) == [c for c in ("enc_self", "enc_dec", "dec_self") if c in shape]
    assert list(model.state_dict()) == keys
    after = dict(model.named_parameters())
    assert list(after) == list(before) and all(after[name] is before[name] for name in before)


@pytest.mark.parametrize("arch", ["transformer_tiny", "bart_base"])
def test_the_output_stays(arch, batch):
    model = tiny.make_model(arch, **MODELS[arch][0])
    expected = logits(model, batch)
    attach_gates(model)
    assert torch.allclose(logits(model, batch), expected, atol=1e-5)


def test_language_models_mask_too():
    tokens = torch.tensor([[5, 6, 7, 8, 9]])
    for arch in ("roberta_base", "transformer_lm_gpt2_tiny"):
        model = tiny.make_model(arch, **MODELS[arch][0])
        expected = model(tokens)[0]
        gates = attach_gates(model)
        assert torch.allclose(model(tokens)[0], expected, atol=1e-5)
        component = next(iter(gates.shape))
        gates.set_mask(gates.mask().without([Part(component, 1, 0)]))
        assert (model(tokens)[0] - expected).abs().max() > 1e-4


def test_layer_10_comes_after_layer_9():
    sizes = SIZES | {"encoder_layers": 12, "decoder_layers": 11}
    gates = attach_gates(model := tiny.make_model("transformer_tiny", **sizes))
    assert gates.modules["enc_self"] == [layer.self_attn for layer in model.encoder.layers]
    assert gates.modules["enc_dec"] == [layer.encoder_attn for layer in model.decoder.layers]
    assert gates.modules["dec_self"] == [layer.self_attn for layer in model.decoder.layers]


def test_attaching_twice_changes_nothing():
    model = tiny.make_model("transformer_tiny")
    first = attach_gates(model)
    first.set_mask(mask := first.mask().without([Part("enc_dec", 1, 0)]))
    second = attach_gates(model)
    assert second.modules == first.modules and second.mask() == mask


def test_models_that_cannot_be_gated_are_refused_and_unchanged():
    with pytest.raises(ValueError, match="Linear holds no fairseq MultiheadAttention"):
        attach_gates(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="attach_gates first"):
        find_gates(tiny.make_model("transformer_tiny"))
    model = tiny.make_model("transformer_tiny")
    model.decoder.layers[1].encoder_attn.use_xformers = True
    with pytest.raises(ValueError, match="xFormers"):
        attach_gates(model)
    assert not any(isinstance(m, GatedMultiheadAttention) for m in model.modules())


def test_components_by_name_and_kind():
    cross = MultiheadAttention(8, 2, encoder_decoder_attention=True)
    plain = MultiheadAttention(8, 2, self_attention=True)
    assert component_of("decoder.layers.0.encoder_attn", cross) == "enc_dec"
    assert component_of("decoder.layers.0.self_attn", plain) == "dec_self"
    assert component_of("encoder.layers.0.self_attn", plain) == "enc_self"
    assert component_of("encoder.sentence_encoder.layers.3.self_attn", plain) == "enc_self"


def test_a_loaded_model_calls_our_attention_once_a_layer(batch):
    model, calls = tiny.make_model(seed=5), []
    model.load_state_dict(tiny.make_model("transformer_tiny", seed=4).state_dict())
    for component, layer, module in find_gates(model).items():
        module.register_forward_hook(lambda *_, place=(component, layer): calls.append(place))
    logits(model, batch)
    expected = [(c, i) for c in ("enc_self", "dec_self", "enc_dec") for i in (0, 1)]
    assert sorted(calls) == sorted(expected)


def test_masks_that_do_not_fit_change_nothing():
    gates = attach_gates(tiny.make_model("transformer_tiny"))
    gates.set_mask(mask := gates.mask().without([Part("dec_self", 0, 1)]))
    other = Mask.full({"enc_self": [2, 2], "enc_dec": [2, 2], "dec_self": [2, 4]})
    with pytest.raises(ValueError, match="4 heads in dec_self layer 1, the model has 2"):
        gates.set_mask(other)
    assert gates.mask() == mask


def test_masked_puts_the_former_mask_back():
    gates = attach_gates(tiny.make_model("transformer_tiny"))
    first = Mask.full(gates.shape, {"why": "first"}).without([Part("enc_self", 0, 0)])
    gates.set_mask(first, fixed=True)
    with pytest.raises(KeyError), gates.masked(first.without([Part("enc_self", 1, 1)])):
        assert len(gates.mask().dropped()) == 2
        raise KeyError
    assert gates.mask() == first and gates.mask().source == {"why": "first"}
    assert all(module.keep_is_fixed for _, _, module in gates.items())
    with gates.masked(None):
        assert not gates.mask().dropped()


@pytest.mark.parametrize("leading", [(), (3,)])
def test_leaf_gates_get_gradients_and_go(leading, batch):
    model = tiny.make_model()
    gates, expected = find_gates(model), logits(model, batch)
    with gates.leaf_gates(lambda component, heads: (*leading, heads)) as leaves:
        assert {c: [tuple(g.shape) for g in row] for c, row in leaves.items()} == dict.fromkeys(
            gates.shape, [(*leading, 2)] * 2
        )
        output = model(**batch["net_input"])[0]
        assert torch.allclose(output[batch["target"].ne(1)], expected, atol=1e-6)
        output.square().sum().backward()
    assert all((gate.grad != 0).all() for row in leaves.values() for gate in row)
    assert all(module.head_gate is None for _, _, module in gates.items())


def test_layerdrop_models_keep_their_layer_numbers(batch):
    model = tiny.make_model(encoder_layerdrop=0.5, decoder_layerdrop=0.5, encoder_layers=4)
    gates = find_gates(model)
    assert gates.shape == {"enc_self": [2] * 4, "enc_dec": [2, 2], "dec_self": [2, 2]}
    gates.set_mask(gates.mask().without([Part("enc_self", 3, 0)]))
    model.train()
    torch.manual_seed(1)
    model(**batch["net_input"])[0].sum().backward()  # dropped layers have no gradient, the others a finite one
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    assert grads and all(torch.isfinite(g).all() for g in grads)
    # fairseq keeps some layers when asked to: masks move with their layers.
    keep = {"encoder_layers_to_keep": "1,3", "decoder_layers_to_keep": "0,1"}
    smaller = tiny.make_model(**keep)
    smaller.load_state_dict(model.state_dict(), model_cfg=Namespace(arch="transformer_gated_tiny", **keep))
    assert find_gates(smaller).mask().dropped() == [Part("enc_self", 1, 0)]


@pytest.mark.parametrize("no_cross_attention", [False, True])
def test_cross_self_attention(no_cross_attention, batch):
    # The decoder's self-attention also reads the encoder's output; its flags are neither "self" nor "encoder-decoder".
    settings = {"cross_self_attention": True, "no_cross_attention": no_cross_attention}
    stock = tiny.make_model("transformer_tiny", **settings)
    model = tiny.make_model(**settings)
    gates = find_gates(model)
    assert ("enc_dec" in gates.shape) is not no_cross_attention and gates.shape["dec_self"] == [2, 2]
    assert torch.allclose(logits(model, batch), logits(stock, batch), atol=1e-5)
    by_hand = copy.deepcopy(model)
    by_hand.decoder.layers[0].self_attn.out_proj.weight.data[:, 32:] = 0
    gates.set_mask(gates.mask().without([Part("dec_self", 0, 1)]))
    assert torch.allclose(logits(model, batch), logits(by_hand, batch), atol=1e-6)
    check_connected(model, batch["net_input"])


def test_activation_checkpoints_see_the_mask(batch):
    results = []
    pruned = [Part("enc_self", 0, 1), Part("dec_self", 1, 0)]
    for checkpointed, dropped in ((False, pruned), (True, pruned), (True, [])):
        model = tiny.make_model(checkpoint_activations=checkpointed)
        gates = find_gates(model)
        gates.set_mask(gates.mask().without(dropped))
        model.train()
        output = model(**batch["net_input"])[0]
        output.square().sum().backward()
        results.append([output.detach(), *[p.grad for p in model.parameters() if p.grad is not None]])
    plain, checkpointed, unpruned = results
    assert all(torch.allclose(a, b, atol=1e-4, rtol=1e-4) for a, b in zip(plain, checkpointed, strict=True))
    assert not torch.allclose(unpruned[0], checkpointed[0], atol=1e-2)


def test_without_attention_weights_is_for_a_while(batch):
    model, need = tiny.make_model(), []
    layer = model.decoder.layers[0]
    layer.encoder_attn.register_forward_hook(lambda m, a, k, out: need.append(out[1] is not None), with_kwargs=True)
    logits(model, batch)
    with without_attention_weights(model):
        logits(model, batch)
    logits(model, batch)
    assert need == [True, False, True]
