"""MarianMT (OPUS-MT): post-layer norm, sinusoidal positions from 0 (first half sines), padding as start token.

Config keys as ``Helsinki-NLP/opus-mt-de-en`` has them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq_headprune.imports.family import Family, single_token
from fairseq_headprune.imports.folder import optional_json
from fairseq_headprune.imports.vocabulary import Vocabulary, about, framed, in_order, read_numbers


def _vocabulary(folder: Path, config: Mapping[str, Any]) -> Vocabulary:
    tokenizer = optional_json(folder, "tokenizer_config.json")
    separate = bool(tokenizer.get("separate_vocabs", False))
    numbers = read_numbers(folder / "vocab.json")
    others = read_numbers(folder / "target_vocab.json") if separate else numbers
    if separate == config.get("share_encoder_decoder_embeddings", True):
        what = "separate vocabularies" if separate else "one vocabulary"
        raise ValueError(f"{folder}: the tokenizer has {what}, which contradicts share_encoder_decoder_embeddings")
    size = config["vocab_size"]
    source = in_order(numbers, size, "vocab.json")
    target_size = config.get("decoder_vocab_size") or size
    target = in_order(others, target_size, "target_vocab.json") if separate else source
    names = {key: target[number] for key, number in _special_numbers(config, len(target)).items()}
    specials = {"bos": None, "pad": names["pad"], "eos": names["eos"], "unk": str(tokenizer.get("unk_token", "<unk>"))}
    frame = framed([], [names["eos"]])
    codes = [symbol for symbol in numbers if symbol.startswith(">>") and symbol.endswith("<<")]
    start = None if names["start"] == names["eos"] else names["start"]
    return Vocabulary(
        source,
        target,
        {**about(specials, {"source": frame, "target": frame}, start=start), "codes": bool(codes)},
        {"kind": "sentencepiece", "source": "source.spm", "target": "target.spm"},
    )


def _special_numbers(config: Mapping[str, Any], size: int) -> dict[str, int]:
    result = {}
    keys = {"pad": "pad_token_id", "eos": "eos_token_id", "start": "decoder_start_token_id"}
    for name, key in keys.items():
        number = single_token(config.get(key), key)
        if number is None or not 0 <= number < size:
            raise ValueError(f"config.json: {key} is {config.get(key)!r}; a number below {size} is expected")
        result[name] = number
    return result


FAMILY = Family(
    arch="marian_gated",
    vocabulary=_vocabulary,
    fixed={"imported_positions": "halves"},
    refused={
        "normalize_before": False,
        "normalize_embedding": False,
        "add_final_layer_norm": False,
        "static_position_embeddings": True,
        "add_bias_logits": False,
    },
)
