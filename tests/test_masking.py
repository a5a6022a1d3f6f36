"""A masked model is the model whose heads were cut out by hand, on every way a translation is made.

One module (caches that are reordered, state dicts, half precision, no heads at all): test_multihead_*.py.
"""

import copy
import random

import pytest
import tiny
import torch
from fairseq.sequence_generator import SequenceGenerator

from fairseq_headprune.modules.attach import attach_gates, find_gates
from fairseq_headprune.parts import Mask, Part

SIZES = {"encoder_attention_heads": 8, "decoder_attention_heads": 4}
SHAPE = {"enc_self": [8, 8], "enc_dec": [4, 4], "dec_self": [4, 4]}


def uneven(seed):
    """A random mask with another number of heads in every layer; one layer in two of the seeds loses all."""
    draw = random.Random(seed)
    mask = Mask({c: [[draw.randint(0, 1) for _ in range(n)] for n in row] for c, row in SHAPE.items()})
    return mask.without([Part("dec_self", 1, h) for h in range(4)]) if seed % 2 else mask


def build(**settings):
    """A model whose attention matters: larger random weights than a fresh one's."""
    model = tiny.make_model("transformer_gated_tiny", **SIZES, **settings)
    generator = torch.Generator().manual_seed(11)
    for name, parameter in model.named_parameters():
        if "attn" in name and "norm" not in name:
            parameter.data += 0.2 * torch.randn(parameter.shape, generator=generator)
    return model


def masked(mask, **settings):
    model = build(**settings)
    find_gates(model).set_mask(mask)
    return model


def cut(mask, **settings):
    """The reference: the columns of ``out_proj`` that read the pruned heads are zeroed by hand, by layer names."""
    model = build(**settings)
    for component, layer, head in mask.dropped():
        side = model.encoder if component == "enc_self" else model.decoder
        module = getattr(side.layers[layer], "encoder_attn" if component == "enc_dec" else "self_attn")
        width = 64 // SHAPE[component][layer]
        module.out_proj.weight.data[:, head * width : (head + 1) * width] = 0
    return model


def logits(model, batch):
    return model(**batch["net_input"])[0][batch["target"].ne(1)]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("training", [False, True])
def test_masked_equals_cut_teacher_forced(seed, training, batch):
    mask = uneven(seed)
    found, expected = masked(mask).train(training), cut(mask).train(training)
    assert torch.allclose(logits(found, batch), logits(expected, batch), atol=1e-5)
    assert (logits(found, batch) - logits(build(), batch)).abs().max() > 0.01


@pytest.mark.parametrize("seed", [0, 1])
def test_step_by_step_equals_teacher_forced(seed, batch):
    model = masked(uneven(seed))
    expected = model(**batch["net_input"])[0]
    source = {k: batch["net_input"][k] for k in ("src_tokens", "src_lengths")}
    encoded, state, tokens = model.encoder(**source), {}, batch["net_input"]["prev_output_tokens"]
    read = []
    model.decoder.layers[0].register_forward_pre_hook(lambda _, args: read.append(args[0].size(0)))
    steps = [
        model.decoder(tokens[:, : t + 1], encoder_out=encoded, incremental_state=state)[0]
        for t in range(tokens.size(1))
    ]
    real = batch["target"].ne(1)
    assert torch.allclose(torch.cat(steps, dim=1)[real], expected[real], atol=1e-5)
    assert read == [1] * tokens.size(1)  # the cache is used: each step reads one token


def translate(models, batch, beam, **settings):
    """The tokens and scores of every hypothesis of fairseq's own search."""
    generator = SequenceGenerator(models, tiny.make_dictionary(), beam_size=beam, max_len_b=12, **settings)
    found = generator.generate(models, batch)
    return [[(h["tokens"].tolist(), float(h["score"])) for h in hypotheses] for hypotheses in found]


@pytest.mark.parametrize("seed", [0, 1, 4])
@pytest.mark.parametrize("beam", [1, 5])
def test_search_sees_the_mask(seed, beam, batch):
    mask = uneven(seed)
    found, expected = translate([masked(mask)], batch, beam), translate([cut(mask)], batch, beam)
    assert [[tokens for tokens, _ in row] for row in found] == [[tokens for tokens, _ in row] for row in expected]
    scores = [score for row in found for _, score in row]
    assert scores == pytest.approx([score for row in expected for _, score in row], abs=1e-5)
    assert translate([build()], batch, beam) != found


def test_greedy_search_equals_the_argmax_of_full_passes(batch):
    model = masked(uneven(3))
    for row, hypotheses in zip(batch["net_input"]["src_tokens"], translate([model], batch, 1), strict=True):
        source, tokens = row[row.ne(1)][None], [2]
        while len(tokens) < 14 and (len(tokens) == 1 or tokens[-1] != 2):
            scores = model(source, torch.tensor([source.size(1)]), torch.tensor([tokens]))[0][0, -1].clone()
            scores[1] = float("-inf")  # the search never writes padding,
            if len(tokens) == 1:
                scores[2] = float("-inf")  # nor an empty sentence (min_len 1),
            tokens.append(2 if len(tokens) == 13 else int(scores.argmax()))  # and ends at max_len_b
        assert hypotheses[0][0] == tokens[1:]


def test_an_ensemble_of_masked_models_sees_both_masks(batch):
    masks = [uneven(0), uneven(3)]
    found = translate([masked(m) for m in masks], batch, 2)
    expected = translate([cut(m) for m in masks], batch, 2)
    assert [[t for t, _ in row] for row in found] == [[t for t, _ in row] for row in expected]
    assert found != translate([masked(masks[0]), build()], batch, 2)


def test_search_with_shared_sources_equals_stock():
    # BART shares keys among the beams of a sentence (set_beam_size), and the size stays set after the search.
    settings = {"encoder_layers": 2, "decoder_layers": 2, "encoder_embed_dim": 16, "decoder_embed_dim": 16}
    settings |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_embed_dim": 16}
    stock = tiny.make_model("bart_base", **settings)
    gated = copy.deepcopy(stock)
    gates = attach_gates(gated)
    batch = tiny.make_batch()
    before = gated(**batch["net_input"])[0]
    assert [[t for t, _ in row] for row in translate([gated], batch, 3)] == [
        [t for t, _ in row] for row in translate([stock], batch, 3)
    ]
    assert gates.modules["enc_dec"][0].beam_size == 3
    assert torch.allclose(gated(**batch["net_input"])[0], before, atol=1e-5)


def test_gradients_are_those_of_the_cut_model(batch):
    mask = uneven(3)
    grads = []
    for model in (masked(mask).train(), cut(mask).train()):
        logits(model, batch).square().sum().backward()
        grads.append({name: p.grad for name, p in model.named_parameters() if "out_proj" not in name})
    assert all(torch.isfinite(g).all() for g in grads[0].values())
    for name, grad in grads[1].items():
        assert torch.allclose(grads[0][name], grad, atol=1e-3, rtol=1e-4), name
    # Pruned heads do not learn: rows of the whole layer that lost all heads have gradient 0.
    assert not grads[0]["decoder.layers.1.self_attn.v_proj.weight"].any()


def test_masks_by_gate_equal_masks_by_keep(batch):
    mask = uneven(2)
    model, expected = build(), logits(masked(mask), batch)
    with find_gates(model).leaf_gates(lambda component, heads: (3, heads)) as gates, torch.no_grad():
        for component, rows in gates.items():
            for gate, row in zip(rows, mask.rows[component], strict=True):
                gate.copy_(torch.tensor(row).expand(3, -1))
        assert torch.allclose(logits(model, batch), expected, atol=1e-5)
