"""Folders that are not what they should be, and old ones. Reference: a good folder of the same weights."""

import json
from argparse import Namespace
from types import SimpleNamespace

import pytest
import tiny
import torch
from bert_models import batch, from_folder, hugging_face_folder, lively, outputs
from safetensors.torch import load_file, save_file

from fairseq_headprune.imports.bert import read_config
from fairseq_headprune.models.bert_gated import BertGatedModel
from fairseq_headprune.modules.attach import find_gates
from fairseq_headprune.parts import Mask
from fairseq_headprune.tasks.glue import _vocabulary


@pytest.fixture
def folder(tmp_path):
    return hugging_face_folder(tmp_path / "hf")


def edit(folder, **changed):
    """Change entries of config.json; None takes one out."""
    path = folder / "config.json"
    value = json.loads(path.read_text()) | changed
    path.write_text(json.dumps({name: entry for name, entry in value.items() if entry is not None}))


def edit_weights(folder, change):
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors")


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"model_type": "roberta"}, "model_type is 'roberta'; only 'bert' is known"),
        (
            {"model_type": "distilbert", "hidden_size": None},
            "'distilbert'; .*such as bert.encoder.layer.0.attention.self.query.weight.*settings lack hidden_size",
        ),
        ({"hidden_size": None, "vocab_size": None}, "hidden_size, vocab_size missing"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ({"is_decoder": True}, "is_decoder is True; only False"),
        ({"hidden_act": "swish"}, "hidden_act is 'swish'; known are gelu, relu, gelu_new"),
        ({"num_hidden_layers": 4}, "16 missing: encoder.layer.3.attention.self.key.weight, "),
        ({"num_hidden_layers": 2}, "16 unknown: encoder.layer.2.attention.output.LayerNorm.bias, "),
        ({"vocab_size": 90}, r"1 of another shape than config.json says: embeddings.word_embeddings.weight \(61, 24\)"),
        ({"vocab_size": 40}, "the vocabulary has 61 pieces .*, the model 40 embeddings"),
        ({"num_attention_heads": 5}, "a hidden_size of 24 cannot be split into 5 num_attention_heads"),
        ({"pruned_heads": {"7": [0]}}, r"pruned_heads names heads \[0\] of layer 7; the model has 3 layers of 4 heads"),
        ({"pruned_heads": {"0": [4]}}, r"pruned_heads names heads \[4\] of layer 0"),
        ({"pad_token_id": 1}, r"\[PAD\] 0, the model 61 embeddings and pad_token_id 1"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(folder, changed, message):
    edit(folder, **changed)
    with pytest.raises(ValueError, match=message):
        from_folder(folder)


def test_another_model_is_named_before_its_vocabulary(folder):
    # RoBERTa's tokenizer is a BPE, which would be refused first.
    edit(folder, model_type="roberta")
    (folder / "vocab.txt").unlink(missing_ok=True)
    (folder / "tokenizer.json").write_text('{"model": {"type": "BPE", "vocab": {}, "merges": []}}')
    with pytest.raises(ValueError, match="model_type is 'roberta'"):
        _vocabulary(Namespace(bert=str(folder)))


@pytest.mark.parametrize(
    "file, message",
    [
        ("config.json", "config.json is missing"),
        ("model.safetensors", "neither model.safetensors nor pytorch_model.bin"),
        ("tokenizer.json vocab.txt", "neither tokenizer.json nor vocab.txt"),
        ("", "there is no such folder"),
    ],
)
def test_missing_files_are_named(folder, file, message):
    for name in file.split():
        (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=message):
        from_folder(folder) if file else read_config(folder / "nowhere")


def test_weights_of_pretraining_are_no_hindrance(folder):
    """Old names of layer norms, buffers and the heads of pretraining are in folders of the first years."""
    expected = outputs(from_folder(folder), batch())

    def older(weights):
        for name in list(weights):
            new = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
            weights[new] = weights.pop(name)
        weights["bert.embeddings.position_ids"] = torch.arange(32)[None]
        weights["cls.predictions.bias"] = torch.zeros(61)

    edit_weights(folder, older)
    edit(folder, model_type=None)
    assert all(map(torch.equal, outputs(from_folder(folder), batch()), expected))


def test_a_folder_without_pooler_starts_with_a_fresh_one(folder, caplog):
    edit_weights(folder, lambda weights: [weights.pop(f"bert.pooler.dense.{kind}") for kind in ("weight", "bias")])
    model = from_folder(folder)
    assert "has no encoder.pooler.weight, encoder.pooler.bias: they start from random values" in caplog.text
    assert 0 < model.encoder.pooler.weight.std() < 0.03  # normal(0, 0.02)
    edit_weights(folder, lambda weights: weights.update({"bert.pooler.dense.weight": torch.zeros(24, 24)}))
    with pytest.raises(ValueError, match="1 missing: pooler.dense.bias"):
        from_folder(folder)


def test_a_file_that_would_run_code_is_refused(folder, tmp_path):
    (folder / "model.safetensors").unlink()
    torch.save({"bert.pooler.dense.bias": tiny.Bomb(tmp_path / "bang")}, folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match="refused and not executed"):
        from_folder(folder)
    assert not (tmp_path / "bang").exists()
    (folder / "model.safetensors").write_bytes(b"0" * 100)
    with pytest.raises(ValueError, match="damaged or truncated"):
        from_folder(folder)


def test_pruned_heads_of_a_version_4_folder_are_obeyed(folder):
    """transformers 4 removed heads from the weights and noted them in config.json; 5 ignores the note."""
    pruned = {"0": [1, 3], "2": [0, 1, 2]}
    mask = Mask({"enc_self": [[1, 0, 1, 0], [1] * 4, [0, 0, 0, 1]]})

    def cut(weights):
        for layer, heads in pruned.items():
            kept = [i for head in range(4) if head not in heads for i in range(6 * head, 6 * head + 6)]
            prefix = f"bert.encoder.layer.{layer}.attention."
            for name in ("query", "key", "value"):
                for kind in ("weight", "bias"):
                    weights[f"{prefix}self.{name}.{kind}"] = weights[f"{prefix}self.{name}.{kind}"][kept]
            weights[f"{prefix}output.dense.weight"] = weights[f"{prefix}output.dense.weight"][:, kept].contiguous()

    edit_weights(folder, cut)
    edit(folder, pruned_heads=pruned)
    found, whole = from_folder(folder), lively()
    assert find_gates(found).mask().rows == mask.rows
    with find_gates(whole).masked(mask):
        assert all(
            torch.allclose(a, b, atol=1e-5)
            for a, b in zip(outputs(found, batch()), outputs(whole, batch()), strict=True)
        )


def test_an_architecture_of_another_size_than_the_folder_is_refused(folder):
    with pytest.raises(ValueError, match="bert_gated_base has encoder_layers 12, the model to start from 3"):
        from_folder(folder, arch="bert_gated_base")
    with pytest.raises(ValueError, match="name it with --bert DIR, or choose bert_gated_base or bert_gated_mini"):
        task = SimpleNamespace(labels=["0"], name="x", vocabulary=None)
        BertGatedModel.build_model(Namespace(arch="bert_gated"), task)
