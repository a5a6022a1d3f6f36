"""The families of models that can be imported, by the ``model_type`` of their configuration.

Config keys as in ``Helsinki-NLP/opus-mt-de-en`` (Marian), ``facebook/m2m100_418M`` and
``facebook/nllb-200-distilled-600M`` (M2M-100), ``facebook/bart-base`` and ``facebook/bart-large-cnn`` (BART), and
``facebook/mbart-large-en-ro`` and ``facebook/mbart-large-50-many-to-many-mmt`` (mBART).
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq_headprune.imports.family import ModelFamily, shared_vocabulary, single_token
from fairseq_headprune.imports.folder import optional_json
from fairseq_headprune.imports.vocabulary import (
    LANGUAGE,
    Vocabulary,
    about,
    added_tokens,
    check_specials,
    cut_by,
    fairseq_order,
    framed,
    listed_tokens,
    read_numbers,
    symbols_in_order,
    tokenizer_numbers,
    tokenizer_or_sentencepiece,
)

#: the sentencepiece model in folders of M2M-100, NLLB and mBART
_MODEL = "sentencepiece.bpe.model"

_CC25 = "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP "
_CC25 += "nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN"

#: the languages of mBART-50 in the order of their ids
_FIFTY = f"{_CC25} af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX "
_FIFTY += "sv_SE sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI"


def _marian(folder: Path, config: Mapping[str, Any]) -> Vocabulary:
    tokenizer = optional_json(folder, "tokenizer_config.json")
    separate = bool(tokenizer.get("separate_vocabs", False))
    numbers = read_numbers(folder / "vocab.json")
    others = read_numbers(folder / "target_vocab.json") if separate else numbers
    if separate == config.get("share_encoder_decoder_embeddings", True):
        what = "separate vocabularies" if separate else "one vocabulary"
        raise ValueError(f"{folder}: the tokenizer has {what}, which contradicts share_encoder_decoder_embeddings")
    size = config["vocab_size"]
    source = symbols_in_order(numbers, size, "vocab.json")
    target_size = config.get("decoder_vocab_size") or size
    target = symbols_in_order(others, target_size, "target_vocab.json") if separate else source
    names = {key: target[number] for key, number in _marian_specials(config, len(target)).items()}
    specials = {"bos": None, "pad": names["pad"], "eos": names["eos"], "unk": str(tokenizer.get("unk_token", "<unk>"))}
    frames = framed([], [names["eos"]])
    codes = [symbol for symbol in numbers if symbol.startswith(">>") and symbol.endswith("<<")]
    start = None if names["start"] == names["eos"] else names["start"]
    return Vocabulary(
        source,
        target,
        {**about(specials, frames, start=start), "codes": bool(codes)},
        {"kind": "sentencepiece", "source": "source.spm", "target": "target.spm"},
    )


def _marian_specials(config: Mapping[str, Any], size: int) -> dict[str, int]:
    result = {}
    keys = {"pad": "pad_token_id", "eos": "eos_token_id", "start": "decoder_start_token_id"}
    for name, key in keys.items():
        number = single_token(config.get(key), key)
        if number is None or not 0 <= number < size:
            raise ValueError(f"config.json: {key} is {config.get(key)!r}; a number below {size} is expected")
        result[name] = number
    return result


def _m2m(folder: Path, config: Mapping[str, Any]) -> Vocabulary:
    check_specials(config)
    if (folder / "vocab.json").is_file():
        numbers = read_numbers(folder / "vocab.json")
        added, listed = added_tokens(folder), listed_tokens(folder)
        languages = [token for token in [*added, *listed] if token.startswith("__") and token.endswith("__")]
        for place, token in enumerate(dict.fromkeys(token for token in listed if token in languages)):
            added.setdefault(token, len(numbers) + place)
        languages = [token for token in added if token in languages]
        numbers = {**numbers, **{token: added[token] for token in languages}}
        spelling, pieces = "__{}__", cut_by("sentencepiece", _MODEL)
    else:
        if optional_json(folder, "tokenizer_config.json").get("legacy_behaviour"):
            raise ValueError(f"{folder}: legacy_behaviour (the language after the sentence) is not supported for NLLB")
        spelling, further = "{}", lambda: fairseq_order(folder, _MODEL, _nllb_listed(folder))
        numbers, pieces = tokenizer_or_sentencepiece(folder, _MODEL, further)
        # Three letters of ISO 639-3 and four letters of the script.
        languages = [token for token in numbers if len(token) == 8 and token[3] == "_" and token[4].isupper()]
    if not languages:
        raise ValueError(f"{folder}: the tokenizer's files list no token of a language")
    frames = framed([LANGUAGE], ["</s>"])
    return shared_vocabulary(
        folder, config, numbers, pieces, frames, forced=LANGUAGE, language=spelling, languages=languages
    )


def _nllb_listed(folder: Path) -> list[str]:
    found = [token for token in listed_tokens(folder) if token != "<mask>"]
    if not found:
        raise ValueError(f"{folder}: tokenizer_config.json lists no languages (additional_special_tokens)")
    return [*found, "<mask>"]


def _bart(folder: Path, config: Mapping[str, Any]) -> Vocabulary:
    check_specials(config)
    if (folder / "tokenizer.json").is_file():
        numbers = tokenizer_numbers(folder / "tokenizer.json")
        pieces = cut_by("tokenizer", "tokenizer.json")
    else:
        numbers = {**read_numbers(folder / "vocab.json"), **added_tokens(folder)}
        pieces = cut_by("byte-level", "vocab.json")
    generation = config.get("generation") or {}
    key = "forced_bos_token_id"
    forced = single_token(generation.get(key, config.get(key)), key)
    return shared_vocabulary(folder, config, numbers, pieces, framed(["<s>"], ["</s>"]), forced)


def _mbart(folder: Path, config: Mapping[str, Any]) -> Vocabulary:
    check_specials(config, start=None)
    fifty = _is_fifty(folder, config)
    known = (_FIFTY if fifty else _CC25).split()
    further = [*known, "<mask>"]
    numbers, pieces = tokenizer_or_sentencepiece(folder, _MODEL, lambda: fairseq_order(folder, _MODEL, further))
    languages = [token for token in numbers if re.fullmatch(r"[a-z]{2,3}_[A-Z]{2}", token) and token in known]
    frames = framed([LANGUAGE], ["</s>"])
    if not fifty:
        # The decoder starts with the language instead; transformers' labels have it again after the end of sentence.
        frames = {**framed([], ["</s>"]), "source": {"before": [], "after": ["</s>", LANGUAGE]}}
    start, forced = (None, LANGUAGE) if fifty else (LANGUAGE, None)
    return shared_vocabulary(
        folder, config, numbers, pieces, frames, forced, start=start, language="{}", languages=languages
    )


def _is_fifty(folder: Path, config: Mapping[str, Any]) -> bool:
    name = optional_json(folder, "tokenizer_config.json").get("tokenizer_class") or config.get("tokenizer_class")
    if name:
        return "50" in name
    return config.get("decoder_start_token_id") == config.get("eos_token_id", 2)


FAMILIES = {
    # Post-layer norm, sinusoidal positions from 0 (first half sines), padding as start token.
    "marian": ModelFamily(
        arch="marian_gated",
        vocabulary=_marian,
        fixed={"imported_positions": "halves"},
        refused={
            "normalize_before": False,
            "normalize_embedding": False,
            "add_final_layer_norm": False,
            "static_position_embeddings": True,
            "add_bias_logits": False,
        },
    ),
    # M2M-100 and dense NLLB-200: fairseq's own transformer with pre-layer norm, and language tokens.
    "m2m_100": ModelFamily(
        arch="m2m_100_gated",
        vocabulary=_m2m,
        defaults={"activation_function": "relu", "scale_embedding": True},
        bias=False,
        final_norm=True,
    ),
    # Learned positions with an offset of 2, layer norm of the embeddings, byte-level symbols.
    "bart": ModelFamily(
        arch="bart_gated",
        vocabulary=_bart,
        refused={
            "normalize_before": False,
            "normalize_embedding": True,
            "add_final_layer_norm": False,
            "static_position_embeddings": False,
        },
        embedding_norm=True,
        learned_positions=True,
    ),
    # cc25 and its descendants, and mBART-50: BART with pre-layer norm, and language tokens.
    "mbart": ModelFamily(
        arch="mbart_gated",
        vocabulary=_mbart,
        refused={"normalize_before": True, "normalize_embedding": True, "static_position_embeddings": False},
        embedding_norm=True,
        final_norm=True,
        learned_positions=True,
    ),
}

#: model type -> why it is refused
_OTHERS = {
    "nllb-moe": "its layers are mixtures of experts; the dense NLLB-200 models (distilled-600M, 1.3B, 3.3B) can be "
    "imported",
    "switch_transformers": "its layers are mixtures of experts",
    "t5": "its attention adds biases of relative positions, which fairseq's attention does not have",
    "mt5": "its attention adds biases of relative positions, which fairseq's attention does not have",
    "umt5": "its attention adds biases of relative positions, which fairseq's attention does not have",
    "pegasus": "it is not among the families that were compared with transformers",
    "fsmt": "it was converted from a fairseq checkpoint: take fairseq's own file (wmt19.…)",
    "bert": "a classifier is read by --arch bert_gated --bert FOLDER",
}


def family_of(config: Mapping[str, Any]) -> ModelFamily:
    """Return the family of a configuration.

    Raises:
        ValueError: the family is not supported.
    """
    kind = config.get("model_type")
    if kind in FAMILIES:
        if config.get("num_experts") or config.get("router_type"):
            raise ValueError(f"a model of type {kind} with experts cannot be imported: {_OTHERS['nllb-moe']}")
        _check_head(config, kind)
        return FAMILIES[kind]
    why = _OTHERS.get(str(kind), "its architecture is another one")
    raise ValueError(f"a model of type {kind!r} cannot be imported: {why}; known are {', '.join(FAMILIES)}")


def _check_head(config: Mapping[str, Any], kind: str) -> None:
    if not config.get("is_encoder_decoder", True) or config.get("is_decoder"):
        raise ValueError(f"this {kind} model is a decoder alone: it translates nothing")
    names = config.get("architectures") or []
    wrong = [name for name in names if not name.endswith(("MTModel", "ForConditionalGeneration", "Model"))]
    if wrong:
        raise ValueError(f"{wrong[0]} generates no text; {kind} models with an output layer can be imported")
