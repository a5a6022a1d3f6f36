"""Feed-forward units and blocks: masked, removed, reloaded. Reference: stock fairseq with zeros in the weights."""

import copy

import pytest
import tiny
import torch
from slim_models import SETTINGS, lively, masked_and_slim, rebuild, same_on_every_path, state_of, with_ffn

from fairseq_headprune.checkpoints import has_mask, read_state, saved_settings, stored_mask
from fairseq_headprune.choosing.scored import keep_highest, keep_highest_ffn
from fairseq_headprune.modules.attach import attach_gates, find_gates
from fairseq_headprune.modules.connected import check_connected
from fairseq_headprune.modules.ffn import GatedFfnOutput, NoUnits
from fairseq_headprune.modules.shrink import PrunedWeights
from fairseq_headprune.parts import COMPONENTS, FFN, Mask, Part
from fairseq_headprune.parts.layout import Layout
from fairseq_headprune.parts.mask import SoftGates
from fairseq_headprune.parts.scores import Scores
from fairseq_headprune.removal.checkpoint import remove_heads

#: transformer_tiny has 64 units in each block, two layers a side
UNITS = [int(unit % 3 == 0) for unit in range(64)]
PARTS = {"enc_ffn": [UNITS, [0]], "dec_ffn": [[0] * 64, [1]]}


def with_parts(model, parts=None):
    return Mask({**find_gates(model).full().rows, **(parts or {})}, {"command": "test"})


def zeroed(model):
    """By hand, on fairseq's own layers: what PARTS prunes cannot reach the output."""
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
    with gates.masked(with_parts(model, PARTS)):
        assert gates.mask() == with_parts(model, PARTS) and gates.mask().source == {"command": "test"}
        same_on_every_path(model, reference, batch, unlike=lively(settings))
    assert not gates.mask().prunes_ffn()
    same_on_every_path(model, lively(settings), batch, unlike=reference)


def test_broken_weights_of_pruned_parts_do_not_reach_the_output(batch):
    model = lively(SETTINGS[0])
    with torch.no_grad():
        model.encoder.layers[1].fc2.weight[0, 0] = float("nan")
        model.decoder.layers[0].fc1.weight[5] = float("nan")
        parts = {"enc_ffn": [[1], [0]], "dec_ffn": [[int(u != 5) for u in range(64)], [1]]}
        find_gates(model).set_mask(with_parts(model, parts))
        assert model(**batch["net_input"])[0].isfinite().all()


def test_parameters_fall_by_the_hand_count():
    # Width 64. Of the encoder 42 units (2 * 64 + 1 each) and one whole block (64 units and the bias of 64); of the
    # decoder 64 units.
    model = tiny.make_model()
    removal = remove_heads(state_of(model), with_parts(model, PARTS), ffn=True)
    small = rebuild(removal.state)
    gone = (42 + 64 + 64) * 129 + 64
    before, after = (sum(p.numel() for p in m.parameters()) for m in (model, small))
    assert before - after == gone == removal.parameters["by_formula"]
    assert (removal.parameters["before"], removal.parameters["after"]) == (before, after)
    counts = removal.layout.ffn_counts()
    assert counts["enc_ffn"] == {"blocks": 1, "of_blocks": 2, "units": 22, "of_units": 128}
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
            kept = theirs.fc2.row()
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
    find_gates(model).set_mask(with_parts(model, PARTS))
    torch.save(state_of(model), tmp_path / "masked.pt")
    state = read_state(tmp_path / "masked.pt")
    assert has_mask(state) and stored_mask(state) == with_parts(model, PARTS)
    again = rebuild(state)
    assert find_gates(again).mask() == with_parts(model, PARTS)
    for saved in (again, rebuild(remove_heads(state, ffn=True).state)):
        same_on_every_path(saved, model, batch, unlike=lively(SETTINGS[0]))
    stock = tiny.make_model("transformer_tiny", **SETTINGS[0])
    with pytest.raises(RuntimeError, match="ffn_keep"):
        stock.load_state_dict(state["model"])
    # A mask without these components keeps all of them.
    find_gates(again).set_mask(with_parts(again))
    assert not find_gates(again).mask().prunes_ffn() and not has_mask(state_of(again))


def test_removing_again_goes_by_original_numbers(batch):
    model = lively(SETTINGS[0])
    once = remove_heads(state_of(model), with_parts(model, PARTS), ffn=True).state
    fewer = {"enc_ffn": [[int(u in (0, 9)) for u in range(64)], [0]], "dec_ffn": [[0], UNITS]}
    twice = remove_heads(once, with_parts(model, fewer), ffn=True).state
    direct = remove_heads(state_of(model), with_parts(model, fewer), ffn=True).state
    assert all(torch.equal(value, direct["model"][name]) for name, value in twice["model"].items())
    assert stored_mask(twice) == with_parts(model, fewer) and twice["model"].keys() == direct["model"].keys()
    for row in ([[1], [1]], [[1] * 63 + [0], [0]], [[1], [1] + [0] * 63]):
        with pytest.raises(ValueError, match="parts that were removed .*enc_ffn layer [01] part.* cannot come back"):
            remove_heads(once, with_parts(model, {"enc_ffn": row}), ffn=True)
    # [1] is the block as it is, and a mask that says nothing of a component keeps it.
    same = remove_heads(once, with_parts(model, {"enc_ffn": [[1], [0]]})).state
    assert stored_mask(same) == with_parts(model, PARTS)
    slim = rebuild(once)
    with find_gates(slim).masked(with_parts(model, fewer)):
        same_on_every_path(slim, rebuild(twice), batch, unlike=rebuild(once))


def test_baked_weights_are_a_stock_model(batch):
    model = lively(SETTINGS[0])
    mask = with_parts(model, PARTS)
    slim = remove_heads(state_of(model), mask, ffn=True).state
    for state in (remove_heads(state_of(model), mask, bake=True, ffn=True).state, remove_heads(slim, bake=True).state):
        stock = rebuild(state)
        assert not any(isinstance(m, GatedFfnOutput) for m in stock.modules())
        assert not hasattr(saved_settings(state), "head_layout")
        assert {n: v.shape for n, v in state["model"].items()} == {n: v.shape for n, v in model.state_dict().items()}
        same_on_every_path(stock, zeroed(model), batch, unlike=model)


def test_gates_of_feed_forward_parts_are_folded_into_the_weights(batch):
    model = lively(SETTINGS[0])
    gates = {"enc_ffn": [[0.5] * 32 + [0] * 32, [2]], "dec_ffn": [[0], [1] * 63 + [1.5]]}
    heads = {c: [list(map(float, row)) for row in rows] for c, rows in find_gates(model).full().rows.items()}
    slim = rebuild(remove_heads(state_of(model), gates=SoftGates({**heads, **gates}), ffn=True).state)
    encoder, decoder = model.encoder.layers, model.decoder.layers
    # By hand: of 64 units those with a gate other than 0 are left.
    assert [layer.fc2.in_features for layer in (slim.encoder.layers[0], slim.decoder.layers[1])] == [32, 64]
    with torch.no_grad():
        encoder[0].fc2.weight *= torch.tensor(gates["enc_ffn"][0])
        decoder[1].fc2.weight *= torch.tensor(gates["dec_ffn"][1])
        for layer, factor in ((encoder[1], 2), (decoder[0], 0)):
            layer.fc2.weight *= factor
            layer.fc2.bias *= factor
    same_on_every_path(slim, model, batch, unlike=lively(SETTINGS[0]))


def test_a_mask_without_effect_is_noticed(batch):
    model = lively(SETTINGS[0])
    find_gates(model).set_mask(with_parts(model, PARTS))
    check_connected(model, batch["net_input"])
    # What was removed is no mask that could be without effect.
    check_connected(rebuild(remove_heads(state_of(model), ffn=True).state), batch["net_input"])
    for layer in (*model.encoder.layers, *model.decoder.layers):
        layer.fc2.forward = lambda x, fc2=layer.fc2: torch.nn.functional.linear(x, fc2.weight, fc2.bias)
    with pytest.raises(RuntimeError, match="feed-forward blocks have no effect"):
        check_connected(model, batch["net_input"])


def test_weights_of_pruned_parts_stay_while_an_optimizer_steps():
    model = lively(SETTINGS[0])
    find_gates(model).set_mask(with_parts(model, PARTS))
    before = copy.deepcopy(model.state_dict())
    with PrunedWeights(find_gates(model)).held(), torch.no_grad():
        for parameter in model.parameters():
            parameter *= 0.5
    units = torch.tensor(UNITS, dtype=torch.bool)
    for name, weight in model.state_dict().items():
        held = {"encoder.layers.0.fc1.weight": ~units, "encoder.layers.0.fc1.bias": ~units}.get(name)
        if held is not None:
            assert torch.equal(weight[held], before[name][held]) and torch.equal(weight[~held], before[name][~held] / 2)
        whole = name.startswith(("encoder.layers.1.fc", "decoder.layers.0.fc")) and name != "decoder.layers.0.fc2.bias"
        assert torch.equal(weight, before[name]) or not whole


def test_stock_models_get_gated_blocks():
    model = tiny.make_model("transformer_tiny")
    gates = attach_gates(model)
    assert {component: len(modules) for component, modules in gates.ffn.items()} == {"enc_ffn": 2, "dec_ffn": 2}
    gates.set_mask(mask := with_ffn(model, with_parts(model), 3))
    assert gates.mask() == mask


@pytest.mark.parametrize(
    "parts, message",
    [
        ({"enc_ffn": [[1]]}, "the mask has 1 layers of enc_ffn, the model has 2"),
        ({"dec_ffn": [[1], [1, 0]]}, "the mask has 2 parts in dec_ffn layer 1, the model has 64"),
    ],
)
def test_masks_that_do_not_fit(parts, message):
    model = tiny.make_model()
    with pytest.raises(ValueError, match=message):
        find_gates(model).set_mask(with_parts(model, parts))
    with pytest.raises(ValueError, match=message):
        remove_heads(state_of(model), with_parts(model, parts), ffn=True)


def test_an_edited_file_is_refused_by_layer():
    model = tiny.make_model()
    state = remove_heads(state_of(model), with_parts(model, PARTS), ffn=True).state
    layout = saved_settings(state).head_layout
    layout["kept"]["enc_ffn"][0] = sorted({1, *layout["kept"]["enc_ffn"][0]})
    with pytest.raises(ValueError, match="enc_ffn layer 0: expected 23 units, found weights for 22"):
        stored_mask(state)
    layout["format"] = "headprune.layout/3"
    with pytest.raises(ValueError, match="headprune.layout/3' is not known here .* upgrade fairseq_headprune"):
        rebuild(state)


def test_checkpoints_with_layouts_of_format_1_load(batch):
    model = lively(SETTINGS[0])
    mask = with_parts(model, PARTS).without([Part("enc_self", 0, 1), Part("dec_self", 1, 0)])
    state = remove_heads(state_of(model), mask, ffn=True).state
    expected = rebuild(state)
    # What the settings of slim checkpoints were before feed-forward parts were parts of the layout.
    settings, four = saved_settings(state), [0, 1, 2, 3]
    settings.head_layout = {
        "format": "headprune.layout/1",
        "original": {"enc_self": [4, 4], "enc_dec": [4, 4], "dec_self": [4, 4]},
        "kept": {"enc_self": [[0, 2, 3], four], "enc_dec": [four, four], "dec_self": [four, [1, 2, 3]]},
        "source": {},
    }
    settings.ffn_layout = {
        "format": "headprune.ffn_layout/1",
        "original": {"enc": [64, 64], "dec": [64, 64]},
        "blocks": {"enc": [UNITS, 0], "dec": [[0] * 64, 1]},
    }
    assert stored_mask(state) == mask
    again = rebuild(state)
    assert find_gates(again).mask() == mask
    same_on_every_path(again, expected, batch, unlike=model)
    baked = remove_heads(state, bake=True).state
    assert not hasattr(saved_settings(baked), "ffn_layout")
    # A second slimming writes the layout anew, in one piece.
    slimmer = remove_heads(state, mask.without([Part("enc_dec", 0, 0)]), ffn=True).state
    assert saved_settings(slimmer).head_layout["kept"]["enc_ffn"][1] is None
    assert not hasattr(saved_settings(slimmer), "ffn_layout")


def test_what_is_chosen_from_is_spelled_out():
    layout = Layout(
        {"enc_self": [2], "enc_ffn": [3, 3, 3]}, {"enc_self": [[0, 1]], "enc_ffn": [[0, 2], None, [0, 1, 2]]}
    )
    assert layout.mask().rows["enc_ffn"] == [[1, 0, 1], [0], [1]]
    assert layout.spell_out(layout.mask(), "blocks").rows["enc_ffn"] == [[1], [0], [1]]
    assert layout.spell_out(layout.mask(), "units").rows["enc_ffn"] == [[1, 0, 1], [0], [1, 1, 1]]
    masked = Mask({"enc_self": [[1, 1]], "enc_ffn": [[1], [0], [1, 1, 0]]})
    assert layout.spell_out(masked, "units").rows["enc_ffn"] == [[1, 0, 1], [0], [1, 1, 0]]
    with pytest.raises(ValueError, match="enc_ffn layer 2: the mask prunes units of this block,.*--ffn units"):
        layout.spell_out(masked, "blocks")


def test_keeping_the_highest():
    layout = Layout({"enc_ffn": [3, 3], "dec_ffn": [3]}, {"enc_ffn": [[0, 1, 2], [0, 2]], "dec_ffn": [None]})
    blocks, units = (layout.spell_out(layout.mask(), parts) for parts in ("blocks", "units"))
    scores = Scores({"enc_ffn": [[0.3], [0.2]], "dec_ffn": [[None]]}, "test")
    assert keep_highest_ffn(blocks, scores, 1).rows == {"enc_ffn": [[1], [0]], "dec_ffn": [[0]]}
    # A file of format /1 has a row of units for a block that is gone, too.
    scores = Scores({"enc_ffn": [[0.1, 0.5, 0.3], [0.3, None, 0.9]], "dec_ffn": [[None, None, None]]}, "test")
    # 0.9, 0.5, then two of 0.3: the first layer's.
    assert keep_highest_ffn(units, scores, 3).rows == {"enc_ffn": [[0, 1, 1], [0, 0, 1]], "dec_ffn": [[0]]}
    for count in (-1, 6):
        with pytest.raises(ValueError, match=f"--ffn {count}: there are 5 scored feed-forward parts, so give 0 to 5"):
            keep_highest_ffn(units, scores, count)
    # Heads and blocks together: one ranking.
    scores = Scores({"enc_self": [[0.4, 0.1]], "enc_ffn": [[0.3], [0.2]]}, "test")
    mask = Mask({"enc_self": [[1, 1]], "enc_ffn": [[1], [1]]})
    assert keep_highest(mask, scores, 2, COMPONENTS).rows == {"enc_self": [[1, 0]], "enc_ffn": [[1], [0]]}
    assert not keep_highest(mask, scores, 0, FFN).kept(FFN)
