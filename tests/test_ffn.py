"""Feed-forward units and blocks: masked, removed, reloaded. Reference: stock fairseq with zeros in the weights."""

import copy

import pytest
import tiny
import torch
from slim_models import SETTINGS, beam_five, incremental, lively, masked_and_slim, rebuild, state_of, with_ffn

from fairseq_headprune.checkpoints import has_mask, read_state, saved_settings, stored_mask
from fairseq_headprune.modules.attach import attach_gates, find_gates
from fairseq_headprune.modules.connected import check_connected
from fairseq_headprune.modules.ffn import GatedFfnOutput, NoUnits
from fairseq_headprune.parts import Mask
from fairseq_headprune.removal.checkpoint import remove_heads
from fairseq_headprune.removal.ffn_layout import FfnLayout, keep_highest

#: transformer_tiny has 64 units in each block, two layers a side
UNITS = [int(unit % 3 == 0) for unit in range(64)]
FFN = {"enc": [UNITS, 0], "dec": [[0] * 64, 1]}


def full_mask(model, ffn=None):
    return Mask(find_gates(model).full().rows, {"command": "test"}, ffn)


def zeroed(model):
    """By hand, on fairseq's own layers: what FFN prunes cannot reach the output."""
    result = copy.deepcopy(model)
    with torch.no_grad():
        layers = result.encoder.layers
        layers[0].fc2.weight[:, [unit for unit in range(64) if unit % 3]] = 0
        layers[1].fc2.weight.zero_()
        layers[1].fc2.bias.zero_()
        result.decoder.layers[0].fc2.weight.zero_()
    return result


@pytest.mark.parametrize("settings", SETTINGS[:3])
def test_masked_parts_contribute_nothing(settings, batch):
    model = lively(settings)
    reference = zeroed(model)
    gates = find_gates(model)
    with torch.no_grad():
        before = model(**batch["net_input"])[0]
        with gates.masked(full_mask(model, FFN)):
            assert gates.mask().ffn == FFN and gates.mask().source == {"command": "test"}
            assert torch.allclose(model(**batch["net_input"])[0], reference(**batch["net_input"])[0], atol=1e-5)
            assert torch.allclose(incremental(model, batch), incremental(reference, batch), atol=1e-5)
        assert torch.equal(model(**batch["net_input"])[0], before) and gates.mask().ffn is None
        assert not torch.allclose(reference(**batch["net_input"])[0], before, atol=1e-2)


def test_broken_weights_of_pruned_parts_do_not_reach_the_output(batch):
    model = lively(SETTINGS[0])
    with torch.no_grad():
        model.encoder.layers[1].fc2.weight[0, 0] = float("nan")
        model.decoder.layers[0].fc1.weight[5] = float("nan")
        find_gates(model).set_mask(full_mask(model, {"enc": [1, 0], "dec": [[int(u != 5) for u in range(64)], 1]}))
        assert model(**batch["net_input"])[0].isfinite().all()


@pytest.mark.parametrize("settings", SETTINGS)
def test_slim_is_masked_on_every_path(settings, tmp_path, batch):
    masked, slim, full, mask = masked_and_slim(settings, tmp_path, ffn=True)
    found = find_gates(slim).mask()
    assert (found.rows, found.ffn) == (mask.rows, mask.ffn)
    with torch.no_grad():
        for training in (False, True):  # dropout is 0
            outputs = [m.train(training)(**batch["net_input"])[0] for m in (masked, slim)]
            assert torch.allclose(*outputs, atol=1e-5, rtol=1e-5)
        masked.eval(), slim.eval()
        assert torch.allclose(incremental(masked, batch), incremental(slim, batch), atol=1e-5, rtol=1e-5)
        expected, found = beam_five(masked, batch), beam_five(slim, batch)
    assert [tokens for tokens, _ in found] == [tokens for tokens, _ in expected]
    assert [score for _, score in found] == pytest.approx([score for _, score in expected], abs=1e-5)


def test_parameters_fall_by_the_hand_count():
    # Width 64. Of the encoder 42 units (2 * 64 + 1 each) and one whole block (64 units and the bias of 64); of the
    # decoder 64 units.
    model = tiny.make_model()
    removal = remove_heads(state_of(model), full_mask(model, FFN), ffn=True)
    small = rebuild(removal.state)
    gone = (42 + 64 + 64) * 129 + 64
    before, after = (sum(p.numel() for p in m.parameters()) for m in (model, small))
    assert before - after == gone == removal.parameters["by_formula"]
    assert (removal.parameters["before"], removal.parameters["after"]) == (before, after)
    assert removal.ffn.counts()["enc"] == {"blocks": 1, "of_blocks": 2, "units": 22, "of_units": 128}
    layers = [*small.encoder.layers, *small.decoder.layers]
    assert [(layer.fc1.out_features if layer.fc2.in_features else 0) for layer in layers] == [22, 0, 0, 64]
    assert [type(layer.fc1) is NoUnits for layer in layers] == [False, True, True, False]
    assert [layer.fc2.bias is None for layer in layers] == [False, True, False, False]
    assert all(p.numel() and p.is_contiguous() for p in small.parameters())


def test_gradients_of_kept_units_are_the_masked_models(tmp_path, batch):
    masked, slim, _, _ = masked_and_slim(SETTINGS[0], tmp_path, ffn=True)
    for model in (masked, slim):
        logits = model.train()(**batch["net_input"])[0]
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["target"].flatten()).backward()
    compared = 0
    for side in ("encoder", "decoder"):
        for mine, theirs in zip(getattr(slim, side).layers, getattr(masked, side).layers, strict=True):
            kept = [u for u, keep in enumerate(theirs.fc2.kept() or []) if keep]
            if not kept:
                assert not [p for p in mine.fc1.parameters()]
                continue
            for name, index in (("fc1.weight", 0), ("fc1.bias", 0), ("fc2.weight", 1)):
                expected = theirs.get_parameter(name).grad.index_select(index, torch.tensor(kept))
                assert torch.allclose(mine.get_parameter(name).grad, expected, atol=1e-5, rtol=1e-4)
                compared += 1
            assert torch.allclose(mine.fc2.bias.grad, theirs.fc2.bias.grad, atol=1e-5, rtol=1e-4)
    assert compared == 6


def test_the_mask_travels_with_the_weights(tmp_path, batch):
    model = lively(SETTINGS[0])
    find_gates(model).set_mask(full_mask(model, FFN))
    torch.save(state_of(model), tmp_path / "masked.pt")
    state = read_state(tmp_path / "masked.pt")
    assert has_mask(state) and stored_mask(state).ffn == FFN
    again = rebuild(state)
    with torch.no_grad():
        assert find_gates(again).mask().ffn == FFN
        assert torch.equal(again(**batch["net_input"])[0], model(**batch["net_input"])[0])
        slim = rebuild(remove_heads(state, ffn=True).state)
        assert torch.allclose(slim(**batch["net_input"])[0], model(**batch["net_input"])[0], atol=1e-5)
    stock = tiny.make_model("transformer_tiny", **SETTINGS[0])
    with pytest.raises(RuntimeError, match="ffn_keep"):
        stock.load_state_dict(state["model"])
    # A mask file without the entry keeps all.
    find_gates(again).set_mask(full_mask(again))
    assert find_gates(again).mask().ffn is None and not has_mask(state_of(again))


def test_removing_again_goes_by_original_numbers(batch):
    model = lively(SETTINGS[0])
    once = remove_heads(state_of(model), full_mask(model, FFN), ffn=True).state
    fewer = {"enc": [[int(u in (0, 9)) for u in range(64)], 0], "dec": [0, UNITS]}
    twice = remove_heads(once, full_mask(model, fewer), ffn=True).state
    direct = remove_heads(state_of(model), full_mask(model, fewer), ffn=True).state
    assert all(torch.equal(value, direct["model"][name]) for name, value in twice["model"].items())
    assert stored_mask(twice).ffn == fewer and twice["model"].keys() == direct["model"].keys()
    for entry in ({"enc": [1, 1]}, {"enc": [[1] * 63 + [0], 0]}, {"enc": [1, [0] * 64]}):
        with pytest.raises(ValueError, match="keeps what was removed from ffn enc layer [01]; it cannot come back"):
            remove_heads(once, full_mask(model, entry), ffn=True)
    # "1" is the block as it is, and a mask that says nothing of a side keeps it.
    same = remove_heads(once, full_mask(model, {"enc": [1, 0]})).state
    assert stored_mask(same).ffn == FFN
    slim = rebuild(once)
    with find_gates(slim).masked(full_mask(model, fewer)), torch.no_grad():
        assert torch.allclose(slim(**batch["net_input"])[0], rebuild(twice)(**batch["net_input"])[0], atol=1e-5)


def test_baked_weights_are_a_stock_model(batch):
    model = lively(SETTINGS[0])
    mask = full_mask(model, FFN)
    slim = remove_heads(state_of(model), mask, ffn=True).state
    for state in (remove_heads(state_of(model), mask, bake=True, ffn=True).state, remove_heads(slim, bake=True).state):
        stock = rebuild(state)
        assert not any(isinstance(m, GatedFfnOutput) for m in stock.modules())
        assert not hasattr(saved_settings(state), "ffn_layout")
        assert {n: v.shape for n, v in state["model"].items()} == {n: v.shape for n, v in model.state_dict().items()}
        with torch.no_grad():
            assert torch.allclose(stock(**batch["net_input"])[0], zeroed(model)(**batch["net_input"])[0], atol=1e-5)


def test_a_mask_without_effect_is_noticed(batch):
    model = lively(SETTINGS[0])
    find_gates(model).set_mask(full_mask(model, FFN))
    check_connected(model, batch["net_input"])
    # What was removed is no mask that could be without effect.
    check_connected(rebuild(remove_heads(state_of(model), ffn=True).state), batch["net_input"])
    for layer in (*model.encoder.layers, *model.decoder.layers):
        layer.fc2.forward = lambda x, fc2=layer.fc2: torch.nn.functional.linear(x, fc2.weight, fc2.bias)
    with pytest.raises(RuntimeError, match="feed-forward blocks have no effect"):
        check_connected(model, batch["net_input"])


def test_stock_models_get_gated_blocks():
    model = tiny.make_model("transformer_tiny")
    gates = attach_gates(model)
    assert {side: len(modules) for side, modules in gates.ffn.modules.items()} == {"enc": 2, "dec": 2}
    with_ffn(model, mask := full_mask(model), 3)
    gates.set_mask(mask)
    assert gates.mask() == mask


@pytest.mark.parametrize(
    "entry, message",
    [
        ({"enc": [1]}, "ffn enc: expected 2 layers, found 1"),
        ({"dec": [1, [1, 0]]}, "ffn dec layer 1: expected 64 units, found 2"),
    ],
)
def test_masks_that_do_not_fit(entry, message):
    model = tiny.make_model()
    with pytest.raises(ValueError, match=message):
        find_gates(model).set_mask(full_mask(model, entry))
    with pytest.raises(ValueError, match=message):
        remove_heads(state_of(model), full_mask(model, entry), ffn=True)


def test_an_edited_file_is_refused_by_layer():
    model = tiny.make_model()
    state = remove_heads(state_of(model), full_mask(model, FFN), ffn=True).state
    layout = saved_settings(state).ffn_layout
    layout["blocks"]["enc"][0][1] = 1
    with pytest.raises(ValueError, match="ffn enc layer 0: expected 23 units, found weights for 22"):
        stored_mask(state)
    layout["format"] = "headprune.ffn_layout/2"
    with pytest.raises(ValueError, match="headprune.ffn_layout/2' is not known here .* upgrade fairseq_headprune"):
        rebuild(state)


def test_keeping_the_highest():
    layout = FfnLayout({"enc": [3, 3], "dec": [3]}, {"enc": [1, [1, 0, 1]], "dec": [0]})
    assert keep_highest(layout, {"enc": [0.3, 0.2], "dec": [None]}, 1) == {"enc": [1, 0], "dec": [0]}
    units = {"enc": [[0.1, 0.5, 0.3], [0.3, None, 0.9]], "dec": [[None, None, None]]}
    # 0.9, 0.5, then two of 0.3: the first layer's.
    assert keep_highest(layout, units, 3) == {"enc": [[0, 1, 1], [0, 0, 1]], "dec": [[0, 0, 0]]}
    for count in (-1, 6):
        with pytest.raises(ValueError, match=f"--ffn {count}: there are 5 scored .* give 0 to 5"):
            keep_highest(layout, units, count)
    with pytest.raises(ValueError, match="ffn enc layer 0: scores of 2 units, --like has 3"):
        keep_highest(layout, {"enc": [[1, 2], 1]}, 1)
