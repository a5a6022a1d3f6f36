"""``headprune average``: the mean of checkpoints with the same heads."""

import json

import pytest
import torch
from slim_models import SETTINGS, lively, rebuild, state_of, uneven

from fairseq_headprune.checkpoints import stored_layout, stored_mask
from fairseq_headprune.cli import main
from fairseq_headprune.modules.attach import find_gates
from fairseq_headprune.removal.average import average, average_checkpoints
from fairseq_headprune.removal.checkpoint import remove_heads

SHARED = SETTINGS[1]


def checkpoints(mask_seeds=(None, None)):
    """Two models of the same settings and other weights, slimmed by random masks where a seed is given."""
    states = []
    for number, seed in enumerate(mask_seeds):
        model = lively({**SHARED, "seed": 10 + number})
        state = state_of(model)
        states.append(state if seed is None else remove_heads(state, uneven(model, seed)).state)
    return states


def test_weights_are_means_and_tied_embeddings_stay_tied():
    states = checkpoints()
    mean = average(states, ["a", "b"])
    for name, value in mean["model"].items():
        left, right = (state["model"][name] for state in states)
        # Source: the mean by hand, in float64.
        assert torch.equal(value, ((left.double() + right.double()) / 2).to(value.dtype))
    tied = [t for n, t in mean["model"].items() if n.endswith(("embed_tokens.weight", "output_projection.weight"))]
    assert len(tied) == 3 and len({tensor.data_ptr() for tensor in tied}) == 1
    assert mean["last_optimizer_state"] == {}


def test_slim_models_average_and_load():
    states = checkpoints((3, 3))
    mean = average(states, ["a", "b"])
    assert stored_layout(mean) == stored_layout(states[0])
    model = rebuild(mean)
    assert torch.equal(model.state_dict()["decoder.layers.1.fc1.weight"], mean["model"]["decoder.layers.1.fc1.weight"])


@pytest.mark.parametrize("seeds, words", [((3, 4), "layer"), ((3, None), "layer")])
def test_other_heads_are_refused_by_name(seeds, words):
    with pytest.raises(ValueError, match=f"a.pt and b.pt cannot be averaged: .*{words}"):
        average(checkpoints(seeds), ["a.pt", "b.pt"])


def test_other_masks_and_widths_are_refused():
    states = []
    for seed in (3, 4):
        model = lively(SHARED)
        find_gates(model).set_mask(uneven(model, seed))
        states.append(state_of(model))
    with pytest.raises(ValueError, match="cannot be averaged"):
        average(states, ["a", "b"])
    wide = state_of(lively({**SHARED, "encoder_ffn_embed_dim": 48}))
    with pytest.raises(ValueError, match="a and b cannot be averaged: they have other feed-forward blocks or units"):
        average([checkpoints()[0], wide], ["a", "b"])


def test_a_checkpoint_that_cannot_be_read_is_named():
    good, bad = checkpoints()
    bad["cfg"]["model"].encoder_attention_heads = 8  # edited; the weights were saved with 4
    with pytest.raises(ValueError, match="^b.pt: enc_self layer 0: .* 4 heads, .* 8"):
        average([good, bad, good], ["a.pt", "b.pt", "c.pt"])


def test_parts_and_quantised_weights_are_refused():
    good, bad = checkpoints()
    with pytest.raises(ValueError, match="^b.pt: a part of a sharded checkpoint"):
        average([good, {**bad, "last_optimizer_state": "SHARDED"}], ["a.pt", "b.pt"])
    weights = bad["model"]
    weights["encoder.layers.0.fc1.weight"] = weights["encoder.layers.0.fc1.weight"].to(torch.int8)
    with pytest.raises(ValueError, match="^b.pt: encoder.layers.0.fc1.weight is not of plain .*quantised"):
        average([good, bad], ["a.pt", "b.pt"])


def test_equal_masks_are_kept():
    states = []
    for seed in (1, 2):
        model = lively({**SHARED, "seed": seed})
        find_gates(model).set_mask(uneven(model, 3))
        states.append(state_of(model))
    assert stored_mask(average(states, ["a", "b"])).rows == uneven(model, 3).rows


def test_the_verb_writes_a_checkpoint(tmp_path, capsys):
    for name, state in zip(("a", "b"), checkpoints(), strict=True):
        torch.save(state, tmp_path / f"{name}.pt")
    words = [str(tmp_path / "a.pt"), str(tmp_path / "b.pt")]
    assert main(["average", *words, "-o", str(tmp_path / "mean.pt"), "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert [c["path"] for c in value["checkpoints"]] == words and (tmp_path / "mean.pt").exists()
    for wrong in ([words[0], "-o", "x.pt"], [*words, "-o", words[0]], [*words, "-o", str(tmp_path / "no" / "x.pt")]):
        assert main(["average", *wrong]) == 2
        assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_equal_embeddings_that_were_stored_apart_are_tied_again():
    states = checkpoints()
    for state in states:
        state["model"] = type(state["model"])((name, tensor.clone()) for name, tensor in state["model"].items())
    mean = average(states, ["a", "b"])["model"]
    names = ["encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "decoder.output_projection.weight"]
    assert len({mean[name].data_ptr() for name in names}) == 1
    layer_norms = [t.data_ptr() for n, t in mean.items() if n.endswith("layer_norm.weight")]
    assert len(set(layer_norms)) == len(layer_norms)  # equal, too, but not tied in the model


def test_mixed_precision_is_refused_and_one_is_named(tmp_path, capsys):
    left, right = checkpoints()
    torch.save(left, tmp_path / "single.pt")
    for name, state in (("a", left), ("b", right)):
        half = {n: t.half() if t.is_floating_point() else t for n, t in state["model"].items()}
        torch.save(state | {"model": half}, tmp_path / f"{name}.pt")
    with pytest.raises(ValueError, match=r"is of float32 in one and of float16 in the other; write both in one"):
        average_checkpoints([tmp_path / "single.pt", tmp_path / "a.pt"], tmp_path / "mean.pt")
    assert main(["average", *map(str, (tmp_path / "a.pt", tmp_path / "b.pt")), "-o", str(tmp_path / "mean.pt")]) == 0
    assert "weights in float16, as in the checkpoints" in capsys.readouterr().out


def test_other_dictionaries_are_refused_and_a_known_one_stays():
    states = checkpoints()
    states[0]["task_state"] = {"dictionaries": {"source": "a", "target": "b"}}
    mean = average(states, ["a.pt", "b.pt"])
    assert mean["task_state"]["dictionaries"] == {"source": "a", "target": "b"}
    states[1]["task_state"] = {"dictionaries": {"source": "a", "target": "c"}}
    with pytest.raises(ValueError, match="a.pt and b.pt cannot be averaged: .* another target dictionary"):
        average(states, ["a.pt", "b.pt"])
