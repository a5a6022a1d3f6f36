"""Small BERT models for the tests: folders, models and GLUE data, all made on the spot."""

from argparse import Namespace
from types import SimpleNamespace

import torch
from fairseq.models import ARCH_CONFIG_REGISTRY

from fairseq_headprune.export.huggingface import write_folder
from fairseq_headprune.imports.bert import HEAD
from fairseq_headprune.imports.wordpieces import WordPieceVocabulary
from fairseq_headprune.models.bert_gated import BertGatedModel

LETTERS = "abcdefghijklmnopqrstuvwxyz"
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{x}" for x in LETTERS), "good", "bad", ".", "'"]

#: what is not as in the architecture bert_gated_mini
SMALL = {"encoder_layers": 3, "encoder_embed_dim": 24, "encoder_ffn_embed_dim": 40, "encoder_attention_heads": 4}


def vocabulary(folder) -> WordPieceVocabulary:
    """The vocabulary of ``PIECES``, which is left in ``folder/vocab.txt``."""
    (folder / "vocab.txt").write_text("".join(piece + "\n" for piece in PIECES), encoding="utf-8")
    return WordPieceVocabulary.from_folder(folder)


def settings(labels=("0", "1"), **changed) -> Namespace:
    """Complete settings of a small model, dropout off."""
    sizes = {**SMALL, "bert_positions": 32, "bert_vocabulary": len(PIECES), "bert_pad": 0, **changed}
    off = {"dropout": 0.0, "attention_dropout": 0.0, "pooler_dropout": 0.0}
    found = Namespace(arch="bert_gated_mini", bert_labels=list(labels), bert_task="made up", **{**off, **sizes})
    ARCH_CONFIG_REGISTRY["bert_gated_mini"](found)
    found.arch, found.head_layout = "bert_gated", None
    return found


def lively(labels=("0", "1"), seed=1, **changed) -> BertGatedModel:
    """A model whose weights and biases are large enough to matter, in evaluation mode; its settings are in it."""
    torch.manual_seed(seed)
    found = settings(labels, **changed)
    model = BertGatedModel.build_model(found, SimpleNamespace(labels=list(labels), name="made up", vocabulary=None))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" not in name:
                parameter += 0.2 * torch.randn_like(parameter)
    model.settings = found
    return model.eval()


def hugging_face_folder(folder, labels=("0", "1"), seed=1, **changed):
    """Write a lively model as a Hugging Face folder; return the folder."""
    folder.mkdir(exist_ok=True)
    model = lively(labels, seed, **changed)
    write_folder(folder, model.settings, model.state_dict(), vocabulary(folder))
    return folder


def from_folder(folder, labels=("0", "1"), **flags):
    """The model that training starts with when it is given a folder, in evaluation mode."""
    task = SimpleNamespace(labels=list(labels), name="made up", vocabulary=WordPieceVocabulary.from_folder(folder))
    args = Namespace(arch=flags.pop("arch", "bert_gated"), bert=str(folder), **flags)
    ARCH_CONFIG_REGISTRY[args.arch](args)
    model = BertGatedModel.build_model(args, task).eval()
    model.settings = args
    return model


def batch(lengths=(9, 4, 6), seed=3, limit=61):
    """Random tokens below ``limit`` with padding, and token types that change in the middle: ``net_input``."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.zeros(len(lengths), max(lengths), dtype=torch.long)
    types = torch.zeros_like(tokens)
    for row, length in enumerate(lengths):
        tokens[row, :length] = torch.randint(1, limit, (length,), generator=generator)
        types[row, length // 2 : length] = 1
    return {"src_tokens": tokens, "src_lengths": torch.tensor(lengths), "token_types": types}


def outputs(model, net_input):
    """All hidden states (batch, time, d), pooled output and logits, without padding."""
    with torch.no_grad():
        features, encoded = model(**net_input, features_only=True, return_all_hiddens=True)
        logits, _ = model(**net_input, features_only=True, classification_head_name=HEAD)
    real = net_input["src_tokens"] != 0
    states = [state.transpose(0, 1)[real] for state in encoded["encoder_states"]]
    assert torch.equal(states[-1], features[real])
    return [*states, encoded["pooled"][0], logits]
