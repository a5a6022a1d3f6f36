"""Importance of feed-forward parts. Reference: finite differences of each sentence's own loss on plain weights."""

import pytest
import tiny
import torch
from slim_models import SETTINGS, lively, rebuild, state_of

from fairseq_headprune.importance.estimate import estimate
from fairseq_headprune.importance.gradient import GateDerivatives, gradient_importance
from fairseq_headprune.importance.losses import TokenLosses
from fairseq_headprune.importance.settings import ScoreSettings
from fairseq_headprune.modules.attach import find_gates
from fairseq_headprune.parts import FFN, HEADS, Mask
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


class Task:
    """What estimate asks of a task."""

    def losses(self, loss, smoothing):
        return TokenLosses(PAD, loss, smoothing)


def scores(model, batches, parts, **settings):
    """The feed-forward scores, and the whole table."""
    return estimate(model, find_gates(model), batches, ScoreSettings(ffn=parts, **settings), Task()).rows


@pytest.fixture
def model():
    return lively(SETTINGS[0]).double()


def test_blocks_are_the_mean_absolute_slope(model, batch):
    found = scores(model, [batch], "blocks", normalize="layer")
    for component, layers in (("enc_ffn", model.encoder.layers), ("dec_ffn", model.decoder.layers)):
        for layer, [score] in zip(layers, found[component], strict=True):
            slopes = [slope(model, s, [layer.fc2.weight, layer.fc2.bias]) for s in tiny.SENTENCES]
            assert score == pytest.approx(sum(map(abs, slopes)) / 3, rel=1e-5)
    # From the same pass: heads, normalised by layer, with the scores they have without gates on the blocks.
    heads = estimate(model, find_gates(model), [batch], ScoreSettings(normalize="layer"), Task()).rows
    assert {c: found[c] for c in HEADS} == heads and sum(v * v for v in found["enc_dec"][1]) == pytest.approx(1)
    # minmax: heads and blocks apart.
    values = [v for c in FFN for row in scores(model, [batch], "blocks", normalize="minmax")[c] for v in row]
    assert (min(values), max(values)) == (0, 1)


def test_units_are_the_mean_absolute_slope(model, batch):
    # Two batches: what counts is the sentence, not the batch.
    batches = [tiny.make_batch(tiny.SENTENCES[:2]), tiny.make_batch(tiny.SENTENCES[2:])]
    found = scores(model, batches, "units", **PLAIN)
    squared = scores(model, [batch], "units", estimator="fisher", **PLAIN)
    normal = scores(model, [batch], "units", normalize="layer")
    for side, layer in (("enc_ffn", model.encoder.layers[1]), ("dec_ffn", model.decoder.layers[0])):
        place = 1 if side == "enc_ffn" else 0
        for unit in (0, 17, 63):
            slopes = [slope(model, s, [layer.fc2.weight[:, unit]]) for s in tiny.SENTENCES]
            assert found[side][place][unit] == pytest.approx(sum(map(abs, slopes)) / 3, rel=1e-5, abs=1e-7)
            assert squared[side][place][unit] == pytest.approx(sum(s * s for s in slopes) / 3, rel=1e-5, abs=1e-7)
        norm = sum(v * v for v in found[side][place]) ** 0.5
        assert normal[side][place] == pytest.approx([v / norm for v in found[side][place]], rel=1e-6)


def test_pruned_parts_have_no_score_and_original_numbers(model, batch):
    parts = {"enc_ffn": [[int(u % 2) for u in range(64)], [0]], "dec_ffn": [[0] * 64, [1]]}
    mask = Mask({**find_gates(model).full().rows, **parts})
    slim = rebuild(remove_heads(state_of(model), mask, ffn=True).state).double()
    find_gates(model).set_mask(mask)
    masked, removed = (scores(m, [batch], "blocks", **PLAIN) for m in (model, slim))
    assert [v is None for c in FFN for [v] in masked[c]] == [False, True, False, False]
    for mine, theirs in zip(removed["dec_ffn"], masked["dec_ffn"], strict=True):
        assert mine == pytest.approx(theirs, rel=1e-5)
    masked, removed = (scores(m, [batch], "units", **PLAIN) for m in (model, slim))
    assert [[v is None for v in row] for row in masked["enc_ffn"]] == [[u % 2 == 0 for u in range(64)], [True]]
    assert masked["dec_ffn"][0] == [None] * 64
    for c in FFN:
        for mine, theirs in zip(removed[c], masked[c], strict=True):
            assert mine == [None if v is None else pytest.approx(v, rel=1e-4, abs=1e-7) for v in theirs]


@pytest.mark.parametrize("components", [["enc_dec"], ["enc_self", "enc_dec", "dec_self"]])
def test_models_that_lost_all_heads_of_a_component_are_scored(model, batch, components):
    """Without encoder-decoder heads nothing of the encoder is on a path to the loss: 0, as under the mask."""
    mask = find_gates(model).full().without([h for h in find_gates(model).full().kept() if h.component in components])
    slim = rebuild(remove_heads(state_of(model), mask).state).double()
    find_gates(model).set_mask(mask)
    masked, removed = (scores(m, [batch], "blocks") for m in (model, slim))
    assert removed["enc_ffn"] == masked["enc_ffn"] == [[0], [0]]
    for mine, theirs in zip(removed["dec_ffn"], masked["dec_ffn"], strict=True):
        assert mine == pytest.approx(theirs, rel=1e-6) and mine[0] > 0
    heads, _ = gradient_importance(GateDerivatives(slim, TokenLosses(PAD)), [batch])
    assert heads["enc_dec"] == [[], []]


def test_the_model_is_left_as_it_was(model, batch):
    with torch.no_grad():
        before = model(**batch["net_input"])[0]
    scores(model, [batch], "units")
    assert torch.equal(model(**batch["net_input"])[0], before)
    assert all(p.requires_grad and p.grad is None for p in model.parameters())


def test_scores_without_data(model):
    # Source: the weights of a unit and of a whole block, by hand.
    layer = model.decoder.layers[1]
    units, blocks = (
        scores(model, [], parts, estimator="weight-norm", **PLAIN)["dec_ffn"][1] for parts in ("units", "blocks")
    )
    assert units[3] == pytest.approx(torch.cat([layer.fc1.weight[3], layer.fc2.weight[:, 3]]).norm().item())
    assert blocks == [pytest.approx(torch.cat([layer.fc1.weight, layer.fc2.weight.T]).norm().item())]
    drawn, heads = (scores(model, [], parts, estimator="random", **PLAIN) for parts in ("units", None))
    assert {c: drawn[c] for c in HEADS} == heads and len({v for row in drawn["enc_ffn"] for v in row}) == 128


def test_estimators_without_scores_of_such_parts_are_refused():
    for settings in ({"estimator": "confidence"}, {"reduction": "token"}):
        with pytest.raises(ValueError, match="--ffn needs another --estimator than confidence"):
            ScoreSettings(ffn="units", **settings)
