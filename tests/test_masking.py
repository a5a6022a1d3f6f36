"""A masked model is the model whose heads were cut out by hand, on every way a translation is made.

One module (caches that are reordered, state dicts, half precision, no heads at all): test_multihead_*.py.
"""

import copy

import pytest
import tiny
import torch
from slim_models import lively, logits, same_on_every_path, search, uneven

from fairseq_headprune.modules.attach import attach_gates, find_gates

SIZES = {"encoder_attention_heads": 8, "decoder_attention_heads": 4}
SHAPE = {"enc_self": [8, 8], "enc_dec": [4, 4], "dec_self": [4, 4]}


def masked(seed):
    """A model under an uneven mask, and the mask."""
    model = lively(SIZES)
    mask = uneven(model, seed)
    find_gates(model).set_mask(mask)
    return model, mask


def cut(mask):
    """The reference: the columns of ``out_proj`` that read the pruned heads are zeroed by hand, by layer names."""
    model = lively(SIZES)
    for component, layer, head in mask.dropped():
        side = model.encoder if component == "enc_self" else model.decoder
        module = getattr(side.layers[layer], "encoder_attn" if component == "enc_dec" else "self_attn")
        width = 64 // SHAPE[component][layer]
        module.out_proj.weight.data[:, head * width : (head + 1) * width] = 0
    return model


@pytest.mark.parametrize("seed", range(6))
def test_masked_equals_cut_on_every_path(seed, batch):
    model, mask = masked(seed)
    same_on_every_path(model, cut(mask), batch, unlike=lively(SIZES))
    assert search([model], batch) != search([lively(SIZES)], batch)


@pytest.mark.parametrize("seed", [0, 1])
def test_step_by_step_equals_teacher_forced(seed, batch):
    model, _ = masked(seed)
    expected = model(**batch["net_input"])[0]
    source = {k: batch["net_input"][k] for k in ("src_tokens", "src_lengths")}
    encoded, state, tokens = model.encoder(**source), {}, batch["net_input"]["prev_output_tokens"]
    read, steps = [], []
    model.decoder.layers[0].register_forward_pre_hook(lambda _, args: read.append(args[0].size(0)))
    for t in range(tokens.size(1)):
        steps.append(model.decoder(tokens[:, : t + 1], encoder_out=encoded, incremental_state=state)[0])
    real = batch["target"].ne(1)
    assert torch.allclose(torch.cat(steps, dim=1)[real], expected[real], atol=1e-5)
    assert read == [1] * tokens.size(1)  # the cache is used: each step reads one token


def test_greedy_search_equals_the_argmax_of_full_passes(batch):
    model, _ = masked(3)
    for row, found in zip(batch["net_input"]["src_tokens"], search([model], batch, 1)[0], strict=True):
        source, tokens = row[row.ne(1)][None], [2]
        while len(tokens) < 14 and (len(tokens) == 1 or tokens[-1] != 2):
            scores = model(source, torch.tensor([source.size(1)]), torch.tensor([tokens]))[0][0, -1].clone()
            scores[1] = float("-inf")  # the search never writes padding,
            if len(tokens) == 1:
                scores[2] = float("-inf")  # nor an empty sentence (min_len 1),
            tokens.append(2 if len(tokens) == 13 else int(scores.argmax()))  # and ends at max_len_b
        assert found == tokens[1:]


def test_an_ensemble_of_masked_models_sees_both_masks(batch):
    pairs = [masked(0), masked(3)]
    found = search([model for model, _ in pairs], batch, 2)[0]
    assert found == search([cut(mask) for _, mask in pairs], batch, 2)[0]
    assert found != search([pairs[0][0], lively(SIZES)], batch, 2)[0]


def test_search_with_shared_sources_equals_stock():
    # BART shares keys among the beams of a sentence (set_beam_size), and the size stays set after the search.
    settings = {"encoder_layers": 2, "decoder_layers": 2, "encoder_embed_dim": 16, "decoder_embed_dim": 16}
    settings |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_embed_dim": 16}
    stock = tiny.make_model("bart_base", **settings)
    gated = copy.deepcopy(stock)
    gates = attach_gates(gated)
    batch = tiny.make_batch()
    before = gated(**batch["net_input"])[0]
    assert search([gated], batch, 3)[0] == search([stock], batch, 3)[0]
    assert gates.modules["enc_dec"][0].beam_size == 3
    assert torch.allclose(gated(**batch["net_input"])[0], before, atol=1e-5)


def test_gradients_are_those_of_the_cut_model(batch):
    model, mask = masked(3)
    grads = []
    for one in (model.train(), cut(mask).train()):
        logits(one, batch).square().sum().backward()
        grads.append({name: p.grad for name, p in one.named_parameters() if "out_proj" not in name})
    for name, grad in grads[1].items():
        found, expected = (torch.zeros(()) if g is None else g for g in (grads[0][name], grad))
        assert torch.isfinite(found).all() and torch.allclose(found, expected, atol=1e-3, rtol=1e-4), name
    # Pruned heads do not learn: rows of the whole layer that lost all heads have gradient 0.
    assert not grads[0]["decoder.layers.0.self_attn.v_proj.weight"].any()


def test_masks_by_gate_equal_masks_by_keep(batch):
    (masked_model, mask), model = masked(2), lively(SIZES)
    expected = logits(masked_model, batch)
    with find_gates(model).leaf_gates(lambda component, heads: (3, heads)) as gates, torch.no_grad():
        for component, rows in gates.items():
            for gate, row in zip(rows, mask.rows[component], strict=True):
                gate.copy_(torch.tensor(row).expand(3, -1))
        assert torch.allclose(logits(model, batch), expected, atol=1e-5)
