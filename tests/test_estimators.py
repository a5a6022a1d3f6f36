"""Estimators that need no derivative, normalisation, and the settings of an estimate."""

import argparse
import math
from dataclasses import replace

import pytest
import tiny
import torch

from fairseq_headprune.cli.study_flags import add_scoring_flags, scoring_settings
from fairseq_headprune.importance.attention_maps import confidence
from fairseq_headprune.importance.estimate import estimate
from fairseq_headprune.importance.normalize import TIED, UNEVEN, concerns, module_norms, normalize
from fairseq_headprune.importance.part_weights import heads_with_broken_weights, random_scores, weight_norm
from fairseq_headprune.importance.settings import METHODS, ScoreSettings
from fairseq_headprune.modules.attach import find_gates
from fairseq_headprune.parts import Mask, Part, all_heads
from fairseq_headprune.parts.scores import Scores

SIZES = {"encoder_attention_heads": 4, "decoder_attention_heads": 2}
SHAPE = {"enc_self": [4, 4], "enc_dec": [2, 2], "dec_self": [2, 2]}
PAD, EOS = 1, 2


def build():
    model = tiny.make_model(**SIZES)
    generator = torch.Generator().manual_seed(5)
    for name, parameter in model.named_parameters():
        if "attn" in name and "norm" not in name:
            parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)
    return model


def attention_of_each_head(model, sample):
    """What the modules return when asked for need_head_weights: {(component, layer): (heads, batch, t, s)}."""
    found, hooks = {}, []
    for component, layer, module in find_gates(model).items():

        def ask(module, args, kwargs, place=(component, layer)):
            output = type(module).forward(module, *args, **{**kwargs, "need_weights": True, "need_head_weights": True})
            found[place] = output[1]

        hooks.append(module.register_forward_pre_hook(ask, with_kwargs=True))
    with torch.no_grad():
        model(**sample["net_input"])
    for hook in hooks:
        hook.remove()
    return found


def slow_confidence(model, samples):
    """Voita et al. 2019, §4: loop over sentences, heads and queries; the end-of-sentence key is left out."""
    sums, counts = {}, {}
    for sample in samples:
        source, prefix = sample["net_input"]["src_tokens"].tolist(), sample["net_input"]["prev_output_tokens"].tolist()
        queries = {"enc_self": source, "enc_dec": prefix, "dec_self": prefix}
        keys = {"enc_self": source, "enc_dec": source, "dec_self": prefix}
        for (component, layer), weights in attention_of_each_head(model, sample).items():
            for head in range(weights.size(0)):
                for sentence in range(weights.size(1)):
                    for t, query in enumerate(queries[component][sentence]):
                        seen = [s for s in range(weights.size(3)) if component != "dec_self" or s <= t]
                        usable = [s for s in seen if keys[component][sentence][s] not in (PAD, EOS)]
                        if query == PAD or not usable:
                            continue
                        place = Part(component, layer, head)
                        largest = max(float(weights[head, sentence, t, s]) for s in usable)
                        sums[place] = sums.get(place, 0.0) + largest
                        counts[place] = counts.get(place, 0) + 1
    return {place: sums[place] / counts[place] for place in sums}


def test_confidence_equals_the_slow_loop():
    # Source: the definition, computed from the weights that need_head_weights returns.
    model = build()
    samples = [tiny.make_batch(), tiny.make_batch([([1, 2, 3, 4], [5]), ([3], [4, 5, 6, 7])])]
    values, counts = confidence(model, samples, tiny.make_task())
    expected = slow_confidence(model, samples)
    assert set(expected) == set(all_heads(SHAPE))
    for head, value in expected.items():
        assert values[head.component][head.layer][head.index] == pytest.approx(value, rel=1e-5), head
    # Hand count: targets 5 + 5 + 2 + 1 + 4 words, one end of sentence each.
    assert counts == {"sentences": 5, "tokens": 22, "batches": 2}
    assert all(module.on_weights is None for _, _, module in find_gates(model).items())


def test_confidence_without_sentences_is_refused():
    with pytest.raises(ValueError, match="no sentence"):
        confidence(build(), [], tiny.make_task())


def test_weight_norm_of_weights_made_by_hand():
    # Source: by hand. Head 1 of 4, 16 of 64 units: its q is all 1, k all 2, v all 0, columns of out_proj all -3.
    model = build()
    gates = find_gates(model)
    module = gates.modules["enc_self"][0]
    for name, value in (("q_proj", 1.0), ("k_proj", 2.0), ("v_proj", 0.0)):
        getattr(module, name).weight.data[16:32] = value
    module.out_proj.weight.data[:, 16:32] = -3.0
    # 16 x 64 = 1024 weights in each of the four parts.
    assert weight_norm(gates, 1)["enc_self"][0][1] == pytest.approx(1024 * (1 + 2 + 0 + 3), rel=1e-6)
    assert weight_norm(gates, 2)["enc_self"][0][1] == pytest.approx(math.sqrt(1024 * (1 + 4 + 0 + 9)), rel=1e-6)
    with pytest.raises(ValueError, match="order is 1 or 2, not 3"):
        weight_norm(gates, 3)


def test_weight_norm_of_a_head_ignores_the_other_heads():
    model = build()
    gates = find_gates(model)
    before = weight_norm(gates)
    module = gates.modules["dec_self"][1]
    module.v_proj.weight.data[32:] *= 5  # head 1 of 2
    after = weight_norm(gates)
    changed = [h for h in all_heads(SHAPE) if before[h[0]][h[1]][h[2]] != after[h[0]][h[1]][h[2]]]
    assert changed == [Part("dec_self", 1, 1)]


def test_random_scores_are_fixed_by_the_seed_alone():
    gates = find_gates(build())
    torch.manual_seed(1)
    first = random_scores(gates, 0)
    torch.manual_seed(2)
    assert random_scores(gates, 0) == first != random_scores(gates, 1)
    assert {c: [len(row) for row in rows] for c, rows in first.items()} == SHAPE


def test_broken_weights_are_found():
    model = build()
    gates = find_gates(model)
    assert heads_with_broken_weights(gates) == []
    gates.modules["enc_dec"][1].k_proj.bias.data[40] = float("inf")
    assert heads_with_broken_weights(gates) == [Part("enc_dec", 1, 1)]


MASK = Mask({"enc_self": [[1, 1, 0], [1, 1, 1]], "enc_dec": [[0, 0, 1]]})
VALUES = {"enc_self": [[3.0, 4.0, 9.0], [0.0, 0.0, 0.0]], "enc_dec": [[7.0, 8.0, 2.0]]}


def test_normalize_layer_rms_and_layer_frozen_by_hand():
    # Source: by hand. Root mean squares of the kept heads: 5 / sqrt(2), and 2 for one head alone.
    root = 2**0.5
    found = normalize(VALUES, MASK, "layer-rms")
    assert found["enc_self"][0] == [pytest.approx(0.6 * root), pytest.approx(0.8 * root), None]
    assert found["enc_dec"] == [[None, None, 1.0]] and found["enc_self"][1] == [0.0] * 3
    # Norms of the model before pruning; a module that was all zero then stays 0.
    full = Mask({c: [[1] * len(row) for row in rows] for c, rows in VALUES.items()})
    norms = module_norms(VALUES, full)
    assert norms == {"enc_self": [pytest.approx(106**0.5), 0.0], "enc_dec": [pytest.approx(117**0.5)]}
    frozen = normalize(VALUES, MASK, "layer-frozen", norms)
    assert frozen["enc_self"] == [[pytest.approx(3 / 106**0.5), pytest.approx(4 / 106**0.5), None], [0.0] * 3]
    assert frozen["enc_dec"] == [[None, None, pytest.approx(2 / 117**0.5)]]
    assert normalize(VALUES, MASK, "layer-frozen") == normalize(VALUES, MASK, "layer")


def test_scores_biased_by_count_and_equal_scores_are_told():
    # Source: by hand. Two modules with one head each: both get 1 with layer and layer-rms.
    values, mask = {"enc_self": [[1.0, 2.0], [3.0, 4.0]]}, Mask({"enc_self": [[0, 1], [1, 0]]})
    norms = module_norms(values, Mask.full({"enc_self": [2, 2]}))
    told = {m: concerns(Scores(normalize(values, mask, m, norms), estimator="gradient", normalize=m)) for m in METHODS}
    last = ": the last head of a module always gets 1 with --normalize"
    assert {m: [text.startswith(TIED + last) for text in texts] for m, texts in told.items()} == {
        "layer": [True], "layer-rms": [True], "layer-frozen": [], "none": [], "minmax": [],
    }  # fmt: skip
    uneven = Scores(normalize(VALUES, MASK, "layer"), estimator="gradient", normalize="layer")
    assert concerns(uneven) == [UNEVEN, TIED]  # three zeros are equal
    assert concerns(Scores({"enc_self": [[0.6, 0.8]]}, estimator="gradient", normalize="layer")) == []


@pytest.mark.parametrize("method", METHODS)
def test_one_head_a_module_is_left_by_the_norm_of_kept_heads(method):
    """Raw scores 1 to 12 in three modules of four, pruned one by one: without it the highest three are left."""
    values = {"enc_self": [[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0], [9.0, 10.0, 11.0, 12.0]]}
    full = mask = Mask.full({"enc_self": [4, 4, 4]})
    norms = module_norms(values, full)
    for _ in range(9):
        scores = Scores(normalize(values, mask, method, norms), estimator="gradient", normalize=method)
        mask = mask.without(scores.pruning_order()[:1])
    last = Scores(normalize(values, mask, method, norms), estimator="gradient", normalize=method)
    if method in ("layer", "layer-rms"):
        assert [sum(row) for row in mask.rows["enc_self"]] == [1, 1, 1] and concerns(last)
    else:
        assert concerns(last) == []
    if method in ("none", "minmax"):
        assert mask.rows["enc_self"] == [[0] * 4, [0] * 4, [0, 1, 1, 1]]


@pytest.mark.parametrize(
    "method, expected",
    [
        # By hand: sqrt(3^2 + 4^2) = 5 over the kept heads; a layer of zeros stays 0; one head alone becomes 1.
        ("layer", [[0.6, 0.8, None], [0.0] * 3, [None, None, 1.0]]),
        # By hand: kept heads run from 0 to 4.
        ("minmax", [[0.75, 1.0, None], [0.0] * 3, [None, None, 0.5]]),
        ("none", [[3.0, 4.0, None], [0.0] * 3, [None, None, 2.0]]),
    ],
)
def test_normalize_by_hand(method, expected):
    found = normalize(VALUES, MASK, method)
    assert [*found["enc_self"], *found["enc_dec"]] == expected


def test_minmax_has_one_scale_for_all_heads():
    # Their order is that without normalisation.
    orders = [Scores(normalize(VALUES, MASK, m), estimator="gradient").pruning_order() for m in ("minmax", "none")]
    assert orders[0] == orders[1]
    equal = {"enc_self": [[2.0, 2.0]]}
    assert normalize(equal, Mask.full({"enc_self": [2]}), "minmax") == {"enc_self": [[0.0, 0.0]]}


def test_normalize_of_a_model_without_heads():
    mask = Mask({"enc_self": [[0, 0]]})
    for method in ("layer", "none", "minmax"):
        assert normalize({"enc_self": [[1.0, 2.0]]}, mask, method) == {"enc_self": [[None, None]]}


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_normalize_refuses_what_is_not_finite(bad):
    mask = Mask({"enc_self": [[1, 0]]})
    with pytest.raises(ValueError, match="not finite"):
        normalize({"enc_self": [[bad, 1.0]]}, mask, "layer")
    # A pruned head is not ranked: its value does not matter.
    assert normalize({"enc_self": [[1.0, bad]]}, mask, "layer") == {"enc_self": [[1.0, None]]}
    with pytest.raises(ValueError, match="unknown normalisation 'l2'; known are none, layer, .*minmax"):
        normalize(VALUES, MASK, "l2")


@pytest.mark.parametrize(
    "setting, message",
    [
        ({"estimator": "taylor"}, "unknown estimator 'taylor'; known are gradient"),
        ({"reduction": "mean"}, "unknown reduction 'mean'"),
        ({"loss": "nll"}, "unknown loss 'nll'"),
        ({"normalize": "l2"}, "unknown normalize 'l2'"),
        ({"sentences": -1}, "cannot draw -1 sentences; 0 takes all"),
        ({"smoothing": 1.0}, "not 1.0"),
        ({"smoothing": -0.1}, "not -0.1"),
        ({"smoothing": float("nan")}, "not nan"),
    ],
)
def test_wrong_settings_are_refused(setting, message):
    with pytest.raises(ValueError, match=message):
        ScoreSettings(**setting)


def test_a_preset_names_the_settings_of_its_paper():
    """Michel et al. 2019: eq. 2 (sentences, absolute values) and §4.1 (l2 norm by layer); flags override it."""
    parser = argparse.ArgumentParser()
    add_scoring_flags(parser)
    plain = scoring_settings(parser.parse_args([]), "train")
    assert plain == ScoreSettings() and plain.normalize == METHODS[0] == "none"
    found = scoring_settings(parser.parse_args(["--preset", "michel-2019"]), "train")
    assert (found.estimator, found.reduction, found.normalize) == ("gradient", "sentence", "layer")
    args = parser.parse_args(["--normalize", "none", "--preset", "michel-2019"])
    assert scoring_settings(args, "train") == replace(found, normalize="none")
    # A verb that is a paper's method has its preset without being asked.
    of_a_paper = argparse.ArgumentParser()
    add_scoring_flags(of_a_paper, "michel-2019")
    assert scoring_settings(of_a_paper.parse_args([]), "train") == found
    assert scoring_settings(of_a_paper.parse_args(["--normalize", "none"]), "train").normalize == "none"


def test_only_settings_that_matter_are_reported():
    # Source: which settings each estimator reads.
    assert set(ScoreSettings().relevant()) == {
        "estimator", "reduction", "loss", "normalize", "subset", "sentences", "seed",
    }  # fmt: skip
    assert "smoothing" in ScoreSettings(loss="label-smoothed").relevant()
    assert set(ScoreSettings(estimator="confidence").relevant()) == {
        "estimator", "normalize", "subset", "sentences", "seed",
    }  # fmt: skip
    assert set(ScoreSettings(estimator="weight-norm").relevant()) == {"estimator", "normalize", "norm_order"}
    assert set(ScoreSettings(estimator="random").relevant()) == {"estimator", "normalize", "seed"}


@pytest.mark.parametrize("estimator", ["gradient", "fisher", "confidence", "weight-norm", "random"])
def test_every_estimator_ranks_kept_heads_only(estimator, batch):
    model = build()
    gates = find_gates(model)
    dropped = [Part("enc_self", 0, 2), Part("dec_self", 1, 0), Part("dec_self", 1, 1)]
    gates.set_mask(Mask.full(SHAPE).without(dropped))
    scores = estimate(model, gates, [batch], ScoreSettings(estimator=estimator, normalize="layer"), tiny.make_task())
    assert scores.shape == SHAPE and scores.estimator == estimator
    assert [h for h in all_heads(SHAPE) if scores[h] is None] == dropped
    # Source: the definition of this normaliser: every module's kept heads have l2 norm 1.
    for component, rows in scores.rows.items():
        for layer, row in enumerate(rows):
            squares = [v * v for v in row if v is not None]
            assert sum(squares) == pytest.approx(1.0 if squares else 0.0), (component, layer)
    assert scores.sentences == (3 if estimator in ("gradient", "fisher", "confidence") else 0)
