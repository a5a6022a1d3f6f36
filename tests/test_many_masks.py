"""Many masks in one batch: the translations of one run a mask, and a mask for each row."""

from argparse import Namespace

import pytest
import tiny
import torch
from verbs import session, write_lively

from fairseq_headprune.evaluation import search
from fairseq_headprune.evaluation.memory import fitting
from fairseq_headprune.evaluation.translate import Translator
from fairseq_headprune.modules.attach import find_gates
from fairseq_headprune.modules.attention import apply_gate
from fairseq_headprune.modules.row_masks import RowMasks, encoder_groups
from fairseq_headprune.modules.shrink import shrink
from fairseq_headprune.parts import FFN, HEADS, Mask, Part, all_heads
from fairseq_headprune.parts.layout import Layout
from fairseq_headprune.pruning import one_kept, one_removed


def some_masks(gates):
    """The unpruned model, every head or block alone removed, and whole components, half of the units, or everything."""
    full, blocks, units = gates.mask(), gates.mask("blocks"), gates.mask("units")
    whole = [full.without(full.kept([component])) for component in HEADS]
    ffn = [*one_removed(blocks, FFN).values(), units.without(part for part in units.kept(FFN) if part.index % 2)]
    return [full, *one_removed(full, HEADS).values(), *whole, full.without(full.kept()), *ffn]


def one_by_one(loaded, translator, masks):
    found = []
    for mask in masks:
        with loaded.gates.masked(mask):
            found.append(translator.answers())
    return found


SETTINGS = {
    "beam 1": ["--beam", "1", "--max-len-b", "20"],
    "beam 5, some end early and some never": ["--beam", "5", "--max-len-b", "12"],
    "batch of one": ["--beam", "3", "--batch-size", "1", "--max-len-b", "8"],
    "limit by batch": ["--beam", "4", "--max-len-a", "1.5", "--max-len-b", "1", "--batch-size", "3"],
    "penalties": "--beam 3 --lenpen 0.3 --unkpen 2 --min-len 4 --temperature 1.3 --max-len-b 10".split(),
    "no normalisation": ["--unnormalized", "--max-len-b", "9"],
    "prefix": ["--beam", "4", "--prefix-size", "2", "--max-len-b", "10"],
    "prefix with its end": ["--beam", "4", "--prefix-size", "4", "--max-len-b", "10"],
    "prefix beyond the limit": ["--prefix-size", "3", "--max-len-b", "2"],
    "no tokens at all": ["--beam", "4", "--min-len", "0", "--max-len-b", "0"],
    "some sentences without any": "--beam 4 --min-len 0 --max-len-a 0.2 --max-len-b 0 --batch-size 1".split(),
    "a beam as wide as the vocabulary": ["--beam", "50", "--max-len-b", "4"],
    "the best of several": ["--beam", "4", "--nbest", "2", "--max-len-b", "9"],
}


@pytest.mark.parametrize("flags", SETTINGS.values(), ids=SETTINGS.keys())
def test_translations_are_those_of_one_run_a_mask(lively, flags):
    # Source: fairseq's own generator, one mask after the other.
    loaded = session(lively, *flags)
    translator, masks = Translator(loaded, "test"), some_masks(loaded.gates)
    expected = one_by_one(loaded, translator, masks)
    assert translator.answers_of(masks) == expected
    # Masks make a difference, except where prefixes or limits leave no choice.
    assert len(set(map(tuple, expected))) >= (1 if {"--prefix-size", "--min-len"} & set(flags) else 10)


def test_limits_are_those_of_batches_of_which_a_short_sentence_alone_has_less(lively):
    # Source: fairseq's own generator; by hand: a sentence of 2 tokens would have a limit of 2.
    loaded = session(lively, *"--beam 2 --min-len 4 --max-len-a 1 --max-len-b 0".split())
    translator, full = Translator(loaded, "test"), loaded.gates.full()
    assert translator.answers_of([full]) == one_by_one(loaded, translator, [full])
    fits = fitting(loaded.model, Namespace(share=lambda: 10**9), 2, translator._many.limit)
    assert fits([9, 2], 2) == 2
    translator = Translator(session(lively, *"--min-len 99 --max-len-a 1 --max-len-b 0".split()), "test")
    with pytest.raises(ValueError, match="--min-len 99 is more than the largest length"):
        translator.answers_of([full])


def test_packing_does_not_change_translations(lively, monkeypatch):
    # Source: the same masks in another order, one a pack, in batches of few rows, and with probabilities in parts.
    loaded = session(lively, "--beam", "3", "--max-len-b", "9", "--max-len-a", "0.5")
    translator, masks = Translator(loaded, "test"), some_masks(loaded.gates)
    found = translator.answers_of(masks)
    assert translator.answers_of(masks[::-1]) == found[::-1]
    assert [translator.answers_of([mask])[0] for mask in masks] == found
    monkeypatch.setattr(translator._packer, "_fitting", lambda lengths, rows: 40 // rows)
    assert translator.answers_of(masks) == found
    monkeypatch.setattr(search, "_PROBABILITIES", 200)
    assert translator.answers_of(masks) == found


def test_equal_translations_are_decoded_once(lively, monkeypatch):
    # Source: by hand: there are 8 sentences, all in one batch.
    loaded = session(lively, "--beam", "2", "--max-len-b", "9")
    translator, full, decoded = Translator(loaded, "test"), loaded.gates.full(), []
    decode = translator._decode
    monkeypatch.setattr(translator, "_decode", lambda tokens: decoded.append(tuple(tokens)) or decode(tokens))
    translator.answers_of([full] * 5)
    assert 1 < len(decoded) == len(set(decoded)) <= 8


def test_uneven_heads_and_layers_without_any(lively):
    # Source: fairseq's own generator on the same model.
    loaded = session(lively, "--beam", "5", "--max-len-b", "12")
    gone = [Part("enc_self", 0, 0), Part("enc_dec", 1, 1), Part("dec_self", 0, 0), Part("dec_self", 0, 1)]
    shrink(loaded.gates, Layout.full(loaded.gates.shape).under(loaded.gates.full().without(gone)))
    translator = Translator(loaded, "test")
    full = loaded.gates.full()
    masks = [full, *one_removed(full, HEADS).values(), full.without(full.kept())]
    assert len(masks) == 10
    expected = one_by_one(loaded, translator, masks)
    assert translator.answers_of(masks) == expected and len(set(map(tuple, expected))) > 5
    with pytest.raises(ValueError, match="removed"):
        translator.answers_of([Mask.full(full.shape)])


def test_the_mask_in_force_does_not_count_and_comes_back(lively):
    # Source: the contract: a mask says everything about the heads.
    loaded = session(lively, "--beam", "2", "--max-len-b", "9")
    translator, full = Translator(loaded, "test"), loaded.gates.full()
    masks = [mask for heads in one_kept(full, ["enc_self", "dec_self"]).values() for mask in heads.values()]
    expected = translator.answers_of(masks)
    present = full.without(all_heads(full.shape)[:5])
    loaded.gates.set_mask(present)
    before = translator.answers()
    assert translator.answers_of(masks) == expected
    assert loaded.gates.mask() == present and translator.answers() == before
    assert all(module.row_keep is None for _, _, module in loaded.gates.items())


def test_the_encoder_is_computed_once_for_all_masks_of_the_decoder(lively):
    loaded = session(lively, "--beam", "2", "--max-len-b", "3")
    full = loaded.gates.full()
    translator, rows = Translator(loaded, "test"), []
    for layer in loaded.model.encoder.layers:
        layer.register_forward_hook(lambda module, given, output: rows.append(output.size(1)))
    translator.answers_of([full, *one_removed(full, ["enc_dec", "dec_self"]).values()])
    # Source: by hand: 8 sentences, two layers.
    assert rows == [8, 8]
    rows.clear()
    # Layer 0 with its heads 0 and 1 removed: 3 ways; layer 1 as well: the two masks of layer 1 share layer 0.
    translator.answers_of([full, *one_removed(full, HEADS).values()])
    assert rows == [3 * 8, 5 * 8]


def test_a_stock_checkpoint(trained_stock, tmp_path):
    # Source: fairseq's own generator.
    loaded = session(write_lively(trained_stock, tmp_path), "--beam", "5", "--max-len-b", "12")
    translator, masks = Translator(loaded, "test"), some_masks(loaded.gates)
    assert translator.answers_of(masks) == one_by_one(loaded, translator, masks)


@pytest.mark.parametrize(
    "flags, name",
    [
        (["--no-repeat-ngram-size", "2"], "--no-repeat-ngram-size"),
        (["--match-source-len"], "another search"),
        (["--diverse-beam-groups", "2", "--beam", "4"], "another search"),
        (["--model-overrides", "{'cross_self_attention': True}"], "--cross-self-attention"),
    ],
)
def test_what_needs_fairseqs_own_generator_is_named(lively, flags, name):
    loaded = session(lively, *flags)
    translator = Translator(loaded, "test")
    assert name in translator.obstacle
    with pytest.raises(ValueError, match=name):
        translator.answers_of([loaded.gates.mask()])


def test_a_model_that_is_not_finite_is_an_error(lively):
    loaded = session(lively, "--max-len-b", "4")
    with torch.no_grad():
        loaded.model.decoder.layers[0].fc1.bias.fill_(float("nan"))
    with pytest.raises(FloatingPointError, match="mask 0"):
        Translator(loaded, "test").answers_of([loaded.gates.mask()])


def test_a_token_after_which_nothing_is_finite_leaves_other_hypotheses(lively):
    # Source: fairseq's own generator, which gives every hypothesis keys and values of its own.
    loaded, found = session(lively, "--beam", "4", "--max-len-b", "10"), 0
    translator, full = Translator(loaded, "test"), loaded.gates.full()
    for expected in without_a_token(loaded, translator, range(4, 13)):
        if expected is None:
            with pytest.raises(FloatingPointError):
                translator.answers_of([full])
        else:
            assert translator.answers_of([full]) == expected
            found += 1
    assert found > 2


def without_a_token(loaded, translator, tokens):
    """Yield fairseq's translations while each token is NaN in the decoder; None if nothing is left of a sentence."""
    for token in tokens:

        def not_finite(module, inputs, output, token=token):
            # The decoder reads one token a step; the encoder may share the embedding.
            return output.masked_fill(inputs[0].eq(token)[..., None], torch.nan) if inputs[0].size(1) == 1 else output

        hook = loaded.model.decoder.embed_tokens.register_forward_hook(not_finite)
        try:
            expected = one_by_one(loaded, translator, [loaded.gates.full()])
        except FloatingPointError:
            expected = None
        yield expected
        hook.remove()


def test_a_head_that_is_not_finite_is_silenced_in_its_rows_only(lively):
    # Source: the same head masked by ``set_mask``. A NaN times 0 would be NaN.
    loaded = session(lively, "--max-len-b", "6")
    width = loaded.gates.modules["dec_self"][0].head_dim
    with torch.no_grad():
        loaded.gates.modules["dec_self"][0].v_proj.bias[:width] = float("nan")
    translator, mask = Translator(loaded, "test"), loaded.gates.full().without([Part("dec_self", 0, 0)])
    assert translator.answers_of([mask]) == one_by_one(loaded, translator, [mask])


def test_rows_are_masked_as_whole_batches_are(tiny_model, batch):
    # Source: each mask set for the whole batch.
    gates = find_gates(tiny_model)
    full = Mask.full(tiny.SHAPE)
    masks = [full, full.without([Part("enc_self", 0, 1), Part("dec_self", 1, 0)]), full.without(full.kept(["enc_dec"]))]
    inputs = batch["net_input"]
    rows = RowMasks(gates, masks)
    assert rows.masks == 3
    with rows.in_force(), torch.no_grad():
        for component in tiny.SHAPE:
            rows.set(component, torch.tensor([2, 0, 1]))
        found = tiny_model(**inputs)[0]
    for row, mask in enumerate([masks[2], masks[0], masks[1]]):
        with gates.masked(mask), torch.no_grad():
            assert torch.allclose(tiny_model(**inputs)[0][row], found[row], atol=1e-6)
    with torch.no_grad():
        assert not torch.allclose(tiny_model(**inputs)[0], found, atol=1e-3)


def test_a_pruned_head_is_replaced_not_multiplied():
    # Source: by hand; NaN times 0 would be NaN.
    heads = torch.ones(2, 2, 1, 1)
    heads[0, 1] = float("nan")
    keep = torch.tensor([[True, False], [False, True]])
    assert apply_gate(heads, None, keep).flatten().tolist() == [1, 0, 0, 1]


def test_groups_of_the_encoder():
    # Source: by hand.
    full = Mask.full(tiny.SHAPE)
    first, second = full.without([Part("enc_self", 0, 0)]), full.without([Part("enc_self", 1, 0)])
    masks = [full, first, full.without([Part("dec_self", 0, 0)]), second, first.without([Part("enc_self", 1, 0)])]
    assert encoder_groups(masks, 2) == [[0, 0, 0, 0, 0], [0, 1, 0, 0, 1], [0, 1, 0, 2, 3]]


def test_a_mask_of_another_model_is_refused(tiny_model):
    with pytest.raises(ValueError, match="enc_self"):
        RowMasks(find_gates(tiny_model), [Mask.full({"enc_self": [3, 2]})])


def test_rows_have_feed_forward_parts_of_their_own(tiny_model, batch):
    # Source: each mask set for the whole batch.
    gates = find_gates(tiny_model)
    full = Mask.full(tiny.SHAPE)
    units = [int(unit % 3 == 0) for unit in range(64)]
    masks = [
        full,
        Mask({**full.rows, "enc_ffn": [[0], [1]], "dec_ffn": [[1], units]}),
        Mask({**full.without([Part("enc_self", 0, 1)]).rows, "enc_ffn": [units, [1]], "dec_ffn": [[0], [0] * 64]}),
    ]
    rows = RowMasks(gates, masks)
    with rows.in_force(), torch.no_grad():
        for component in gates.components:
            rows.set(component, torch.tensor([2, 1, 0]))
        found = tiny_model(**batch["net_input"])[0]
    expected = []
    for mask in reversed(masks):
        with gates.masked(mask), torch.no_grad():
            expected.append(tiny_model(**batch["net_input"])[0][len(expected)])
    assert torch.allclose(found, torch.stack(expected), atol=1e-6)
    assert all(module.row_keep is module.row_block is None for _, _, module in gates.items(FFN))
    assert encoder_groups(masks, 2) == [[0, 0, 0], [0, 1, 2], [0, 1, 2]]
