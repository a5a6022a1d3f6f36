"""Importance of feed-forward parts. Reference: finite differences of each sentence's own loss on plain weights."""

import pytest
import tiny
import torch
from slim_models import SETTINGS, lively, rebuild, state_of

from fairseq_headprune.importance.estimate import ScoreSettings
from fairseq_headprune.importance.ffn import check_ffn_settings, ffn_scores
from fairseq_headprune.importance.gradient import GateDerivatives, gradient_importance
from fairseq_headprune.importance.losses import TokenLosses
from fairseq_headprune.modules.attach import find_gates
from fairseq_headprune.parts import Mask
from fairseq_headprune.removal.checkpoint import remove_heads

PAD = 1
PLAIN = {"normalize": "none"}


def loss_of(model, sentence):
    """The summed negative log-likelihood of one sentence, alone and therefore without padding."""
    batch = tiny.make_batch([sentence])
    with torch.no_grad():
        log_probs = model(**batch["net_input"])[0].log_softmax(dim=-1)
    return -log_probs.gather(2, batch["target"][..., None]).sum().item()


def slope(model, sentence, tensors, step=1e-5):
    """Central difference of the loss when these tensors (views of weights) are scaled by 1 +- step."""
    values = []
    for factor in (1 + step, 1 - step):
        before = [tensor.clone() for tensor in tensors]
        for tensor in tensors:
            tensor.data.mul_(factor)
        values.append(loss_of(model, sentence))
        for tensor, value in zip(tensors, before, strict=True):
            tensor.data.copy_(value)
    return (values[0] - values[1]) / (2 * step)


@pytest.fixture
def model():
    return lively(SETTINGS[0]).double()


def test_blocks_are_the_mean_absolute_slope(model, batch):
    found = ffn_scores(model, [batch], ScoreSettings(), TokenLosses(PAD), "blocks")
    layers = {"enc": model.encoder.layers, "dec": model.decoder.layers}
    for side, rows in found.items():
        for layer, score in zip(layers[side], rows, strict=True):
            slopes = [slope(model, s, [layer.fc2.weight, layer.fc2.bias]) for s in tiny.SENTENCES]
            assert score == pytest.approx(sum(map(abs, slopes)) / 3, rel=1e-5)


def test_units_are_the_mean_absolute_slope(model, batch):
    # Two batches: what counts is the sentence, not the batch.
    batches = [tiny.make_batch(tiny.SENTENCES[:2]), tiny.make_batch(tiny.SENTENCES[2:])]
    found = ffn_scores(model, batches, ScoreSettings(**PLAIN), TokenLosses(PAD), "units")
    squared = ffn_scores(model, [batch], ScoreSettings(estimator="fisher", **PLAIN), TokenLosses(PAD), "units")
    normal = ffn_scores(model, [batch], ScoreSettings(), TokenLosses(PAD), "units")
    for side, layer in (("enc", model.encoder.layers[1]), ("dec", model.decoder.layers[0])):
        place = 1 if side == "enc" else 0
        for unit in (0, 17, 63):
            slopes = [slope(model, s, [layer.fc2.weight[:, unit]]) for s in tiny.SENTENCES]
            assert found[side][place][unit] == pytest.approx(sum(map(abs, slopes)) / 3, rel=1e-5, abs=1e-7)
            assert squared[side][place][unit] == pytest.approx(sum(s * s for s in slopes) / 3, rel=1e-5, abs=1e-7)
        norm = sum(v * v for v in found[side][place]) ** 0.5
        assert normal[side][place] == pytest.approx([v / norm for v in found[side][place]], rel=1e-6)


def test_pruned_parts_have_no_score_and_original_numbers(model, batch):
    ffn = {"enc": [[int(u % 2) for u in range(64)], 0], "dec": [[0] * 64, 1]}
    mask = Mask(find_gates(model).full().rows, ffn=ffn)
    slim = rebuild(remove_heads(state_of(model), mask, ffn=True).state).double()
    find_gates(model).set_mask(mask)
    for parts in ("blocks", "units"):
        masked, removed = (
            ffn_scores(m, [batch], ScoreSettings(**PLAIN), TokenLosses(PAD), parts) for m in (model, slim)
        )
        if parts == "blocks":
            assert [v is None for v in masked["enc"] + masked["dec"]] == [False, True, False, False]
            assert removed["dec"] == pytest.approx(masked["dec"], rel=1e-5)
            continue
        assert [[v is None for v in row] for row in masked["enc"]] == [[u % 2 == 0 for u in range(64)], [True] * 64]
        assert masked["dec"][0] == [None] * 64
        for mine, theirs in zip(removed["enc"] + removed["dec"], masked["enc"] + masked["dec"], strict=True):
            assert mine == [None if v is None else pytest.approx(v, rel=1e-4, abs=1e-7) for v in theirs]


@pytest.mark.parametrize("components", [["enc_dec"], ["enc_self", "enc_dec", "dec_self"]])
def test_models_that_lost_all_heads_of_a_component_are_scored(model, batch, components):
    """Without encoder-decoder heads nothing of the encoder is on a path to the loss: 0, as under the mask."""
    mask = find_gates(model).full().without([h for h in find_gates(model).full().kept() if h.component in components])
    slim = rebuild(remove_heads(state_of(model), mask).state).double()
    find_gates(model).set_mask(mask)
    masked, removed = (ffn_scores(m, [batch], ScoreSettings(), TokenLosses(PAD), "blocks") for m in (model, slim))
    assert removed["enc"] == masked["enc"] == [0, 0]
    assert removed["dec"] == pytest.approx(masked["dec"], rel=1e-6) and min(removed["dec"]) > 0
    heads, _ = gradient_importance(GateDerivatives(slim, TokenLosses(PAD)), [batch])
    assert heads["enc_dec"] == [[], []]


def test_the_model_is_left_as_it_was(model, batch):
    with torch.no_grad():
        before = model(**batch["net_input"])[0]
    ffn_scores(model, [batch], ScoreSettings(), TokenLosses(PAD), "units")
    assert torch.equal(model(**batch["net_input"])[0], before)
    assert all(p.requires_grad and p.grad is None for p in model.parameters())


def test_estimators_without_derivatives_are_refused():
    for settings in ({"estimator": "random"}, {"reduction": "token"}):
        with pytest.raises(ValueError, match="--ffn needs --estimator gradient or fisher, and another --reduction"):
            check_ffn_settings(ScoreSettings(**settings))
