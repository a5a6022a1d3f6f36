"""Gates that are neither 0 nor 1: the file, folding them into weights, and those of a training.

Reference for folding: the full model with the gates set on its attention modules, which multiply the heads' outputs.
"""

import copy
import math

import pytest
import torch
from slim_models import SETTINGS, lively, rebuild, same_on_every_path, state_of
from test_saved_gates import HEADS, L0_WEIGHTS, learner, save_with
from verbs import refused, run_json

from fairseq_headprune.checkpoints import read_state, stored_layout
from fairseq_headprune.gates.rules import L0Rule, SubsetRule
from fairseq_headprune.modules.attach import find_gates
from fairseq_headprune.parts import Mask, Part
from fairseq_headprune.parts.mask import SoftGates
from fairseq_headprune.removal.checkpoint import remove_heads
from fairseq_headprune.removal.surgery import fold_gates

GATES = SoftGates({"enc_self": [[0.5, 1, 0], [0, -0.0, 0]], "dec_self": [[1, 1, 1.5]]}, {"command": "test"})


def random_gates(model, seed=1):
    """A third of the gates 0, a third 1, the others between -1 and 2; the first layer of a component has none open."""
    draw = torch.Generator().manual_seed(seed)
    gates = {}
    for component, counts in find_gates(model).shape.items():
        rows = [torch.rand(n, generator=draw) * 3 - 1 for n in counts]
        kinds = [torch.randint(3, (n,), generator=draw) for n in counts]
        rows = [torch.where(k == 0, 0.0, torch.where(k == 1, 1.0, row)) for k, row in zip(kinds, rows, strict=True)]
        gates[component] = [[0.0] * counts[0], *(row.tolist() for row in rows[1:])]
    return SoftGates(gates, {"command": "test"})


def gated(model, gates):
    """A copy of the model with these gates in force."""
    result = copy.deepcopy(model)
    for component, layer, module in find_gates(result).items():
        module.head_gate = torch.tensor(gates.rows[component][layer])
    return result


@pytest.mark.parametrize("settings", SETTINGS)
def test_folded_gates_are_the_gated_model(settings, batch):
    model = lively(settings)
    gates = random_gates(model)
    slim = rebuild(remove_heads(state_of(model), gates=gates).state)
    hard = rebuild(remove_heads(state_of(model), gates.mask()).state)
    assert find_gates(slim).layout().to_dict() == find_gates(hard).layout().to_dict() and gates.soft()
    same_on_every_path(slim, gated(model, gates), batch, unlike=hard)
    names = {name for name, value in slim.state_dict().items() if not torch.equal(value, hard.state_dict()[name])}
    assert names and all(name.endswith("out_proj.weight") for name in names)


def test_baked_and_slim_checkpoints_take_gates_too(batch):
    model = lively(SETTINGS[1])
    gates = random_gates(model)
    expected = gated(model, gates)
    first = remove_heads(state_of(model), gates.mask()).state
    before = copy.deepcopy(first["model"])
    for removed in (remove_heads(first, gates=gates), remove_heads(state_of(model), gates=gates, bake=True)):
        same_on_every_path(rebuild(removed.state), expected, batch, unlike=model)
    assert all(torch.equal(value, before[name]) for name, value in first["model"].items())  # the input stays


def test_masked_feed_forward_parts_are_not_lost(batch):
    """Gates say nothing of them: the checkpoint is refused, and what its message advises is the gated, masked model."""
    model = lively(SETTINGS[0])
    gates, mask = random_gates(model), find_gates(model).full()
    mask = Mask({**mask.rows, "enc_ffn": [[0], [1]], "dec_ffn": [[0, 1] * 32, [1]]})
    find_gates(model).set_mask(mask)
    with pytest.raises(ValueError, match="remove those first"):
        remove_heads(state_of(model), gates=gates)
    slim = remove_heads(remove_heads(state_of(model), mask, ffn=True).state, gates=gates).state
    same_on_every_path(rebuild(slim), gated(model, gates), batch, unlike=gated(lively(SETTINGS[0]), gates))


def test_half_precision_is_rounded_once():
    state = state_of(lively(SETTINGS[0]).half())
    full = Mask.full({"enc_self": [4, 4], "enc_dec": [4, 4], "dec_self": [4, 4]})
    gates = SoftGates({c: [[0.3] * len(row) for row in rows] for c, rows in full.rows.items()})
    name = "decoder.layers.1.encoder_attn.out_proj"
    found = fold_gates(state, gates)["model"]
    expected = (state["model"][f"{name}.weight"].double() * 0.3).half()
    weight = found[f"{name}.weight"]
    assert torch.allclose(weight, expected, atol=0, rtol=2**-10) and weight.is_contiguous()
    assert torch.equal(found[f"{name}.bias"], state["model"][f"{name}.bias"])


def test_a_gate_file_is_saved_and_read_again(tmp_path):
    GATES.save(tmp_path / "g.json")
    again = SoftGates.load(tmp_path / "g.json")
    assert (again.rows, again.source) == (GATES.rows, {"command": "test"})
    assert again.mask() == Mask({"enc_self": [[1, 1, 0], [0, 0, 0]], "dec_self": [[1, 1, 1]]})
    assert again.soft() == [Part("enc_self", 0, 0), Part("dec_self", 0, 2)]


@pytest.fixture
def saved(tmp_path):
    """The function that saves a lively model with these learned gates, and returns its path."""
    return lambda made: save_with(lively({}), made, tmp_path / "learned.pt")


def test_the_gates_of_an_l0_training_become_a_slim_model(saved, tmp_path, batch):
    path = saved(learner(L0Rule(HEADS, penalty=0.01), L0_WEIGHTS))
    value = run_json("mask", "--from-checkpoint", path, "--soft", "-o", tmp_path / "g.json")
    gates = SoftGates.load(tmp_path / "g.json")
    # Voita et al.'s gate of evaluation: sigmoid stretched to (-0.1, 1.1) and clipped.
    expected = [min(1.0, max(0.0, 1.2 / (1 + math.exp(-w)) - 0.1)) for w in L0_WEIGHTS]
    assert [gates[head] for head in HEADS] == pytest.approx(expected, abs=1e-6)
    # Places 1, 3, 5 and 8 are neither closed nor 1; 0, 1, 2, 3, 5 and 8 are open.
    assert (value["soft"], value["kept"], value["gates"]) == (4, 6, str(tmp_path / "g.json"))
    assert gates.source["updates"] == 40 and gates.source["gates"]["kind"] == "l0"
    run_json("mask", "--from-checkpoint", path, "-o", tmp_path / "m.json")
    assert Mask.load(tmp_path / "m.json") == gates.mask()
    slimmed = run_json("slim", path, "--gates", tmp_path / "g.json", "-o", tmp_path / "slim.pt")
    assert slimmed["folded"] == 4 and slimmed["removed"] == 6 and slimmed["mask"]["path"] == str(tmp_path / "g.json")
    assert "gates of 4 heads are folded into the columns of out_proj" in slimmed["notes"]
    state = read_state(tmp_path / "slim.pt")
    assert stored_layout(state).mask() == gates.mask()
    same_on_every_path(rebuild(state), gated(lively({}), gates), batch, unlike=lively({}))


def test_heads_without_a_gate_have_one(saved, tmp_path):
    some = [head for head in HEADS if head.component == "enc_dec"]
    path = saved(learner(L0Rule(some, penalty=0.01), [0.0, 9.0, -9.0, 0.0], some))
    run_json("mask", "--from-checkpoint", path, "--soft", "-o", tmp_path / "g.json")
    gates = SoftGates.load(tmp_path / "g.json").rows
    assert gates["enc_self"] == gates["dec_self"] == [[1, 1]] * 2
    assert [value for row in gates["enc_dec"] for value in row] == pytest.approx([0.5, 1.0, 0.0, 0.5])


def test_wrong_input_is_one_line(saved, trained, tmp_path, capsys):
    l0, out = saved(learner(L0Rule(HEADS, penalty=0.01), L0_WEIGHTS)), ["-o", tmp_path / "out"]
    run_json("mask", "--from-checkpoint", l0, "--soft", "-o", tmp_path / "g.json")
    GATES.save(tmp_path / "other.json")
    few = SoftGates({c: [[0, 1], [1, 1]] for c in ("enc_self", "enc_dec", "dec_self")})
    few.mask().save(tmp_path / "few.json")
    run_json("slim", l0, "--mask", tmp_path / "few.json", "-o", tmp_path / "slim.pt")
    gates = ["--gates", tmp_path / "g.json"]
    for call, message in (
        (["mask", "--like", l0, "--soft", *out], "--soft needs --from-checkpoint"),
        (["mask", "--from-checkpoint", l0, "--soft", "--heads", "3", *out], "--heads is not supported with --soft"),
        (["mask", "--from-checkpoint", trained["checkpoint"], "--soft", *out], "holds no learned gates"),
        (["slim", l0, *gates, "--mask", tmp_path / "few.json", *out], "not allowed with"),
        (["slim", l0, *gates, "--keep-optimizer", *out], "--keep-optimizer is not supported with --gates"),
        (["slim", l0, *gates, "--ffn", *out], "--ffn is not supported with --gates"),
        (["slim", l0, "--gates", tmp_path / "few.json", *out], "not a gate file"),
        (["slim", l0, "--gates", tmp_path / "other.json", *out], "the gate file has 3 heads in enc_self layer 0"),
        (["slim", tmp_path / "slim.pt", *gates, *out], "they cannot come back"),
    ):
        assert message in refused(capsys, *call)
    ste = saved(learner(SubsetRule(HEADS, 3, straight_through=True), [float(i) for i in range(12)]))
    assert "gates of ste are 0 or 1" in refused(capsys, "mask", "--from-checkpoint", ste, "--soft", *out)
    assert not (tmp_path / "out").exists()
