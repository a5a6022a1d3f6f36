"""The learned set of a checkpoint: weights are chosen by hand, sets and changes are counted by hand."""

import math
import os

import pytest
import torch
from learning import DSP, train
from tiny import SHAPE
from verbs import refused, run_json

from fairseq_headprune.checkpoints import read_state, stored_mask
from fairseq_headprune.cli import main
from fairseq_headprune.gates.learner import GateLearner
from fairseq_headprune.gates.rules import L0Rule, SubsetRule
from fairseq_headprune.gates.saved import choose, saved_gates
from fairseq_headprune.gates.subset import Temperature
from fairseq_headprune.parts import Mask, all_heads

#: transformer_gated_tiny: 12 heads, four a component
HEADS = all_heads(SHAPE)

#: log(1/11) = -2.398 is where L0's gate of evaluation, 1.2 sigmoid(log_alpha) - 0.1, reaches 0: places 0 to 3, 5 and 8
#: are open. Places 0 and 2 tie with gates of 1, places 4, 6 and 7 with gates of 0 (and 4 and 7 in their weight).
L0_WEIGHTS = [9.0, -2.3, 8.0, 0.0, -4.0, -1.0, -3.0, -4.0, 1.0, -5.0, -6.0, -7.0]

#: P(open) = sigmoid(log_alpha - beta log(0.1 / 1.1)) with beta 0.33 (Louizos et al. 2018, eq. 12), summed
EXPECTED = round(sum(1 / (1 + math.exp(-w + 0.33 * math.log(0.1 / 1.1))) for w in L0_WEIGHTS), 2)


def learner(rule, weights, heads=HEADS):
    made = GateLearner(rule, heads, lr=0.1, seed=1)
    with torch.no_grad():
        made.weight.copy_(torch.tensor(weights))
    made.updates = 40
    return made


def save_with(model, made, path):
    """Save a model with these gates, as fairseq would, and return the path."""
    model.head_gates.learner = made
    torch.save({"model": model.state_dict(), "args": model.settings}, path)
    return path


@pytest.fixture
def checkpoint(tiny_model, tmp_path):
    """The function that saves a model with these gates, and returns the path."""
    return lambda made: save_with(tiny_model, made, tmp_path / "gates.pt")


@pytest.fixture
def l0(checkpoint):
    return checkpoint(learner(L0Rule(HEADS, penalty=0.01), L0_WEIGHTS))


def places(heads):
    return sorted(map(HEADS.index, heads))


def test_gates_are_read_as_they_were_learned(l0):
    gates = saved_gates(read_state(l0))
    assert gates.description["kind"] == "l0" and gates.description["penalty"] == 0.01
    assert gates.heads == HEADS and gates.updates == 40
    assert gates.weight.tolist() == pytest.approx(L0_WEIGHTS, abs=1e-6)
    # 1.2 * sigmoid(-2.398) = 0.1
    assert 1.2 / (1 + math.exp(-math.log(1 / 11))) == pytest.approx(0.1)
    assert places(h for h, open_ in zip(HEADS, gates.hard(), strict=True) if open_) == [0, 1, 2, 3, 5, 8]


@pytest.mark.parametrize(
    ("count", "kept", "included", "excluded"),
    [
        (None, [0, 1, 2, 3, 5, 8], [], []),
        (6, [0, 1, 2, 3, 5, 8], [], []),
        (7, [0, 1, 2, 3, 5, 6, 8], [6], []),  # -3 is the highest of the dropped, though their gates are all 0
        (8, [0, 1, 2, 3, 4, 5, 6, 8], [4, 6], []),  # 4 and 7 tie at -4: the lower index
        (4, [0, 2, 3, 8], [], [1, 5]),
        (1, [0], [], [1, 2, 3, 5, 8]),  # 9 before 8, though both gates are 1
        (0, [], [], [0, 1, 2, 3, 5, 8]),
        (12, list(range(12)), [4, 6, 7, 9, 10, 11], []),
        ({"enc_self": 1, "enc_dec": 3, "dec_self": 1}, [0, 4, 5, 6, 8], [4, 6], [1, 2, 3]),
    ],
)
def test_the_learned_set_is_corrected_by_as_few_heads_as_possible(l0, count, kept, included, excluded):
    choice = choose(saved_gates(read_state(l0)), count)
    assert (places(choice.kept), places(choice.included), places(choice.excluded)) == (kept, included, excluded)
    assert choice.learned == 6 and sorted(choice.kept + choice.dropped) == sorted(HEADS)


def test_dsp_keeps_its_k_and_equal_weights_are_a_tie(checkpoint):
    rule = SubsetRule(HEADS, 3, Temperature(0.1, 1e-8, 100))
    gates = saved_gates(read_state(checkpoint(learner(rule, [0.0, 1.0, 1.0, 1.0, 1.0, 2.0] + [0.0] * 6))))
    assert places(choose(gates).kept) == [1, 2, 5]
    assert places(choose(gates, 5).included) == [3, 4]
    assert places(choose(gates, 1).excluded) == [1, 2]


def test_gates_learned_by_component_are_corrected_by_component(checkpoint):
    each = {"enc_self": 1, "enc_dec": 2, "dec_self": 3}
    made = learner(SubsetRule(HEADS, each, straight_through=True), [float(i) for i in range(12)])
    gates = saved_gates(read_state(checkpoint(made)))
    # Rising weights: the last heads of each component.
    assert places(choose(gates).kept) == [3, 6, 7, 9, 10, 11]
    assert places(choose(gates, each | {"enc_self": 2}).included) == [2]
    with pytest.raises(ValueError, match="enc_self=1,enc_dec=2,dec_self=3.*a number for each"):
        choose(gates, 6)


def test_mask_of_a_checkpoint(l0, tmp_path):
    out = ["-o", tmp_path / "mask.json"]
    document = run_json("mask", "--from-checkpoint", l0, "--heads", 4, *out)
    assert document["kept"] == 4 and document["source"]["chosen"] == "learned gates"
    assert document["source"]["correction"] == {
        "learned": 6, "target": None, "expected": EXPECTED, "changed": 2, "included": [],
        "excluded": [["enc_self", 0, 1], ["enc_dec", 0, 1]],
    }  # fmt: skip
    mask = Mask.load(tmp_path / "mask.json")
    assert places(mask.kept()) == [0, 2, 3, 8] and mask.source == document["source"]
    document = run_json("mask", "--from-checkpoint", l0, "--heads", "enc_self=1,enc_dec=3,dec_self=1", *out)
    assert {c: n["kept"] for c, n in document["components"].items()} == {"enc_self": 1, "enc_dec": 3, "dec_self": 1}


def test_the_number_of_changed_heads_is_printed(l0, tmp_path, capsys):
    assert main(["mask", "--from-checkpoint", str(l0), "--heads", "7", "-o", str(tmp_path / "mask.json")]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    told = f"the learned set has 6 heads (target none, expected to be open {EXPECTED:.1f})"
    assert last == f"{told}; 1 changed; included again: enc_dec layer 1 head 0"


def test_heads_without_a_gate_are_kept(checkpoint, tmp_path):
    gated = [head for head in HEADS if head.component == "enc_dec"]
    path = checkpoint(learner(SubsetRule(gated, 1, straight_through=True), [0.0, 0.0, 3.0, 0.0], gated))
    run_json("mask", "--from-checkpoint", path, "-o", tmp_path / "mask.json")
    # All of enc_self and dec_self, and enc_dec's third gate.
    assert places(Mask.load(tmp_path / "mask.json").kept()) == [0, 1, 2, 3, 6, 8, 9, 10, 11]


def test_wrong_input_of_from_checkpoint_is_named(l0, trained, tmp_path, capsys):
    ungated = trained["checkpoint"]
    for path, more, message in (
        (ungated, [], f"{ungated}: the checkpoint holds no learned gates"),
        (l0, ["--heads", "13"], "cannot keep 13 heads of 12: give an integer from 0 to 12"),
        (l0, ["--heads", "-1"], "cannot keep -1 heads of 12: give an integer from 0 to 12"),
        (l0, ["--heads", "enc_self=5,enc_dec=1,dec_self=1"], "enc_self: cannot keep 5 heads of 4"),
        (l0, ["--heads", "enc_self=1"], "name each of these"),
        (l0, ["--heads", "enc_self=x"], "enc_self=x"),
        (l0, ["--drop", "E:1:1"], "--drop is not supported with"),
        (l0, ["--like", l0], "not allowed with"),
        (tmp_path / "no.pt", [], "no.pt"),
    ):
        assert message in refused(capsys, "mask", "--from-checkpoint", path, *more, "-o", tmp_path / "mask.json")
    line = refused(capsys, "mask", "--like", l0, "--heads", "enc_self=1", "-o", tmp_path / "mask.json")
    assert "needs --from-checkpoint" in line
    assert not os.path.exists(tmp_path / "mask.json")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda model: model._metadata["head_gates"].update(version=9), "version 9, known is up to 1"),
        (lambda model: model._metadata.pop("head_gates"), "12 gate weights, and describes 0 gates of kind None"),
        (lambda model: model["head_gates.weight"][3].fill_(math.nan), "enc_self layer 1 head 1 is not finite"),
    ],
)
def test_damaged_gates_are_refused(l0, damage, message):
    state = read_state(l0)
    state["model"]["head_gates.weight"] = state["model"]["head_gates.weight"].clone()
    damage(state["model"])
    with pytest.raises(ValueError, match=message):
        saved_gates(state)


def test_a_training_keeps_the_learned_set_as_its_mask(trained, tmp_path):
    """What fairseq-train stored as the mask is what the gates' weights say, and --heads changes exactly one head."""
    state = train(trained["data"], tmp_path, *DSP, "--heads-kept", "5")
    path = tmp_path / "checkpoint_last.pt"
    document = run_json("mask", "--from-checkpoint", path, "-o", tmp_path / "mask.json")
    assert Mask.load(tmp_path / "mask.json").kept() == stored_mask(state).kept()
    assert document["kept"] == 5 and document["source"]["correction"]["changed"] == 0
    document = run_json("mask", "--from-checkpoint", path, "--heads", 6, "-o", tmp_path / "six.json")
    assert document["kept"] == 6 and document["source"]["correction"]["changed"] == 1
    six = Mask.load(tmp_path / "six.json")
    weights = dict(zip(HEADS, state["model"]["head_gates.weight"].tolist(), strict=True))
    new = set(six.kept()) - set(stored_mask(state).kept())
    assert new == {max(stored_mask(state).dropped(), key=weights.get)}
