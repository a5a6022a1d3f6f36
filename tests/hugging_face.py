"""Hugging Face folders of translation models, made on the spot: published configurations scaled down, random weights.

The keys are those of the ``config.json`` of Helsinki-NLP/opus-mt-de-en, facebook/m2m100_418M,
facebook/nllb-200-distilled-600M, facebook/bart-base, facebook/mbart-large-en-ro and
facebook/mbart-large-50-many-to-many-mmt; sizes, numbers of tokens and dropout differ.
"""

import io
import json
import random
from functools import cache

import sentencepiece
import torch
import transformers

from fairseq_headprune.corpus.sentences import draw_pair

#: what tokenizers trip over: unknown characters, emoji, Japanese, right-to-left, tabs, spaces, nothing, very long lines
HARD = [
    "Das Haus ist alt.", "  zwei  Leerzeichen  ", "", " ", "Ein\tTab und\u00a0geschützt", "Emoji 😀👩‍👩‍👧 hier",
    "日本語のテキスト、混ざった English", "مرحبا بالعالم שלום", "e\u0301 ﬁ ① ½ ｆｕｌｌ",
    "zero\u200bwidth\ufeff\u00ad", "a" * 600, "sehr lang " * 400, "≪α≫ <b> & {x} | [y] \\ / ~ `", "...!!!???",
    "42 1.234,56 €",
]  # fmt: skip

_SIZES = {"d_model": 32, "max_position_embeddings": 128, "init_std": 0.1, "encoder_layers": 2, "decoder_layers": 2}
_SIZES |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 40}

_DROPOUTS = {"dropout": 0.1, "attention_dropout": 0.0, "activation_dropout": 0.0, "classifier_dropout": 0.0}
_DROPOUTS |= {"encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0, "use_cache": True, "is_encoder_decoder": True}

_NORMS = {"add_bias_logits": False, "add_final_layer_norm": False, "normalize_before": False}

#: special symbols as fairseq numbers them
_SPECIALS = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}

MARIAN = {"model_type": "marian", "architectures": ["MarianMTModel"], "activation_function": "swish", **_NORMS}
MARIAN |= {"bos_token_id": 0, "eos_token_id": 0, "forced_eos_token_id": 0, "share_encoder_decoder_embeddings": True}
MARIAN |= {"normalize_embedding": False, "static_position_embeddings": True, "scale_embedding": True}
MARIAN |= {"num_beams": 6, "max_length": 64, **_DROPOUTS}

M2M = {"model_type": "m2m_100", "architectures": ["M2M100ForConditionalGeneration"], "activation_function": "relu"}
M2M |= {**_SPECIALS, "early_stopping": True, "scale_embedding": True, "num_beams": 5, "max_length": 64, **_DROPOUTS}
M2M |= {"attention_dropout": 0.1, "encoder_layerdrop": 0.05, "decoder_layerdrop": 0.05}

BART = {
    "model_type": "bart", "architectures": ["BartForConditionalGeneration"], "activation_function": "gelu", **_NORMS,
}  # fmt: skip
BART |= {**_SPECIALS, "forced_bos_token_id": 0, "forced_eos_token_id": 2}
BART |= {"normalize_embedding": True, "scale_embedding": False}
BART |= {"num_beams": 4, "early_stopping": True, "max_length": 64, **_DROPOUTS}

MBART = {**BART, "model_type": "mbart", "architectures": ["MBartForConditionalGeneration"], "scale_embedding": True}
MBART |= {"add_final_layer_norm": True, "normalize_before": True, "static_position_embeddings": False}
MBART.pop("forced_bos_token_id")


@cache
def corpus(count=600):
    """German and English sentences, lists of equal length."""
    draws = random.Random(1)
    pairs = [draw_pair(draws) for _ in range(count)]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def train_pieces(path, lines, size=200, kind="unigram"):
    """Train a sentencepiece model with the normalisation that published models have, and return its processor."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=size, model_type=kind, minloglevel=2,
        num_threads=1, hard_vocab_limit=False,
    )  # fmt: skip
    path.write_bytes(model.getvalue())
    return sentencepiece.SentencePieceProcessor(model_file=str(path))


def _write(folder, name, value):
    (folder / name).write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


def _train(model, steps=60, rate=0.01):
    """Learn a few made-up pairs, so that translations end: random weights go on to the length limit."""
    draws, config = random.Random(1), model.config
    pairs = [([draws.randint(5, 190) for _ in range(draws.randint(3, 20))], draws.randint(0, 12)) for _ in range(32)]
    end, pad = config.eos_token_id, config.pad_token_id

    def rows(lists, fill):
        return torch.tensor([row + [fill] * (24 - len(row)) for row in lists])

    tokens = rows([source + [end] for source, _ in pairs], pad)
    # mBART's labels have, behind the end, what its decoder starts with.
    last = [end, config.decoder_start_token_id] if config.model_type == "mbart" else [end]
    last = last[:1] if last[-1] == end else last
    labels = rows([source[::-1][: count + 1] + last for source, count in pairs], -100)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(steps):
        model(input_ids=tokens, attention_mask=tokens.ne(pad).long(), labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


#: sizes of opus-mt-de-en
FULL = {"d_model": 512, "max_position_embeddings": 512, "init_std": 0.02, "encoder_layers": 6, "decoder_layers": 6}
FULL |= {"encoder_attention_heads": 8, "decoder_attention_heads": 8, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048}


def _build(folder, model_class, config_class, config, seed=1, learn=True):
    """Make the model of a configuration, with random weights in every parameter, and save it with its configuration."""
    torch.manual_seed(seed)
    model = model_class(config_class(**config)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter += 0.1 * torch.randn(parameter.shape)
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias += 0.3 * torch.randn(model.final_logits_bias.shape)
    if learn:
        _train(model)
    model.save_pretrained(folder)
    _write(folder, "config.json", {**config, "vocab_size": model.config.vocab_size, "transformers_version": "4.22.0"})
    return model


def marian(folder, separate=False, size=200, symbols=0, learn=True, **changed):
    """A folder as opus-mt-de-en is; ``separate``: two vocabularies, as newer ones; ``symbols``: how many at least."""
    folder.mkdir()
    german, english = corpus()
    source = train_pieces(folder / "source.spm", german, size)
    target = train_pieces(folder / "target.spm", english, size)

    def pieces(*models):
        found = [model.id_to_piece(i) for model in models for i in range(3, model.get_piece_size())]
        found = list(dict.fromkeys(["</s>", "<unk>", *found]))
        return {piece: number for number, piece in enumerate([*found, "<pad>"])}

    numbers = pieces(source) if separate else pieces(source, target)
    if symbols > len(numbers):
        numbers.pop("<pad>")
        numbers |= {f"fill{i}": i for i in range(len(numbers), symbols - 1)} | {"<pad>": symbols - 1}
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
    _build(folder, transformers.MarianMTModel, transformers.MarianConfig, {**config, **changed}, learn=learn)
    return folder


def _numbered(model, *further):
    """Numbers of a sentencepiece model's symbols in fairseq's order, with further ones behind."""
    pieces = [model.id_to_piece(i) for i in range(3, model.get_piece_size())]
    return {piece: number for number, piece in enumerate(["<s>", "<pad>", "</s>", "<unk>", *pieces, *further])}


def m2m(folder, **changed):
    """A folder as m2m100_418M is: its 100 languages, behind them 8 embeddings without a symbol."""
    folder.mkdir()
    model = train_pieces(folder / "sentencepiece.bpe.model", sum(corpus(), []), kind="bpe")
    numbers = _numbered(model)
    _write(folder, "vocab.json", numbers)
    codes = transformers.models.m2m_100.tokenization_m2m_100.FAIRSEQ_LANGUAGE_CODES["m2m100"]
    tokens = [f"__{code}__" for code in codes]
    _write(folder, "special_tokens_map.json", {"additional_special_tokens": tokens})
    _write(folder, "tokenizer_config.json", {"tokenizer_class": "M2M100Tokenizer", "model_max_length": 64})
    config = {**M2M, **_SIZES, "vocab_size": len(numbers) + len(codes) + 8}
    _build(folder, transformers.M2M100ForConditionalGeneration, transformers.M2M100Config, {**config, **changed})
    return folder


def nllb(folder, fast=True, **changed):
    """A folder as nllb-200-distilled-600M is; not ``fast``: without tokenizer.json, which transformers makes itself."""
    folder.mkdir()
    model = train_pieces(folder / "sentencepiece.bpe.model", sum(corpus(), []), kind="bpe")
    codes = transformers.models.nllb.tokenization_nllb.FAIRSEQ_LANGUAGE_CODES
    tokenizer = {"tokenizer_class": "NllbTokenizer", "model_max_length": 64, "additional_special_tokens": codes}
    _write(folder, "tokenizer_config.json", tokenizer)
    config = {**M2M, **_SIZES, "vocab_size": len(_numbered(model, *codes)) + 1, "max_length": 64}
    _build(folder, transformers.M2M100ForConditionalGeneration, transformers.M2M100Config, {**config, **changed})
    if fast:
        transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(folder)
    return folder


def mbart(folder, fifty=False, fast=False, **changed):
    """A folder as mbart-large-en-ro is, or as mbart-large-50-many-to-many-mmt (``fifty``)."""
    folder.mkdir()
    model = train_pieces(folder / "sentencepiece.bpe.model", sum(corpus(), []))
    name = "mbart50" if fifty else "mbart"
    codes = getattr(transformers.models, name)
    codes = getattr(codes, f"tokenization_{name}").FAIRSEQ_LANGUAGE_CODES
    numbers = _numbered(model, *codes, "<mask>")
    kind = "MBart50Tokenizer" if fifty else "MBartTokenizer"
    _write(folder, "tokenizer_config.json", {"tokenizer_class": kind, "model_max_length": 64})
    config = {**MBART, **_SIZES, "vocab_size": len(numbers), "tokenizer_class": kind}
    config["decoder_start_token_id"] = 2 if fifty else numbers["en_XX"]
    _build(folder, transformers.MBartForConditionalGeneration, transformers.MBartConfig, {**config, **changed})
    if fast:
        transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(folder)
    return folder


def bart(folder, fast=True, **changed):
    """A folder as bart-base is: byte pairs of GPT-2's kind."""
    from tokenizers import ByteLevelBPETokenizer

    folder.mkdir()
    tokenizer = ByteLevelBPETokenizer()
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer.train_from_iterator(sum(corpus(), []), vocab_size=400, special_tokens=specials, show_progress=False)
    tokenizer.save_model(str(folder))
    _write(folder, "tokenizer_config.json", {"tokenizer_class": "BartTokenizer", "model_max_length": 64})
    config = {**BART, **_SIZES, "vocab_size": tokenizer.get_vocab_size()}
    _build(folder, transformers.BartForConditionalGeneration, transformers.BartConfig, {**config, **changed})
    if fast:
        transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(folder)
    return folder


def as_bin(folder):
    """Replace ``model.safetensors`` by ``pytorch_model.bin``, where tied weights are stored under every name."""
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    return folder


def edit_config(folder, **changed):
    """Change keys of ``config.json``."""
    _write(folder, "config.json", {**json.loads((folder / "config.json").read_text()), **changed})
    return folder


def load(folder):
    """The model and the tokenizer that transformers makes of a folder."""
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, attn_implementation="eager").eval()
    return model, transformers.AutoTokenizer.from_pretrained(folder)
