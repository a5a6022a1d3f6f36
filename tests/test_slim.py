"""Removing heads from state dicts: the slim model is the masked model. The masked model is the reference throughout."""

import copy
import itertools

import pytest
import tiny
import torch
from fairseq.modules import MultiheadAttention
from slim_models import (
    SETTINGS,
    lively,
    masked_and_slim,
    random_settings,
    rebuild,
    same_on_every_path,
    state_of,
    uneven,
)

from fairseq_headprune.checkpoints import head_shape, saved_settings, stored_layout, stored_mask
from fairseq_headprune.importance.estimate import estimate
from fairseq_headprune.importance.settings import ESTIMATORS, ScoreSettings
from fairseq_headprune.modules.attach import GatedParts, find_gates
from fairseq_headprune.modules.multihead import GatedMultiheadAttention
from fairseq_headprune.modules.shrink import shrink
from fairseq_headprune.parts import Mask, Part, all_heads
from fairseq_headprune.parts.layout import Layout
from fairseq_headprune.removal.checkpoint import remove_heads

RANDOM = [pytest.param(random_settings(seed), seed % 2, marks=pytest.mark.slow) for seed in range(12)]


@pytest.mark.parametrize("settings, ffn", [*itertools.product(SETTINGS, (False, True)), *RANDOM])
def test_slim_is_masked_on_every_path(settings, ffn, tmp_path, batch):
    masked, slim, full, mask = masked_and_slim(settings, tmp_path, ffn=ffn)
    assert find_gates(slim).mask() == mask and (ffn or find_gates(slim).shape == mask.shape)
    same_on_every_path(slim, masked, batch, unlike=full)


@pytest.mark.parametrize("settings", SETTINGS[:3])
def test_gradients_of_kept_heads_are_the_masked_models(settings, tmp_path, batch):
    masked, slim, _, mask = masked_and_slim(settings, tmp_path)
    for model in (masked, slim):
        logits = model.train()(**batch["net_input"])[0]
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["target"].flatten()).backward()
    modules = dict(slim.named_modules())
    for name, parameter in masked.named_parameters():
        owner = modules[name.rpartition(".self_attn")[0] + ".self_attn"] if ".self_attn." in name else None
        if ".encoder_attn." in name:
            owner = modules[name.partition(".encoder_attn")[0] + ".encoder_attn"]
        expected = parameter.grad
        if owner is not None and not name.endswith("out_proj.bias"):
            rows = [h * owner.head_dim + i for h in owner.indices for i in range(owner.head_dim)]
            expected = expected[:, rows] if "out_proj" in name else expected[rows]
            if not rows:
                assert name not in dict(slim.named_parameters())
                continue
        found = slim.get_parameter(name).grad
        # Without any head of the first encoder-decoder layers a path is cut; both have no gradient then.
        zero = torch.zeros_like(expected)
        assert torch.allclose(zero if found is None else found, expected, atol=1e-5, rtol=1e-4), name


def test_parameters_fall_by_the_hand_count():
    # 8 -> 2 heads in all 6 attention modules, d = 64, hd = 8: 6 * hd * (4 d + 3) = 12432 each.
    model = tiny.make_model(encoder_attention_heads=8, decoder_attention_heads=8)
    mask = Mask({c: [[0, 1, 0, 0, 0, 0, 1, 0]] * 2 for c in ("enc_self", "enc_dec", "dec_self")})
    removal = remove_heads(state_of(model), mask)
    small = rebuild(removal.state)
    before, after = (sum(p.numel() for p in m.parameters()) for m in (model, small))
    assert before - after == 6 * 12432 == removal.parameters["by_formula"]
    assert (removal.parameters["before"], removal.parameters["after"]) == (before, after)


def test_attributes_agree_with_weights_and_types_change_together(tmp_path, batch):
    _, slim, _, _ = masked_and_slim(SETTINGS[0], tmp_path)
    for _, _, module in find_gates(slim.half()).items():
        width = module.num_heads * module.head_dim
        assert module.out_proj.in_features == module.out_proj.weight.shape[1] == width
        assert module.out_proj.weight.dtype == module.out_proj.bias.dtype == torch.half
        assert module.out_proj.out_features == module.embed_dim == 64
        if not width:
            assert module.q_proj is module.k_proj is module.v_proj is None
            assert [name for name, _ in module.named_parameters()] == ["out_proj.bias"]
            continue
        for projection in (module.q_proj, module.k_proj, module.v_proj):
            assert projection.out_features == projection.weight.shape[0] == projection.bias.shape[0] == width
            assert projection.in_features == projection.weight.shape[1] == 64
            assert projection.weight.is_contiguous() and projection.weight.requires_grad
            assert projection.weight.untyped_storage().nbytes() == projection.weight.nbytes
    assert slim.bfloat16()(**batch["net_input"])[0].isfinite().all()


def test_removing_again_goes_by_original_numbers():
    # Public report 27 (transformers #1077): six heads; {1}, then {3}, then {1} again leave [0, 2, 4, 5].
    model = lively(
        {"encoder_attention_heads": 4, "encoder_embed_dim": 48, "decoder_embed_dim": 48, "decoder_attention_heads": 6}
    )
    full = Mask.full(find_gates(model).shape)

    def prune(state, *heads):
        mask = stored_mask(state) or full
        return remove_heads(state, mask.without([Part("dec_self", 1, h) for h in heads])).state

    start = state_of(model)
    first = prune(prune(start, 1), 3)
    again, other, once = prune(first, 1), prune(prune(start, 3), 1), prune(start, 1, 3)
    for state in (first, again, other, once):
        assert stored_layout(state).indices("dec_self", 1) == [0, 2, 4, 5]
        assert all(torch.equal(value, once["model"][name]) for name, value in state["model"].items())
        assert head_shape(state) == full.shape
    with pytest.raises(ValueError, match="keeps 2 heads that were removed .*dec_self layer 1 head 1.*cannot come back"):
        remove_heads(once, full)


def test_masks_and_scores_speak_original_numbers(tmp_path, batch):
    masked, slim, _, mask = masked_and_slim(SETTINGS[0], tmp_path)
    for estimator in ESTIMATORS:
        settings = ScoreSettings(estimator=estimator, normalize="none")
        found, expected = (
            estimate(m.eval(), find_gates(m), [batch], settings, tiny.make_task()) for m in (slim, masked)
        )
        assert found.shape == mask.shape
        for head in all_heads(mask.shape):
            assert (found[head] is None) == (head in mask.dropped())
            if found[head] is not None:
                assert found[head] == pytest.approx(expected[head], rel=1e-3, abs=1e-6), (estimator, head)
    # Without any encoder-decoder head the encoder is cut off: its heads have no derivative.
    alone = rebuild(remove_heads(state_of(slim), mask.without(mask.kept(["enc_dec"]))).state)
    scores = estimate(alone, find_gates(alone), [batch], ScoreSettings(normalize="none"), tiny.make_task())
    assert {scores[head] for head in mask.kept(["enc_self"])} == {0.0}
    gates = find_gates(slim)
    fewer = mask.without(mask.kept()[:2])
    with gates.masked(fewer), torch.no_grad():
        assert gates.mask() == fewer
        find_gates(masked).set_mask(fewer)
        assert torch.allclose(slim(**batch["net_input"])[0], masked(**batch["net_input"])[0], atol=1e-5)
    with pytest.raises(ValueError, match="cannot come back"):
        gates.set_mask(Mask.full(mask.shape))
    gates.set_mask(fewer)
    again = state_of(slim)
    assert stored_mask(again) == fewer
    assert find_gates(rebuild(remove_heads(again).state)).mask() == fewer


def test_tied_embeddings_are_stored_once():
    model = tiny.make_model(share_all_embeddings=True)
    state = state_of(model)
    # As written from a GPU: every name has a copy of its own.
    state["model"] = type(state["model"])((name, value.clone()) for name, value in state["model"].items())
    mask = Mask.full(find_gates(model).shape).without([Part("enc_self", 0, 0)])
    weights = remove_heads(state, mask).state["model"]
    names = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "decoder.output_projection.weight")
    assert len({weights[name].data_ptr() for name in names}) == 1
    slim = rebuild(remove_heads(state, mask).state)
    assert slim.decoder.output_projection.weight is slim.encoder.embed_tokens.weight


def test_baked_weights_are_a_stock_model(batch):
    full = lively(SETTINGS[3])
    mask = uneven(full, 5)
    masked = copy.deepcopy(full)
    find_gates(masked).set_mask(mask)
    slim = remove_heads(state_of(full), mask).state
    for state in (remove_heads(state_of(full), mask, bake=True).state, remove_heads(slim, bake=True).state):
        stock = rebuild(state)
        assert saved_settings(state).arch == "transformer_tiny" and not hasattr(saved_settings(state), "head_layout")
        assert not any(isinstance(m, GatedMultiheadAttention) for m in stock.modules())
        assert {n: v.shape for n, v in state["model"].items()} == {n: v.shape for n, v in full.state_dict().items()}
        same_on_every_path(stock, masked, batch, unlike=full)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kept", [[0, 2], []])
@pytest.mark.parametrize("extra", [True, False])
def test_modules_without_bias_or_with_extra_keys(bias, kept, extra):
    # fairseq's transformer uses neither bias=False nor add_bias_kv; other models do.
    torch.manual_seed(1)
    stock = MultiheadAttention(12, 3, bias=bias, add_bias_kv=extra, add_zero_attn=extra, self_attention=True)
    module = GatedMultiheadAttention.adopt(stock).eval()
    small = copy.deepcopy(module)
    shrink(GatedParts({"enc_self": [small]}), Layout({"enc_self": [3]}, {"enc_self": [kept]}))
    module.set_keep([int(h in kept) for h in range(3)])
    x = torch.randn(5, 2, 12)
    with torch.no_grad():
        expected, weights = module(x, x, x)
        found, zeros = small(x, x, x)
    assert torch.allclose(found, expected, atol=1e-6)
    if kept:
        assert zeros.shape == weights.shape
    else:
        assert zeros.shape == (2, 5, 5) and not zeros.any() and len(list(small.parameters())) == int(bias)
        cache = {}
        small(x, x, x, incremental_state=cache)
        assert small.reorder_incremental_state(cache, torch.tensor([1, 0])) == cache == {}


@pytest.mark.parametrize(
    "change, message",
    [
        ({"format": "headprune.layout/3"}, "headprune.layout/3' is not known here .* upgrade fairseq_headprune"),
        ({"kept": {"enc_self": [[0], [1, 0]]}}, r"enc_self layer 1: expected ascending .* found \[1, 0\]"),
        ({"kept": {"enc_self": [[0], [2]]}}, r"enc_self layer 1: expected ascending head numbers from 0 to 1, found"),
        ({"kept": {"enc_self": [[0]]}}, "the layout of enc_self has 1 layers, expected 2"),
        ({"original": None}, '"original" and "kept" must hold one list a component'),
    ],
)
def test_a_wrong_layout_is_refused(change, message):
    value = Layout({"enc_self": [2, 2]}, {"enc_self": [[0], []]}).to_dict()
    with pytest.raises(ValueError, match=message):
        Layout.from_dict(value | change)


def test_an_edited_file_is_refused_by_layer_and_component():
    model = lively(SETTINGS[0])
    mask = Mask.full(find_gates(model).shape).without([Part("enc_dec", 1, 0)])
    state = remove_heads(state_of(model), mask).state
    settings = saved_settings(state)
    settings.head_layout["kept"]["enc_dec"][1] = [2, 3]
    place = r"decoder.layers.1.encoder_attn: the checkpoint has 3 heads, the model was built with 2 \(enc_dec layer 1\)"
    with pytest.raises(RuntimeError, match=place):
        rebuild(state)
    with pytest.raises(ValueError, match="enc_dec layer 1: the weights were saved with 3 heads, .* settings say 2"):
        head_shape(state)
    settings.head_layout["kept"]["enc_dec"][1] = [0, 1, 3]
    with pytest.raises(RuntimeError, match=r"original heads \[1, 2, 3\], the model was built with \[0, 1, 3\]"):
        rebuild(state)
    state["model"]._metadata = {}
    settings.head_layout["kept"]["enc_dec"][1] = [1, 2]
    with pytest.raises(ValueError, match="enc_dec layer 1: expected 2 heads of width 16 .*, found weights for 3"):
        head_shape(state)
    settings.head_layout["kept"]["enc_dec"][1], settings.decoder_attention_heads = [1, 2, 3], 8
    with pytest.raises(ValueError, match="^enc_dec layer 0: the layout expects 4 heads .* settings say 8"):
        rebuild(state)


def test_what_cannot_be_cut_is_refused():
    model = tiny.make_model()
    mask = Mask.full(find_gates(model).shape).without([Part("enc_self", 0, 0)])
    for change, message in (
        (
            {"arch": "fconv", "_name": "fconv"},
            "cannot remove heads of the architecture 'fconv'; known are transformer,",
        ),
        ({"scale_heads": True}, "built with scale_heads"),
        ({"quant_noise_pq": 0.1}, "built with quant_noise_pq"),
    ):
        state = state_of(model)
        vars(saved_settings(state)).update(change)
        with pytest.raises(ValueError, match=message):
            remove_heads(state, mask)
    with pytest.raises(ValueError, match="a part of a sharded checkpoint"):
        remove_heads({**state_of(model), "fsdp_metadata": {}}, mask)
    with pytest.raises(ValueError, match="the checkpoint holds no mask; say .* --mask FILE"):
        remove_heads(state_of(model))
    quantised = state_of(model)
    centroids = quantised["model"].pop("encoder.layers.0.self_attn.q_proj.weight")
    quantised["model"]["encoder.layers.0.self_attn.q_proj.centroids"] = centroids
    with pytest.raises(ValueError, match="enc_self layer 0: its projections are not plain .*quantised"):
        remove_heads(quantised, mask)
    ffn = Mask({**mask.rows, "enc_ffn": [[1], [0]]})
    with pytest.raises(ValueError, match="prunes feed-forward units or blocks; remove them, too, with --ffn"):
        remove_heads(state_of(model), ffn)


def test_an_edited_head_count_of_a_baked_model_is_refused():
    # The model has 4 heads, which the weights do not tell: they would fit 2, of another width.
    model = lively(SETTINGS[0])
    state = remove_heads(state_of(model), uneven(model, 3), bake=True).state
    heads = state["cfg"]["model"].encoder_attention_heads
    state["cfg"]["model"].encoder_attention_heads = heads // 2
    with pytest.raises(ValueError, match=f"saved with {heads} heads, the checkpoint's settings say {heads // 2}"):
        head_shape(state)


def test_parameters_of_a_head_where_encoder_and_decoder_have_other_widths():
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    model = lively({"encoder_embed_dim": 32, "decoder_embed_dim": 64, **heads})
    mask = Mask.full(find_gates(model).shape).without([Part("enc_dec", 0, 1)])
    found = remove_heads(state_of(model), mask).parameters
    # By hand: d = 64, e = 32, 4 heads of 16. Query and output hd d each, key and value hd e each, three biases of hd.
    assert found["by_formula"] == found["before"] - found["after"] == 16 * (2 * 64 + 2 * 32 + 3)
