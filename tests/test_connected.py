"""A mask without an effect fails loudly: gates that are not connected to the model that computes."""

import copy

import pytest
import tiny
import torch
from slim_models import rebuild, state_of
from tiny import DROPPED, SHAPE

from fairseq_headprune.modules.attach import find_gates
from fairseq_headprune.modules.connected import check_connected
from fairseq_headprune.parts import Mask, Part
from fairseq_headprune.removal.checkpoint import remove_heads
from fairseq_headprune.tasks.translation_headprune import TranslationHeadpruneConfig, TranslationHeadpruneTask


class Deaf(torch.nn.Module):
    """A model that computes without its gates, as after a change that left them unconnected."""

    def __init__(self, model):
        super().__init__()
        self.encoder, self.decoder = model.encoder, model.decoder
        ungated = copy.deepcopy(model)
        find_gates(ungated).set_mask(None)
        self.forward = ungated.forward


@pytest.mark.parametrize("step", ["train_step", "valid_step", "inference_step", "interactive"])
def test_unconnected_gates_are_an_error(step, dictionary, tmp_path):
    mask = Mask.full(SHAPE).without(DROPPED)
    mask.save(tmp_path / "mask.json")
    task = TranslationHeadpruneTask(
        TranslationHeadpruneConfig(head_mask=str(tmp_path / "mask.json")), dictionary, dictionary
    )
    model = tiny.make_model()
    find_gates(model).set_mask(mask)
    sample, deaf = tiny.make_batch(), Deaf(model)
    source = {name: sample["net_input"][name] for name in ("src_tokens", "src_lengths")}
    calls = {
        "train_step": lambda m: task.train_step(sample, m, lambda *_: None, None, 0),
        "valid_step": lambda m: task.valid_step(sample, m, lambda *_: None),
        "inference_step": lambda m: task.inference_step(None, [m], sample),
        "interactive": lambda m: task.inference_step(None, [m], {"net_input": source}),
    }
    with pytest.raises(RuntimeError, match="pruned heads of enc_self have no effect"):
        calls[step](deaf)
    # Connected gates pass the check: what fails next is the missing criterion or generator.
    with pytest.raises((TypeError, AttributeError)):
        calls[step](model)


def test_an_encoder_that_nobody_reads_is_no_error(tiny_model, batch):
    """All encoder-decoder heads were removed: pruning the encoder's changes nothing, and its gates are in order."""
    gates = find_gates(tiny_model)
    mask = gates.full().without([head for head in gates.full().kept() if head.component == "enc_dec"])
    slim = rebuild(remove_heads(state_of(tiny_model), mask).state)
    find_gates(slim).set_mask(mask.without([Part("enc_self", 0, 1)]))
    check_connected(slim, batch["net_input"])
    find_gates(slim).set_mask(mask.without([Part("dec_self", 0, 1)]))
    slim.decoder.layers[0].self_attn.forward = copy.deepcopy(slim.decoder.layers[0].self_attn).forward
    slim.decoder.layers[0].self_attn.forward.__self__.head_keep = None
    with pytest.raises(RuntimeError, match="pruned heads of dec_self have no effect"):
        check_connected(slim, batch["net_input"])


@pytest.mark.parametrize("component", ["enc_self", "enc_dec", "dec_self"])
def test_gates_that_nothing_reads_are_found(component, batch):
    model = tiny.make_model()
    unconnected = Deaf(model).eval()
    gates = find_gates(model)
    check_connected(unconnected, batch["net_input"])  # nothing is pruned: nothing to check
    gates.set_mask(mask := gates.mask().without([Part(component, 1, 0)]))
    check_connected(model, batch["net_input"])
    with pytest.raises(RuntimeError, match=f"pruned heads of {component} have no effect"):
        check_connected(unconnected, batch["net_input"])
    assert gates.mask() == mask and model.decoder.layers[0].need_attn
    # Heads whose columns are zero anyway are no evidence.
    gates.modules[component][1].out_proj.weight.data[:, :32] = 0
    check_connected(unconnected, batch["net_input"])


def test_the_check_leaves_modes_and_random_numbers_alone(batch):
    model = tiny.make_model()
    find_gates(model).set_mask(find_gates(model).mask().without([Part("enc_self", 0, 0)]))
    model.train()
    state = torch.get_rng_state()
    check_connected(model, batch["net_input"])
    assert model.training and model.encoder.layers[0].training and torch.equal(torch.get_rng_state(), state)
