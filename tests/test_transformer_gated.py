"""The gated architectures against the stock ones they stand for."""

from argparse import ArgumentParser, Namespace

import pytest
import tiny
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.models.transformer import TransformerModel
from slim_models import logits

from fairseq_headprune.models.transformer_gated import TransformerGatedModel
from fairseq_headprune.modules.attach import find_gates
from fairseq_headprune.parts import Part

#: the names fixed for the architectures, and fairseq's own that they follow
_SUFFIXES = "_tiny _iwslt_de_en _wmt_en_de _wmt_en_de_big _vaswani_wmt_en_de_big _vaswani_wmt_en_fr_big"
ARCHS = {f"transformer_gated{suffix}": f"transformer{suffix}" for suffix in ("", *_SUFFIXES.split())}
#: Small enough to build in a test; what is not named here stays the architecture's own.
SMALL = {
    side + name: value
    for side in ("encoder_", "decoder_")
    for name, value in {"embed_dim": 16, "ffn_embed_dim": 24, "layers": 2, "attention_heads": 4}.items()
}


@pytest.mark.parametrize("ours, theirs", ARCHS.items())
def test_defaults_are_those_of_stock(ours, theirs):
    settings = []
    for arch in (ours, theirs):
        assert arch in ARCH_MODEL_REGISTRY
        settings.append(Namespace())
        ARCH_CONFIG_REGISTRY[arch](settings[-1])
    assert vars(settings[0]) == vars(settings[1]) and len(vars(settings[0])) > 20


def test_flags_are_those_of_stock():
    flags = []
    for model in (TransformerGatedModel, TransformerModel):
        parser = ArgumentParser(allow_abbrev=False)
        model.add_args(parser)
        flags.append({a.dest: (a.option_strings, a.default, a.nargs, a.choices) for a in parser._actions})
    assert flags[0] == flags[1]


@pytest.mark.parametrize("ours, theirs", ARCHS.items())
def test_parameters_initial_values_and_output_are_those_of_stock(ours, theirs, batch):
    stock = tiny.make_model(theirs, seed=3, **SMALL)
    after_stock = torch.get_rng_state()
    gated = tiny.make_model(ours, seed=3, **SMALL)
    assert torch.equal(torch.get_rng_state(), after_stock)  # no random number more or less than stock
    assert [n for n, _ in gated.named_parameters()] == [n for n, _ in stock.named_parameters()]
    assert gated.state_dict().keys() == stock.state_dict().keys()
    # No hidden copies of weights, which a state dict would not show.
    assert [n for n, _ in gated.named_buffers()] == [n for n, _ in stock.named_buffers()]
    for name, value in stock.state_dict().items():
        assert torch.equal(gated.state_dict()[name], value), name
    real = batch["target"].ne(1)
    for training in (False, True):
        stock.train(training), gated.train(training)
        expected, found = stock(**batch["net_input"])[0], gated(**batch["net_input"])[0]
        assert torch.allclose(found[real], expected[real], atol=1e-5)
        gradients = []
        for model, output in ((stock, expected), (gated, found)):
            model.zero_grad()
            output[real].square().sum().backward()
            gradients.append([p.grad for p in model.parameters()])
        for theirs_, ours_ in zip(*gradients, strict=True):
            assert torch.allclose(ours_, theirs_, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "settings",
    [
        {"share_all_embeddings": True},
        {"encoder_normalize_before": True, "decoder_normalize_before": True},
        {"encoder_embed_dim": 32},
        {"no_scale_embedding": True, "layernorm_embedding": True, "encoder_learned_pos": True},
        {"quant_noise_pq": 0.1, "quant_noise_pq_block_size": 8},
    ],
)
def test_other_settings_equal_stock(settings, batch):
    stock = tiny.make_model("transformer_tiny", **settings)
    gated = tiny.make_model(**settings)
    real = batch["target"].ne(1)
    found, extra = gated(**batch["net_input"])
    expected, expected_extra = stock(**batch["net_input"])
    assert torch.allclose(found[real], expected[real], atol=1e-5)
    assert torch.allclose(extra["attn"][0], expected_extra["attn"][0], atol=1e-5)


def test_dropout_draws_as_in_stock_outside_attention(batch):
    outputs = []
    for arch in ("transformer_tiny", "transformer_gated_tiny"):
        model = tiny.make_model(arch)
        for module in model.modules():
            if type(module).__name__ == "FairseqDropout" and module.module_name != "MultiheadAttention":
                module.p = 0.3
        model.train()
        torch.manual_seed(7)
        outputs.append(logits(model, batch))
    assert torch.allclose(*outputs, atol=1e-5)


def test_stock_weights_load_strictly_and_ours_load_into_stock(batch):
    stock, gated = tiny.make_model("transformer_tiny", seed=4), tiny.make_model(seed=5)
    gated.load_state_dict(stock.state_dict())
    expected = logits(stock, batch)
    assert torch.allclose(logits(gated, batch), expected, atol=1e-5)
    other = tiny.make_model("transformer_tiny", seed=6)
    other.load_state_dict(gated.state_dict())
    assert torch.equal(logits(other, batch), expected)
    gates = find_gates(gated)
    gates.set_mask(gates.mask().without([Part("enc_self", 0, 0)]))
    with pytest.raises(RuntimeError, match="encoder.layers.0.self_attn.head_keep"):
        other.load_state_dict(gated.state_dict())


def test_old_checkpoints_with_fused_projections_load():
    # Before 2019 fairseq stored query, key and value as one matrix; its upgrade splits it by name.
    gated = tiny.make_model(seed=4)
    state = dict(gated.state_dict())
    place = "encoder.layers.0.self_attn."
    for kind in ("weight", "bias"):
        state[f"{place}in_proj_{kind}"] = torch.cat([state.pop(f"{place}{p}_proj.{kind}") for p in "qkv"])
    fresh = tiny.make_model(seed=5)
    fresh.load_state_dict(state)
    assert all(torch.equal(a, b) for a, b in zip(fresh.parameters(), gated.parameters(), strict=True))


def test_alignment_is_left_out_in_training_only(batch):
    model = tiny.make_model()
    assert model(**batch["net_input"])[1]["attn"][0].shape == (3, 6, 7)  # (batch, target, source)
    model.train()
    assert model(**batch["net_input"])[1]["attn"] == [None]
    assert model(**batch["net_input"], alignment_layer=1)[1]["attn"][0].shape == (3, 6, 7)
