"""Derivatives of the loss with respect to the gates, and the importance made from them."""

from contextlib import nullcontext

import pytest
import tiny
import torch
from slim_models import lively

from fairseq_headprune.importance.estimate import estimate
from fairseq_headprune.importance.gradient import GateDerivatives, gradient_importance
from fairseq_headprune.importance.losses import TokenLosses, sentence_losses
from fairseq_headprune.importance.settings import ScoreSettings
from fairseq_headprune.modules.attach import find_gates
from fairseq_headprune.parts import Mask, Part, all_heads

#: 4 heads and 3 sentences on purpose: a mix-up of the two axes cannot go unnoticed
SIZES = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
SHAPE = {"enc_self": [4, 4], "enc_dec": [4, 4], "dec_self": [4, 4]}
PAD, EOS = 1, 2
#: lengths 3 to 9 (target: two words fewer, at least 1)
MIXED = [(list(range(n)), list(range(max(n - 2, 1)))[::-1]) for n in (3, 5, 6, 8, 9)]


def build(**settings):
    return lively({**SIZES, **settings}).double()


def losses(model, sample, loss="sum"):
    with torch.no_grad():
        output = model(**sample["net_input"])
        # fairseq normalises in float32, except where it is adaptive.
        adaptive = model.decoder.adaptive_softmax is not None
        logits = model.get_normalized_probs(output, log_probs=True) if adaptive else output[0]
        return sentence_losses(logits, sample["target"], PAD, loss)


def central_difference(model, sample, head, loss="sum", step=1e-6):
    """(L(gate 1 + step) - L(gate 1 - step)) / (2 step) of each sentence, (batch,)."""
    module = find_gates(model).modules[head.component][head.layer]
    found = []
    for value in (1 + step, 1 - step):
        module.head_gate = torch.ones(len(sample["target"]), module.num_heads, dtype=torch.float64)
        module.head_gate[:, head.index] = value
        found.append(losses(model, sample, loss))
    module.head_gate = None
    return (found[0] - found[1]) / (2 * step)


def one_by_one(model, sentences, loss="sum"):
    """Derivatives of each sentence from a batch of its own: {head: [one number a sentence]}."""
    derivatives = GateDerivatives(model, TokenLosses(PAD, loss))
    found = [derivatives.per_sentence(tiny.make_batch([pair])) for pair in sentences]
    return {h: [float(g[h.component][h.layer][0, h.index]) for g in found] for h in all_heads(SHAPE)}


def by_sentence(gradients, sample, sentences):
    """Per-sentence derivatives of one batch in the order of the sentences (fairseq sorts a batch by length)."""
    order = torch.argsort(sample["id"])
    assert len(order) == len(sentences)
    return {h: gradients[h.component][h.layer][order, h.index].tolist() for h in all_heads(SHAPE)}


def check_close(found, expected, tolerance):
    largest = max(abs(v) for values in expected.values() for v in values)
    assert largest > 1e-3  # else the comparison would say nothing
    for head, values in expected.items():
        assert found[head] == pytest.approx(values, rel=0, abs=tolerance * largest), head


@pytest.mark.parametrize(
    "loss, settings",
    [
        *((loss, {}) for loss in ("sum", "mean", "label-smoothed")),
        # The decoder's features are wider than the vocabulary, so that they could be taken for logits.
        *((loss, {"adaptive_softmax_cutoff": "8,16"}) for loss in ("sum", "label-smoothed")),
    ],
)
def test_per_sentence_equals_finite_differences_for_every_head(loss, settings, batch):
    # Source: central differences in float64 of fairseq's log-probabilities, with a step so small that no ReLU changes
    # its side.
    model = build(**settings)
    per_token = GateDerivatives(model, TokenLosses(PAD, loss)).per_token(batch)
    gradients = GateDerivatives(model, TokenLosses(PAD, loss)).per_sentence(batch)
    # 3 sentences, 4 heads, 7 source and 6 target positions (with end of sentence).
    assert {c: [tuple(g.shape) for g in layers] for c, layers in gradients.items()} == {c: [(3, 4)] * 2 for c in SHAPE}
    assert {c: [tuple(g.shape) for g in layers] for c, layers in per_token.items()} == {
        c: [(3, 4, 7 if c == "enc_self" else 6)] * 2 for c in SHAPE
    }
    for head in all_heads(SHAPE):
        expected = central_difference(model, batch, head, loss)
        found = gradients[head.component][head.layer][:, head.index]
        assert expected.abs().max() > 1e-6, head
        assert torch.allclose(found, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max())), head
        of_tokens = per_token[head.component][head.layer][:, head.index].sum(dim=1)
        assert torch.allclose(of_tokens, found, rtol=1e-6, atol=1e-9), head


@pytest.mark.parametrize("masked, dtype, limit", [
    (False, torch.double, 1e-9), (True, torch.double, 1e-9), (False, torch.float, 1e-5),
])  # fmt: skip
def test_one_batch_equals_batches_of_one(masked, dtype, limit):
    # Source: a batch of one has no padding and no neighbours.
    model = build().to(dtype)
    if masked:
        mask = Mask.full(SHAPE).without([Part("enc_self", 0, 1), Part("enc_dec", 1, 2), Part("dec_self", 0, 0)])
        find_gates(model).set_mask(mask)
    sample = tiny.make_batch(MIXED)
    found = by_sentence(GateDerivatives(model, TokenLosses(PAD)).per_sentence(sample), sample, MIXED)
    check_close(found, one_by_one(model, MIXED), limit)


@pytest.mark.parametrize("estimator", ["gradient", "fisher"])
@pytest.mark.parametrize("groups", [[5], [1, 1, 1, 1, 1], [2, 3], [4, 1]])
def test_importance_is_independent_of_the_batching(estimator, groups):
    # Source: a slow loop over sentences: mean of |d| (eq. 2), or of its square (Fisher).
    model = build()
    single = one_by_one(model, MIXED)
    parts = [MIXED[sum(groups[:i]) : sum(groups[: i + 1])] for i in range(len(groups))]
    settings = ScoreSettings(estimator=estimator, normalize="none")
    scores = estimate(model, find_gates(model), [tiny.make_batch(part) for part in parts], settings, tiny.make_task())
    for head in all_heads(SHAPE):
        terms = [abs(v) if estimator == "gradient" else v * v for v in single[head]]
        assert scores[head] == pytest.approx(sum(terms) / 5, rel=1e-9), head
    assert scores.sentences == 5 and scores.details["counts"]["batches"] == len(groups)


def test_signed_and_batch_reductions_follow_their_definitions():
    # Source: slow loops over the derivatives of single sentences.
    model, parts = build(), [MIXED[:2], MIXED[2:]]
    single = one_by_one(model, MIXED)
    batches = [tiny.make_batch(part) for part in parts]
    signed, _ = gradient_importance(GateDerivatives(model, TokenLosses(PAD)), batches, "signed")
    batch, _ = gradient_importance(GateDerivatives(model, TokenLosses(PAD)), batches, "batch")
    squared, _ = gradient_importance(GateDerivatives(model, TokenLosses(PAD)), batches, "batch", power=2)
    differs = 0
    for head in all_heads(SHAPE):
        values = single[head]
        means = [sum(values[:2]) / 2, sum(values[2:]) / 3]
        place = (head.component, head.layer, head.index)
        assert at(signed, place) == pytest.approx(sum(values) / 5, rel=1e-9, abs=1e-12)
        assert at(batch, place) == pytest.approx((abs(means[0]) + abs(means[1])) / 2, rel=1e-9, abs=1e-12)
        assert at(squared, place) == pytest.approx((means[0] ** 2 + means[1] ** 2) / 2, rel=1e-9, abs=1e-15)
        differs += any(v < 0 for v in values) and any(v > 0 for v in values)
    assert differs  # some head has derivatives of both signs, so the reductions are told apart


def at(values, place):
    return values[place[0]][place[1]][place[2]]


def test_token_reduction_follows_its_definition():
    # Source: central differences of single positions, and the sum over positions = the derivative of the sentence.
    model = build()
    sample = tiny.make_batch(MIXED)
    derivatives = GateDerivatives(model, TokenLosses(PAD))
    tokens, sentences = derivatives.per_token(sample), derivatives.per_sentence(sample)
    real = {c: sample["target"].ne(PAD) for c in SHAPE} | {"enc_self": sample["net_input"]["src_tokens"].ne(PAD)}
    for component, layers in tokens.items():
        for layer, found in enumerate(layers):
            assert torch.allclose(found.sum(dim=2), sentences[component][layer], rtol=1e-9, atol=1e-12)
            assert found.transpose(1, 2)[~real[component]].abs().max() == 0  # padding
            module = find_gates(model).modules[component][layer]
            position, head, step, values = -1 if component == "enc_self" else 0, 2, 1e-6, []
            for value in (1 + step, 1 - step):
                module.head_gate = torch.ones(found.shape, dtype=torch.float64)
                module.head_gate[:, head, position] = value
                values.append(losses(model, sample))
            module.head_gate = None
            expected = (values[0] - values[1]) / (2 * step)
            assert torch.allclose(found[:, head, position], expected, rtol=1e-4, atol=1e-6)
    values, counts = gradient_importance(derivatives, [sample], "token")
    # Hand count: source 3+5+6+8+9 words, target 1+3+4+6+7 words, one end of sentence each.
    assert counts == {"sentences": 5, "tokens": 26, "batches": 1}
    for component, layers in values.items():
        for layer, row in enumerate(layers):
            total = sum(abs(tokens[component][layer][s]) for s in range(5)).sum(dim=1)
            assert row == pytest.approx((total / (36 if component == "enc_self" else 26)).tolist(), rel=1e-12)


@pytest.mark.parametrize("reduction", ["sentence", "token", "batch", "signed"])
def test_a_sentence_without_target_weighs_nothing(reduction, batch):
    # Source: the same batch without that sentence.
    model = build()
    short = {key: batch[key].clone() for key in ("target", "id")} | {"net_input": dict(batch["net_input"])}
    short["target"][1] = PAD
    short["net_input"]["prev_output_tokens"] = short["net_input"]["prev_output_tokens"].clone()
    short["net_input"]["prev_output_tokens"][1] = PAD
    rest = {"target": batch["target"][[0, 2]], "net_input": {k: v[[0, 2]] for k, v in batch["net_input"].items()}}
    found, counts = gradient_importance(GateDerivatives(model, TokenLosses(PAD)), [short], reduction)
    expected, expected_counts = gradient_importance(GateDerivatives(model, TokenLosses(PAD)), [rest], reduction)
    assert counts == expected_counts and counts["sentences"] == 2
    for component in SHAPE:
        for row, wanted in zip(found[component], expected[component], strict=True):
            assert row == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("loss", ["sum", "mean", "label-smoothed"])
def test_a_fully_padded_sentence_gives_zero_not_nan(loss, batch):
    # Source: the loss of no token is 0, its derivative 0.
    batch["target"][1] = PAD
    batch["net_input"]["prev_output_tokens"][1] = PAD
    batch["net_input"]["src_tokens"][1] = PAD
    gradients = GateDerivatives(build(), TokenLosses(PAD, loss)).per_sentence(batch)
    for layers in gradients.values():
        for gradient in layers:
            assert torch.isfinite(gradient).all() and not gradient[1].any() and gradient[0].any()


def test_only_padding_is_refused(batch):
    batch["target"].fill_(PAD)
    with pytest.raises(ValueError, match="no sentence with target tokens"):
        gradient_importance(GateDerivatives(build(), TokenLosses(PAD)), [batch])
    with pytest.raises(ValueError, match="no sentence"):
        gradient_importance(GateDerivatives(build(), TokenLosses(PAD)), [])


@pytest.mark.parametrize("head", [Part("enc_self", 1, 3), Part("enc_dec", 0, 2), Part("dec_self", 1, 0)])
@pytest.mark.parametrize("part", ["q_proj.weight", "k_proj.weight", "v_proj.bias", "out_proj.weight"])
def test_a_broken_head_is_named(head, part, batch):
    # Source: the head we break; 64 units, 16 a head.
    model = build()
    module = find_gates(model).modules[head.component][head.layer]
    parameter = module.get_parameter(part).data
    place = (0, 16 * head.index + 5) if part.startswith("out") else 16 * head.index + 5
    parameter[place] = float("nan")
    with pytest.raises(ValueError, match="not finite") as error:
        GateDerivatives(model, TokenLosses(PAD)).per_sentence(batch)
    assert str(error.value).endswith(f": {head}")


def test_broken_weights_elsewhere_name_no_head(batch):
    model = build()
    model.encoder.layers[0].fc1.weight.data[0, 0] = float("inf")
    with pytest.raises(ValueError, match="not finite.*no head has such weights"):
        GateDerivatives(model, TokenLosses(PAD)).per_sentence(batch)


def test_three_rounds_with_masks_updated_between(batch):
    # Source: central differences under the same mask, every round; pruned heads have derivative 0 and rank None.
    model = build()
    gates = find_gates(model)
    mask = Mask.full(SHAPE)
    pruned = []
    for _ in range(3):
        gates.set_mask(mask)
        gradients = GateDerivatives(model, TokenLosses(PAD)).per_sentence(batch)
        for head in all_heads(SHAPE):
            expected = central_difference(model, batch, head)
            found = gradients[head.component][head.layer][:, head.index]
            assert torch.allclose(found, expected, rtol=1e-4, atol=1e-6), head
            assert (head in pruned) <= (not found.any())
        scores = estimate(model, gates, [batch], ScoreSettings(), tiny.make_task())
        assert scores.shape == SHAPE
        order = scores.pruning_order()
        assert {h for h in all_heads(SHAPE) if scores[h] is None} == set(pruned)
        assert len(order) == 24 - len(pruned) and not set(order) & set(pruned)
        pruned += order[:5]
        mask = mask.without(order[:5])
    assert len(set(pruned)) == 15


@pytest.mark.parametrize("broken", [False, True])
def test_the_model_is_left_as_it_was(broken, batch):
    model = build()
    model.encoder.layers[0].fc1.weight.requires_grad_(False)
    if broken:
        model.encoder.layers[0].fc1.weight.data[0, 0] = float("nan")
    before = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    with pytest.raises(ValueError, match="not finite") if broken else nullcontext():
        GateDerivatives(model, TokenLosses(PAD)).per_sentence(batch)
    assert {name: parameter.requires_grad for name, parameter in model.named_parameters()} == before
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(module.head_gate is None for _, _, module in find_gates(model).items())
    assert not before["encoder.layers.0.fc1.weight"] and before["encoder.layers.0.fc2.weight"]


def test_training_mode_and_unknown_names_are_refused(batch):
    with pytest.raises(ValueError, match=r"model.eval\(\)"):
        GateDerivatives(build().train(), TokenLosses(PAD))
    with pytest.raises(ValueError, match="unknown loss 'nll'; known are sum, mean, label-smoothed"):
        GateDerivatives(build(), TokenLosses(PAD, "nll")).per_sentence(batch)
    with pytest.raises(ValueError, match="unknown reduction 'max'; known are sentence, token, batch, signed"):
        gradient_importance(GateDerivatives(build(), TokenLosses(PAD)), [batch], "max")
