"""Hugging Face folders of translation models, made on the spot: published configurations scaled down, random weights.

The keys are those of the ``config.json`` of Helsinki-NLP/opus-mt-de-en, facebook/m2m100_418M,
facebook/nllb-200-distilled-600M, facebook/bart-base, facebook/mbart-large-en-ro and
facebook/mbart-large-50-many-to-many-mmt; sizes, numbers of tokens and dropout differ.
"""

import io
import json
import random
import shutil
import sys
from functools import cache

import sentencepiece
import torch

from fairseq_headprune.corpus.sentences import draw

# transformers imports torchaudio wherever it is installed, and its CUDA build does not load beside a CPU torch.
sys.modules.setdefault("torchaudio", None)

import transformers  # noqa: E402

#: what tokenizers trip over: unknown characters, emoji, Japanese, right-to-left, tabs, spaces, nothing, very long lines
HARD = [
    "Das Haus ist alt.",
    "  zwei  Leerzeichen  ",
    "",
    " ",
    "Ein\tTab und\u00a0geschützt",
    "Emoji 😀👩‍👩‍👧 hier",
    "日本語のテキスト、混ざった English",
    "مرحبا بالعالم שלום",
    "e\u0301 ﬁ ① ½ ｆｕｌｌ",
    "zero\u200bwidth\ufeff\u00ad",
    "a" * 600,
    "sehr lang " * 400,
    "≪α≫ <b> & {x} | [y] \\ / ~ `",
    "...!!!???",
    "42 1.234,56 €",
]

_SIZES = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 40,
    "max_position_embeddings": 64,
    "init_std": 0.3,
}
_DROPOUTS = {"dropout": 0.1, "attention_dropout": 0.0, "activation_dropout": 0.0, "classifier_dropout": 0.0}
_DROPOUTS |= {"encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0, "use_cache": True, "is_encoder_decoder": True}

MARIAN = {
    "model_type": "marian",
    "architectures": ["MarianMTModel"],
    "activation_function": "swish",
    "add_bias_logits": False,
    "add_final_layer_norm": False,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "forced_eos_token_id": 0,
    "normalize_before": False,
    "normalize_embedding": False,
    "static_position_embeddings": True,
    "scale_embedding": True,
    "share_encoder_decoder_embeddings": True,
    "num_beams": 6,
    "max_length": 64,
    **_DROPOUTS,
}
M2M = {
    "model_type": "m2m_100",
    "architectures": ["M2M100ForConditionalGeneration"],
    "activation_function": "relu",
    "bos_token_id": 0,
    "pad_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "early_stopping": True,
    "scale_embedding": True,
    "num_beams": 5,
    "max_length": 64,
    **_DROPOUTS,
    "attention_dropout": 0.1,
    "encoder_layerdrop": 0.05,
    "decoder_layerdrop": 0.05,
}
BART = {
    "model_type": "bart",
    "architectures": ["BartForConditionalGeneration"],
    "activation_function": "gelu",
    "add_bias_logits": False,
    "add_final_layer_norm": False,
    "bos_token_id": 0,
    "pad_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "forced_bos_token_id": 0,
    "forced_eos_token_id": 2,
    "normalize_before": False,
    "normalize_embedding": True,
    "scale_embedding": False,
    "num_beams": 4,
    "early_stopping": True,
    "max_length": 64,
    **_DROPOUTS,
}
MBART = {
    **BART,
    "model_type": "mbart",
    "architectures": ["MBartForConditionalGeneration"],
    "add_final_layer_norm": True,
    "normalize_before": True,
    "scale_embedding": True,
    "static_position_embeddings": False,
}
MBART.pop("forced_bos_token_id")


@cache
def corpus(count=600):
    """German and English sentences, lists of equal length."""
    draws = random.Random(1)
    pairs = [draw(draws) for _ in range(count)]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def train_pieces(path, lines, size=200, kind="unigram"):
    """Train a sentencepiece model with the normalisation that published models have, and return its processor."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=size,
        model_type=kind,
        minloglevel=2,
        num_threads=1,
        hard_vocab_limit=False,
    )
    path.write_bytes(model.getvalue())
    return sentencepiece.SentencePieceProcessor(model_file=str(path))


def _write(folder, name, value):
    (folder / name).write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


def _end_sooner(model, by):
    """Raise the logit of the end of sentence: random weights would go on to the length limit."""
    decoder = model.model.decoder
    norm = decoder.layer_norm if hasattr(decoder, "layer_norm") else decoder.layers[-1].final_layer_norm
    row = model.lm_head.weight[model.config.eos_token_id]
    norm.bias += by * row / row.square().sum()


def _build(folder, model_class, config_class, config, seed=1, sooner=5.0):
    """Make the model of a configuration, with random weights in every parameter, and save it with its configuration."""
    torch.manual_seed(seed)
    model = model_class(config_class(**config)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter += 0.1 * torch.randn(parameter.shape)
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias += 0.3 * torch.randn(model.final_logits_bias.shape)
        _end_sooner(model, sooner)
    model.save_pretrained(folder)
    _write(folder, "config.json", {**config, "vocab_size": model.config.vocab_size, "transformers_version": "4.22.0"})
    return model


def marian(folder, separate=False, size=200, **changed):
    """A folder as opus-mt-de-en is; ``separate``: two vocabularies, as newer ones have."""
    folder.mkdir()
    german, english = corpus()
    source = train_pieces(folder / "source.spm", german, size)
    target = train_pieces(folder / "target.spm", english, size)

    def pieces(*models):
        found = [model.id_to_piece(i) for model in models for i in range(3, model.get_piece_size())]
        found = list(dict.fromkeys(["</s>", "<unk>", *found]))
        return {piece: number for number, piece in enumerate([*found, "<pad>"])}

    numbers = pieces(source) if separate else pieces(source, target)
    others = pieces(target) if separate else numbers
    if separate:
        # one number for padding in both
        size = max(len(numbers), len(others))
        for table in (numbers, others):
            table.pop("<pad>")
            table |= {f"fill{i}": i for i in range(len(table), size - 1)} | {"<pad>": size - 1}
        _write(folder, "target_vocab.json", others)
    _write(folder, "vocab.json", numbers)
    pad = numbers["<pad>"]
    tokenizer = {"source_lang": "de", "target_lang": "en", "tokenizer_class": "MarianTokenizer"}
    _write(folder, "tokenizer_config.json", {**tokenizer, "separate_vocabs": separate, "model_max_length": 64})
    config = {**MARIAN, **_SIZES, "vocab_size": len(numbers), "decoder_vocab_size": len(others), "pad_token_id": pad}
    config |= {"decoder_start_token_id": pad, "bad_words_ids": [[pad]]}
    config["share_encoder_decoder_embeddings"] = not separate
    _build(folder, transformers.MarianMTModel, transformers.MarianConfig, {**config, **changed})
    return folder


def as_bin(folder):
    """Replace ``model.safetensors`` by ``pytorch_model.bin``, where tied weights are stored under every name."""
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    return folder


def copy(folder, target):
    """Copy a folder, to change something in it."""
    return shutil.copytree(folder, target)


def edit_config(folder, **changed):
    """Change keys of ``config.json``."""
    _write(folder, "config.json", {**json.loads((folder / "config.json").read_text()), **changed})
    return folder


def load(folder):
    """The model and the tokenizer that transformers makes of a folder."""
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, attn_implementation="eager").eval()
    return model, transformers.AutoTokenizer.from_pretrained(folder)
